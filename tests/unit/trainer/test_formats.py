"""Checkpoints of each format: written by the version that introduced it, and read by this one."""

import datetime as dt
import shutil
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.encoding import StateDict, decode
from ddpjob.checkpoint.reading import Found
from ddpjob.checkpoint.shard_fitting import fitted
from ddpjob_rank.manifests.manifest import READ

FORMATS = Path(__file__).with_name("formats")
REPLICATED = [str(format_) for format_ in READ]
SHARDED = [str(format_) + "-sharded" for format_ in READ if format_ > 1]


def found_in(directory: Path, name: str) -> Found[StateDict]:
    shutil.copytree(FORMATS / name, directory / name)
    found = CheckpointDirectory(directory / name, keep=3).newest(decode)
    assert found
    return found


@pytest.mark.parametrize("name", REPLICATED)
def test_a_checkpoint_of_each_format_is_read(tmp_path: Path, name: str) -> None:
    found = found_in(tmp_path, name)
    assert (found.manifest.format, found.manifest.step) == (int(name), 3)
    assert found.state["position"] == (3, 1, 90)
    assert found.state["shared"].keys() >= {"model", "optimizer"}
    assert [own.keys() >= {"random"} for own in found.state["ranks"]] == [True]


@pytest.mark.parametrize("name", SHARDED)
def test_one_that_two_ranks_have_written_is_read_with_its_plain_values(tmp_path: Path, name: str) -> None:
    found = found_in(tmp_path, name)
    assert (found.manifest.format, len(found.state["ranks"])) == (int(name.partition("-")[0]), 2)
    state = fitted(found.state, Path(found.location), dict.fromkeys(found.state["shared"]))
    assert torch.equal(state["model"]["weight"], torch.arange(12.0).view(3, 4))
    assert torch.equal(state["optimizer"]["state"][0]["step"], torch.tensor(3.0))
    notes = state["notes"]
    assert notes.pop("mean").tolist() == np.arange(3).tolist()
    assert notes == {"at": dt.datetime(2026, 11, 29, 12), "path": Path("a/b"), "last": deque([1, 2])}  # noqa: DTZ001


def test_there_is_a_checkpoint_of_each_format_that_is_read() -> None:
    assert sorted(path.name for path in FORMATS.iterdir()) == sorted([*REPLICATED, *SHARDED])
