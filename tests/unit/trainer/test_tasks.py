"""Tasks: the workloads that come along, and one's own."""

from pathlib import Path

import pytest
from ddpjob_examples.handwriting import load
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import TrainConfig


def test_files_that_are_not_mnist_are_told_with_those_that_are_needed(tmp_path: Path) -> None:
    (raw := tmp_path / "MNIST" / "raw").mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte").write_bytes(b"<html>")
    with pytest.raises(
        ConfigError, match=rf"^--data-dir {tmp_path} has no readable MNIST: .* \(they hold something else"
    ):
        load(TrainConfig(data="mnist", data_dir=tmp_path))
