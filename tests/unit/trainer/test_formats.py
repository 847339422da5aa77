"""Checkpoints of each format: written by the version that introduced it, and read by this one."""

import shutil
from pathlib import Path

import pytest
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.encoding import decode
from ddpjob_rank.manifests.manifest import READ

FORMATS = Path(__file__).with_name("formats")


@pytest.mark.parametrize("format_", READ)
def test_a_checkpoint_of_each_format_is_read(tmp_path: Path, format_: int) -> None:
    shutil.copytree(FORMATS / str(format_), tmp_path / "saved")
    found = CheckpointDirectory(tmp_path / "saved", keep=3).newest(decode)
    assert found
    assert (found.manifest.format, found.manifest.step) == (format_, 3)
    assert found.state["position"] == (3, 1, 90)
    assert found.state["shared"].keys() >= {"model", "optimizer"}
    assert [own.keys() >= {"random"} for own in found.state["ranks"]] == [True]


def test_there_is_a_checkpoint_of_each_format_that_is_read() -> None:
    assert sorted(int(path.name) for path in FORMATS.iterdir()) == sorted(READ)
