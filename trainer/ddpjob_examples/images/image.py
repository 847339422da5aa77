"""Converts the bytes of an image file to a tensor for a network, cropped as is usual in training on ImageNet."""

import functools
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from ddpjob_rank.console import counted, warn
from ddpjob_rank.errors import ConfigError
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from .broken import Broken

Sample = tuple[Tensor, int]
"""An image as bytes in 3 channels, and the number of its class. Networks take images that `normalised` returns."""

Transform = Callable[[Image.Image], Tensor]

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The extensions that torchvision's ImageFolder reads."""

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's color channels, with which torchvision's weights were trained."""

RESIZE = 256 / 224
"""In evaluation, an image is resized so that its shorter side is this many times the side of the center crop."""

MOST_BROKEN = 100
"""The maximum number of broken images in a row that are skipped. A longer row has another cause than bad files."""


class BrokenImageError(ConfigError):
    """An image cannot be decoded."""


class Encoded(NamedTuple):
    """An image as it is stored."""

    content: bytes
    name: str
    """Where the image is stored, for messages."""
    label: int
    """The number of the image's class."""


class Images(Dataset[Sample], ABC):
    """Images with their classes, each decoded when it is indexed.

    With `skip_broken`, a broken image is replaced by the next one that can be decoded. The replacement, and the part
    that is cut out of it, are the same in every process.
    """

    def __init__(self, count: int, transform: Transform, *, skip_broken: bool) -> None:
        self.broken = Broken(count) if skip_broken else None
        """The images that could not be decoded; None if a broken image is an error."""
        self._count = count
        self._transform = transform

    @abstractmethod
    def encoded(self, index: int) -> Encoded:
        """The image with this index.

        Raises:
            TrainerError: The image cannot be read.
        """

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        if self.broken is None:
            return self._sample(index)
        numbers = [index, *((index + more) % self._count for more in range(1, min(MOST_BROKEN, self._count)))]
        for number in numbers:
            try:
                return self._sample(number)
            except BrokenImageError as error:
                if self.broken.add(number):
                    warn(f"{error}; the next image that can be decoded takes its place")
        first = self.encoded(index).name
        raise ConfigError(f"none of {counted(len(numbers), 'image')} in a row, from {first} on, can be decoded")

    def _sample(self, index: int) -> Sample:
        image = self.encoded(index)
        return decoded(image.content, image.name, self._transform), image.label


def decoded(content: bytes, name: str, transform: Transform) -> Tensor:
    """Decodes and transforms the image in a file.

    Raises:
        BrokenImageError: The content is not an image, or is a broken image.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            return transform(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BrokenImageError(f"the image {name} cannot be decoded: {_reason(error)}") from error


def to_train(size: int) -> Transform:
    """A transform for training: a random part of 8 to 100 % of the image, resized to a square of `size` pixels.

    Half of the results are mirrored.
    """
    from torchvision.transforms import RandomResizedCrop  # noqa: PLC0415  (its import takes seconds)

    def transform(image: Image.Image) -> Tensor:
        box = RandomResizedCrop.get_params(image, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
        scale = _draft(image, size / box[3], size / box[2])
        top, left, height, width = (round(side / scale) for side in box)
        part = image.convert("RGB").crop((left, top, left + width, top + height))
        # Pillow's bytes have the channels-last layout, in which torch resizes in half the time that Pillow takes.
        images = torch.from_numpy(np.array(part)).permute(2, 0, 1).unsqueeze(0)
        cut = functional.interpolate(images, (size, size), mode="bilinear", antialias=True)[0]
        return (cut.flip(-1) if torch.rand(1) < 0.5 else cut).contiguous()  # noqa: PLR2004

    return transform


def to_test(size: int) -> Transform:
    """A transform for testing: the center of the image, as a square of `size` pixels."""
    from torchvision.transforms import CenterCrop, Compose, Resize  # noqa: PLC0415  (as above)

    middle = Compose([Resize(round(size * RESIZE)), CenterCrop(size)])
    return lambda image: pixels(middle(image.convert("RGB")))


def pixels(image: Image.Image) -> Tensor:
    """The channels of an RGB image as bytes. Floats would be four times as large on the way from workers to a GPU."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def normalised(images: Tensor) -> Tensor:
    """Converts images from bytes to normalised floats for networks, on the images' device."""
    return images.float().sub_(_column(MEAN, images.device)).div_(_column(DEVIATION, images.device))


def _draft(image: Image.Image, *shrinking: float) -> float:
    """If a JPEG will be shrunk, makes Pillow decode it at 1/2, 1/4 or 1/8 of its size; returns 2, 4 or 8, else 1.

    This saves most of the work of decoding. `shrinking` is, for each side, the target size divided by the size.
    """
    before, wanted = image.size, max(shrinking)
    drafted = image.draft("RGB", (math.ceil(before[0] * wanted), math.ceil(before[1] * wanted)))
    return before[0] / drafted[1][2] if drafted else 1.0


@functools.cache
def _column(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).mul_(255).view(-1, 1, 1)


def _reason(error: Exception) -> str:
    """Why an image cannot be decoded, without the memory address in Pillow's message."""
    return "it is not an image" if isinstance(error, UnidentifiedImageError) else str(error)
