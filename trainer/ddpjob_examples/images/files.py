"""Images as files, in a directory for each class."""

import os
from pathlib import Path

import numpy as np
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_trainer.data.fingerprint import of_files, spread

from .image import EXTENSIONS, Encoded, Images, Transform


class ImageFiles(Images):
    """Images in files. Classes are numbered in the order of their directories' names.

    The paths are kept in one array instead of a list. Each worker would soon have its own copy of a list in memory,
    because using an object changes its reference count.

    Raises:
        ConfigError: There is no class, or a class has no images.
    """

    def __init__(self, root: Path, transform: Transform, *, skip_broken: bool = False) -> None:
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not self.classes:
            raise ConfigError(f"{root} has no classes: it must hold a directory of images for each class")
        found = [_images(root / name) for name in self.classes]
        self._root = root
        self._paths = np.array([os.fsencode(path) for paths in found for path in paths])
        self._labels = np.repeat(np.arange(len(found)), [len(paths) for paths in found])
        super().__init__(len(self._paths), transform, skip_broken=skip_broken)

    def fingerprint(self) -> str:
        """A digest of the names and sizes of some files, and of the number of files in each class."""
        counts = np.bincount(self._labels, minlength=len(self.classes)).tolist()
        return of_files(self._root, map(self._path, spread(len(self))), self.classes, counts)

    def encoded(self, index: int) -> Encoded:
        """The image file with this index."""
        path = self._path(index)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TrainerError(f"the image {path} cannot be read: {error.strerror}") from error
        return Encoded(content, str(path), int(self._labels[index]))

    def _path(self, index: int) -> Path:
        return Path(os.fsdecode(self._paths[index]))


def _images(directory: Path) -> list[str]:
    paths = [
        f"{where}/{name}"
        for where, _, names in os.walk(directory, followlinks=True)
        for name in names
        if name.lower().endswith(EXTENSIONS)
    ]
    if not paths:
        raise ConfigError(f"the class {directory} has no images: no file in it ends with {', '.join(EXTENSIONS)}")
    return sorted(paths)
