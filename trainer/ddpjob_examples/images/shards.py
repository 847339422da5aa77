"""Images in shards: tar files with many samples each. Any sample can be read without the others."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import torch
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_trainer.data.fingerprint import of_files, spread
from torch import Tensor

from .image import Encoded, Images, Transform
from .tar_index import NAME as INDEX
from .tar_index import image, read_index, split

WINDOW_SAMPLES = 16_384
"""Number of samples that are shuffled together. They come from a few shards, which are taken in random order, so that
only a few files are read at any time."""


class ImageShards(Images):
    """Images in shards, which can be indexed like any data set. Only a few numbers per image are kept in memory.

    Raises:
        ConfigError: A shard, or a sample in it, is broken.
    """

    def __init__(
        self, directory: Path, transform: Transform, *, window: int = WINDOW_SAMPLES, skip_broken: bool = False
    ) -> None:
        self._directory = directory
        self._shards = shards_of(directory)
        if not self._shards:
            raise ConfigError(f"{directory} has no shards: no file in it ends with .tar")
        self._index = read_index(directory, self._shards)
        super().__init__(len(self._index.spans), transform, skip_broken=skip_broken)
        self._window = window
        self.classes = int(self._index.spans[:, 2].max(initial=-1)) + 1

    def fingerprint(self) -> str:
        """A digest of the names and sizes of some shards, and of the number of samples in each."""
        chosen = [self._shards[number] for number in spread(len(self._shards))]
        return of_files(self._directory, chosen, self._index.firsts.tolist())

    def encoded(self, index: int) -> Encoded:
        """The image with this index."""
        shard = self._shards[int(np.searchsorted(self._index.firsts, index, side="right")) - 1]
        start, end, label = map(int, self._index.spans[index])
        key, content = _image(shard, start, end)
        return Encoded(content, f"{key} in {shard}", label)

    def shuffled(self, generator: torch.Generator) -> Tensor:
        """A random order in which neighbouring samples come from a few shards."""
        firsts, window, whole = self._index.firsts, [], []
        for shard in torch.randperm(len(self._shards), generator=generator).tolist():
            window.append(torch.arange(int(firsts[shard]), int(firsts[shard + 1])))
            if sum(map(len, window)) >= self._window:
                whole.append(_mixed(window, generator))
                window = []
        return torch.cat([*whole, *([_mixed(window, generator)] if window else [])])


def shards_of(directory: Path) -> tuple[Path, ...]:
    """The shards in a directory, sorted by name."""
    return tuple(sorted(directory.glob("*.tar")))


def _image(shard: Path, start: int, end: int) -> tuple[str, bytes]:
    """Reads the sample in these bytes of a shard. Returns its key and its image.

    Raises:
        TrainerError: The shard cannot be read.
        ConfigError: The shard has changed since it was indexed.
    """
    try:
        with shard.open("rb") as file:
            content = os.pread(file.fileno(), end - start, start)
    except OSError as error:
        raise TrainerError(f"the shard {shard} cannot be read: {error.strerror}") from error
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            files = {split(member.name): tar.extractfile(member) for member in tar if member.isfile()}
            contents = {end: file.read() for (_, end), file in files.items() if file}
            return next(iter(files))[0], image(contents)
    except (tarfile.TarError, ValueError, StopIteration) as error:
        raise ConfigError(
            f"the shard {shard} has changed at byte {start} since its samples were indexed: {error}; if "
            f"this was intended, remove {shard.parent / INDEX}"
        ) from error


def _mixed(parts: list[Tensor], generator: torch.Generator) -> Tensor:
    whole = torch.cat(parts)
    return whole[torch.randperm(len(whole), generator=generator)]
