"""Tasks: the workloads that come along, and one's own."""

import fcntl
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from ddpjob_examples.handwriting import _one_at_a_time, load
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


def test_mnist_is_read_from_its_files_those_to_train_on_and_those_held_out(tmp_path: Path) -> None:
    (raw := tmp_path / "MNIST" / "raw").mkdir(parents=True)
    for name, labels in (("train", bytes([3, 1, 4])), ("t10k", bytes([5]))):
        images = struct.pack(">4B3I", 0, 0, 8, 3, len(labels), 28, 28) + bytes(28 * 28 * len(labels))
        (raw / f"{name}-images-idx3-ubyte").write_bytes(images)
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + labels)
    data = load(TrainConfig(data="mnist", data_dir=tmp_path))
    assert [part.tensors[0].shape for part in (data.train, data.test)] == [(3, 1, 28, 28), (1, 1, 28, 28)]
    assert [part.tensors[1].tolist() for part in (data.train, data.test)] == [[3, 1, 4], [5]]
    assert data.side == 28


def test_of_processes_that_download_at_once_one_does_and_the_others_wait(tmp_path: Path) -> None:
    config = TrainConfig(data="mnist", data_dir=tmp_path / "new" / "data", download=True)

    def is_locked() -> bool:
        with (tmp_path / "new" / "data" / ".download-lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    for _ in range(2):  # The directory may be there.
        with _one_at_a_time(config):
            assert is_locked()
        assert not is_locked()
    with _one_at_a_time(replace(config, download=False)):
        assert not is_locked()
    with _one_at_a_time(replace(config, data_dir=None)):
        pass
