"""State that is divided among ranks: saved by all of them, and restored on any number of ranks."""

import errno
import json
import os
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ddpjob.checkpoint import sharded
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.divided import is_divided
from ddpjob.checkpoint.encoding import SHARED, TENSORS, decode
from ddpjob.checkpoint.plain_values import plain
from ddpjob.checkpoint.reading import FILES, STATE, find_newest
from ddpjob.checkpoint.shard_fitting import fitted
from ddpjob.checkpoint.sharded import ShardedSaver
from ddpjob_rank.errors import CheckpointUnusableError, ConfigError, StorageError, StorageFullError, TrainerError
from ddpjob_rank.manifests.manifest import MANIFEST, checkpoints_in
from ddpjob_rank.manifests.unusable import UnusableError
from ddpjob_rank.world import World
from torch import nn

from tests.training import dividing
from tests.training.dividing import Things, save, step


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return all(map(same, left, right)) if isinstance(left, list) else bool(left == right)


def alone(directory: Path, steps: int = 1) -> Things:
    """A training in this process, which has saved its last two steps as those save whose state is divided."""
    things, files = dividing.replicated(World()), CheckpointDirectory(directory, 2)
    mine = ShardedSaver(directory, files, World(), things)
    for number in range(1, steps + 1):
        step(things, number)
        save(mine, things, number, 0)
        assert mine.finished(wait=True)
    return things


def loaded(directory: Path) -> Any:
    """The state of the newest checkpoint that can be used, and its path."""
    found = find_newest(lambda: checkpoints_in(directory), decode, reader=FILES).found
    assert found
    return Path(found.location), fitted(found.state, Path(found.location), dividing.replicated(World()))


class Runs:
    """Unpickling it runs a command."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._mark}",)


def rewrite(checkpoint: Path, change: Callable[[Any], None]) -> None:
    """Changes the state and the files as somebody who can write to the directory does: the manifest agrees."""
    state = decode(checkpoint / STATE)
    change(state)
    torch.save(plain(state), checkpoint / STATE)
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    for entry, file in [(manifest, STATE), *((shard, shard["name"]) for shard in manifest["shards"])]:
        content = (checkpoint / file).read_bytes()
        entry |= {"size": len(content), "sha256": sha256(content).hexdigest()}
    (checkpoint / MANIFEST).write_text(json.dumps(manifest))


def test_what_is_crafted_to_run_code_runs_none(tmp_path: Path) -> None:
    alone(tmp_path)
    checkpoint, mark = tmp_path / "step-00000001", tmp_path / "it-ran"
    (checkpoint / ".metadata").write_bytes(pickle.dumps(Runs(mark)))
    _, state = loaded(tmp_path)
    assert state["model"]["0.weight"].shape == (10, 6)
    assert not mark.exists()
    pickle.loads((checkpoint / ".metadata").read_bytes())
    assert mark.exists(), "it would have run"


@pytest.mark.parametrize(
    "kind", ["a tensor's file", "an item of bytes", "a place outside", "a foreign file", "too much"]
)
def test_what_is_crafted_gets_one_clear_error(tmp_path: Path, kind: str) -> None:
    alone(tmp_path)
    checkpoint, mark = tmp_path / "step-00000001", tmp_path / "it-ran"
    (file,) = checkpoint.glob("*.distcp")

    def change(state: Any) -> None:
        form = state[TENSORS]["model.0.weight"]
        part = form[3][0]
        if kind == "a tensor's file":
            torch.save(Runs(mark), file)
            state[TENSORS] = {
                "model.0.weight": [torch.float32, [1], False, [[[0], [1], file.name, 0, file.stat().st_size]]]
            }
            state[SHARED]["model"] = {"0.weight": state[SHARED]["model"]["0.weight"]}
            state[SHARED]["optimizer"] = {}
        elif kind == "an item of bytes":
            torch.save(Runs(mark), file)
            state[TENSORS]["model.0.weight"] = ["bytes", file.name, 0, file.stat().st_size]
        elif kind == "a place outside":
            part[3] = 10**12
        elif kind == "a foreign file":
            part[2] = "../../../etc/passwd"
        else:
            form[1] = part[1] = [10**6, 10**6]

    rewrite(checkpoint, change)
    found = find_newest(lambda: checkpoints_in(tmp_path), decode, reader=FILES).found
    assert found
    what = "its tensors cannot be read" if kind == "a tensor's file" else "its list of tensors is damaged"
    with pytest.raises(
        CheckpointUnusableError, match=rf"^checkpoint {found.location} cannot be used: {what} "
    ) as error:
        fitted(found.state, Path(found.location), {"model": None, "optimizer": None})
    assert "\n" not in str(error.value)
    assert not mark.exists()


def test_a_shard_that_is_damaged_or_missing_makes_its_checkpoint_broken(tmp_path: Path) -> None:
    alone(tmp_path, 2)
    newest = tmp_path / "step-00000002"
    (file,) = newest.glob("*.distcp")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    search = find_newest(lambda: checkpoints_in(tmp_path), decode, reader=FILES)
    assert str(search.passed_over[newest]) == f"the checksum of {file.name} differs from its manifest's"
    assert search.found
    assert search.found.manifest.step == 1
    file.unlink()
    assert (
        str(find_newest(lambda: checkpoints_in(tmp_path), decode, reader=FILES).passed_over[newest])
        == f"it has no {file.name}"
    )


def test_old_checkpoints_are_removed_with_all_their_files(tmp_path: Path) -> None:
    alone(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_others_load_the_tensors_with_dcp(tmp_path: Path) -> None:
    things = alone(tmp_path)
    there = {"model": nn.Module.state_dict(dividing.a_model())}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(there, checkpoint_id=tmp_path / "step-00000001")
    assert same(there["model"], dict(things["model"].state_dict()))


def test_fully_sharded_data_parallel_is_refused_by_name() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: PLC0415

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
            nn.Module.__init__(self.inner)

    with pytest.raises(ConfigError, match=r"^model\.g is wrapped by FullyShardedDataParallel, .* use .*fully_shard$"):
        is_divided("model.g", Wrapped())


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OSError(errno.ENOSPC, "full"), StorageFullError, "its part of the checkpoint could not be saved: full; "),
        (OSError(errno.EIO, "broken"), StorageError, "its part of the checkpoint could not be saved: broken; "),
        (UnusableError("torn"), StorageError, "its part of the checkpoint was written, but is not intact: torn"),
        (ConfigError("no"), ConfigError, "no"),
        (ValueError("odd"), TrainerError, "ValueError: odd"),
    ],
)
def test_what_failed_on_one_rank_is_raised_on_all_as_what_it_was(
    error: Exception, kind: type[Exception], said: str
) -> None:
    told = sharded._told(error)
    for problems, who in (([told], ""), ([None, None, told, ("ConfigError", "later")], "rank 2: ")):
        with pytest.raises(kind) as caught:
            sharded._raise_first(problems)
        assert type(caught.value) is kind
        assert str(caught.value).startswith(who + said)
    sharded._raise_first([None, None])
