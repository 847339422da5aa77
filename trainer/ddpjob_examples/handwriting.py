"""Images of handwritten digits: `digits`, which scikit-learn ships, and MNIST."""

import fcntl
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import TrainConfig
from torch import Tensor
from torch.utils.data import TensorDataset

CLASSES = 10
HELD_OUT_EVERY = 5
"""One in five digits of each class is held out."""
MNIST_MEAN, MNIST_DEVIATION = 0.1307, 0.3081
UNREADABLE = (RuntimeError, OSError, ValueError, AssertionError)
"""The exceptions that torchvision raises if files are missing or have other contents."""


@dataclass(frozen=True, slots=True)
class Handwriting:
    """One-channel images and their classes, for training and for testing."""

    train: TensorDataset
    test: TensorDataset
    side: int
    """Width and height of an image in pixels."""


def load(config: TrainConfig) -> Handwriting:
    """The data that `--data` names.

    Raises:
        ConfigError: The files of the data set are missing.
    """
    return _digits() if config.data == "digits" else _mnist(config)


def _digits() -> Handwriting:
    """1797 scans of 8 x 8 pixels: UCI's Optical Recognition of Handwritten Digits, as scikit-learn ships them.

    They are read directly from scikit-learn's file, because importing the package to call load_digits takes three
    seconds, which is longer than the training.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise ConfigError("--data digits comes with scikit-learn, which is not installed: pip install scikit-learn")
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    images, labels = (table[:, :-1] / 8.0 - 1.0).reshape(-1, 1, 8, 8), table[:, -1].long()
    held_out = _held_out(labels)
    return Handwriting(
        TensorDataset(images[~held_out], labels[~held_out]), TensorDataset(images[held_out], labels[held_out]), side=8
    )


def _held_out(labels: Tensor) -> Tensor:
    """A mask of the held-out samples: the same fraction of each class, and always the same samples."""
    held_out = torch.zeros_like(labels, dtype=torch.bool)
    for label in range(CLASSES):
        held_out[torch.nonzero(labels == label)[::HELD_OUT_EVERY]] = True
    return held_out


def _mnist(config: TrainConfig) -> Handwriting:
    if config.data_dir is None:
        raise ConfigError("--data mnist needs --data-dir, the directory of the files; --download puts them there")
    # Imported here, because the import takes seconds and `digits` does not need it.
    from torchvision.datasets import MNIST  # noqa: PLC0415

    try:
        with _one_at_a_time(config):
            parts = [MNIST(str(config.data_dir), train=train, download=config.download) for train in (True, False)]
    except UNREADABLE as error:
        raise ConfigError(_missing(config.data_dir, error)) from error
    train, test = (_normalised(part.data, part.targets) for part in parts)
    return Handwriting(train, test, side=28)


def _normalised(images: Tensor, labels: Tensor) -> TensorDataset:
    return TensorDataset(((images / 255.0 - MNIST_MEAN) / MNIST_DEVIATION).unsqueeze(1), labels)


@contextmanager
def _one_at_a_time(config: TrainConfig) -> Iterator[None]:
    """Locks the data directory, so that one process downloads the files and the others wait for them."""
    if not config.download or config.data_dir is None:
        yield
        return
    config.data_dir.mkdir(parents=True, exist_ok=True)
    with (config.data_dir / ".download-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _missing(directory: Path, error: Exception) -> str:
    return (
        f"--data-dir {directory} has no readable MNIST: {directory}/MNIST/raw must hold train-images-idx3-ubyte,"
        " train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte; --download fetches them"
        f" ({(str(error) or 'they hold something else').splitlines()[0]})"
    )
