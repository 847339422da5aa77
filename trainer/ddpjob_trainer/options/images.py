"""Options for image classification."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from .parsing import positive

DEFAULT_ARCH = "resnet18"
DEFAULT_SIZE = 224


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig:
    """A network of torchvision, and its input."""

    arch: str = DEFAULT_ARCH
    """Its name in torchvision.models."""
    size: int = DEFAULT_SIZE
    """Pixels of the side of an image as the network sees it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("what imagenet trains")
    group.add_argument(
        "-a", "--arch", default=DEFAULT_ARCH, help=f"a classification model of torchvision (default {DEFAULT_ARCH})"
    )
    group.add_argument(
        "--image-size",
        type=positive,
        default=DEFAULT_SIZE,
        metavar="PIXELS",
        help=f"side of the square that is cut out of an image (default {DEFAULT_SIZE})",
    )


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> ImagesConfig:
    """What flags ask for."""
    return ImagesConfig(arch=flags.arch, size=flags.image_size)
