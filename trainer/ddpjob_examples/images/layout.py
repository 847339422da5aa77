"""Labeled images on disk: finds out which of two layouts a directory has, and makes its data sets.

train/CLASS/*.jpg, val/CLASS/*.jpg      files, as torchvision's ImageFolder reads them
train/*.tar, val/*.tar                  shards, as WebDataset writes them
"""

from dataclasses import dataclass
from pathlib import Path

from ddpjob_rank.errors import ConfigError

from .files import ImageFiles
from .image import Images, to_test, to_train
from .shards import ImageShards, shards_of

TRAIN, VAL = "train", "val"


@dataclass(frozen=True, slots=True)
class ImageClasses:
    """Images with their classes, for training and for testing."""

    train: Images
    test: Images | None
    """None if there is no directory `val`."""
    classes: int


def image_classes(directory: Path | None, size: int, *, skip_broken: bool = False) -> ImageClasses:
    """The data sets in a directory, with images cropped to squares of `size` pixels.

    With `skip_broken`, an image that cannot be decoded is replaced by the next image.

    Raises:
        ConfigError: There are no data sets, or `train` and `val` have different classes.
    """
    if directory is None:
        raise ConfigError(f"--data-dir is not given: it names the directory with {TRAIN}/ and {VAL}/ of images")
    train = directory / TRAIN
    if not train.is_dir():
        raise ConfigError(
            f"--data-dir {directory} has no directory {TRAIN}/: it must hold images as {TRAIN}/CLASS/*.jpg and"
            f" {VAL}/CLASS/*.jpg, or shards as {TRAIN}/*.tar and {VAL}/*.tar"
        )
    val = directory / VAL if (directory / VAL).is_dir() else None
    make = _of_shards if shards_of(train) else _of_files
    return make(train, val, size, skip_broken=skip_broken)


def _of_files(train: Path, val: Path | None, size: int, *, skip_broken: bool) -> ImageClasses:
    data = ImageFiles(train, to_train(size), skip_broken=skip_broken)
    test = ImageFiles(val, to_test(size), skip_broken=skip_broken) if val else None
    if test and (odd := sorted(set(data.classes) ^ set(test.classes))):
        here, there = (train, val) if odd[0] in data.classes else (val, train)
        raise ConfigError(
            f"class {odd[0]} is in {here} but not in {there}: both must have the same directories, because "
            "the number of a class is its position among them"
        )
    return ImageClasses(data, test, len(data.classes))


def _of_shards(train: Path, val: Path | None, size: int, *, skip_broken: bool) -> ImageClasses:
    data = ImageShards(train, to_train(size), skip_broken=skip_broken)
    test = ImageShards(val, to_test(size), skip_broken=skip_broken) if val else None
    if test and test.classes > data.classes:
        raise ConfigError(f"{val} has class {test.classes - 1}, but the classes in {train} end at {data.classes - 1}")
    return ImageClasses(data, test, data.classes)
