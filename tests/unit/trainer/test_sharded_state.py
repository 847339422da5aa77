"""State that is divided among ranks: saved by all of them, and restored on any number of ranks."""

import errno
import json
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ddpjob.checkpoint import shard_files, shard_fitting, sharded
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.divided import HeldState, Parts, is_divided, state_of
from ddpjob.checkpoint.encoding import SHARED, TENSORS, decode
from ddpjob.checkpoint.plain_values import plain
from ddpjob.checkpoint.reading import FILES, STATE, find_newest
from ddpjob.checkpoint.shard_files import Placed
from ddpjob.checkpoint.shard_fitting import fitted
from ddpjob.checkpoint.sharded import ShardedSaver
from ddpjob_rank.errors import (
    CheckpointMissedError,
    CheckpointUnusableError,
    ConfigError,
    DivergedError,
    PeerLostError,
    StorageError,
    StorageFullError,
    TrainerError,
)
from ddpjob_rank.manifests.manifest import MANIFEST, Manifest, checkpoints_in
from ddpjob_rank.manifests.unusable import UnusableError
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

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


class Together:
    """The messages of two ranks that are threads; `lost` comes to pass instead of the message of that number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lost: int | None = None) -> None:
        self._meeting = threading.Barrier(2, timeout=60)
        self._said: dict[int, Any] = {}
        self._left = dict.fromkeys(range(2), lost)
        monkeypatch.setattr(sharded, "all_gather", self.all_gather)
        monkeypatch.setattr(sharded, "gather", self.gather)

    def all_gather(self, said: Any, world: World, _: object) -> list[Any]:
        if (left := self._left[world.rank]) is not None:
            if not left:
                raise RuntimeError("Connection closed by peer")
            self._left[world.rank] = left - 1
        self._said[world.rank] = said
        self._meeting.wait()
        found = [self._said[rank] for rank in range(2)]
        self._meeting.wait()
        return found

    def gather(self, said: Any, world: World, group: object) -> list[Any]:
        found = self.all_gather(said, world, group)
        return found if world.leads else []

    def save(
        self, directory: Path, states: list[dict[str, Any]], check: Callable[[Any], object], *own: Any
    ) -> list[Any]:
        """What each rank's save comes to: a path, or an error."""

        def of_rank(rank: int) -> Any:
            world = World(rank=rank, world_size=2)
            try:
                files = CheckpointDirectory(directory, 2) if world.leads else None
                mine = ShardedSaver(directory, files, world, {"model", "optimizer"}, check_finite=check)
                mine.begin(Manifest(7, 0, 0, 2, 2, "uid", (1,)), states[rank], [*own, rank], 7)
                done = mine.finished(wait=True)
            except TrainerError as error:
                return error
            else:
                return done and done.location

        with ThreadPoolExecutor(2) as ranks:
            return list(ranks.map(of_rank, range(2)))


DIFFERENT = "the state cannot be saved: rank 1 and rank 0 have tensors of different names, types or sizes."


def a_state(rank: int, **more: Any) -> dict[str, Any]:
    """What both ranks have, and a part of the optimizer's state that only this one has."""
    held = HeldState({rank: {"mean": torch.full((2,), float(rank))}})
    model = {"w": torch.ones(3), "b": torch.zeros(1), **more}
    return {"model": model, "optimizer": {"state": held, "param_groups": [{"lr": 0.5}]}, "epoch": 4}


def test_what_ranks_hold_together_is_one_checkpoint_and_each_has_its_own_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    paths = Together(monkeypatch).save(tmp_path, [a_state(0), a_state(1)], checked.append, "own of")
    assert paths == [str(tmp_path / "step-00000007")] * 2
    assert sorted(path.name for path in (tmp_path / "step-00000007").glob("*.distcp")) == [
        "__0_0.distcp",
        "__1_0.distcp",
    ]
    found = find_newest(lambda: checkpoints_in(tmp_path), decode, reader=FILES).found
    assert found
    assert found.state["ranks"] == [["own of", 0], ["own of", 1]]
    assert found.state[SHARED]["epoch"] == 4
    state = fitted(found.state, Path(found.location), {"model": None, "optimizer": None})
    assert same(state["model"], {"w": torch.ones(3), "b": torch.zeros(1)})
    means = {0: {"mean": torch.zeros(2)}, 1: {"mean": torch.ones(2)}}
    assert same(state["optimizer"], {"state": means, "param_groups": [{"lr": 0.5}]})
    both = sorted(checked, key=lambda parts: "epoch" not in parts)
    assert [sorted(parts["model"]) for parts in both] == [["b", "w"], []], "each checks what it writes"
    assert [sorted(parts["optimizer"]) for parts in both] == [["state.0.mean"], ["state.1.mean"]]


@pytest.mark.parametrize(
    ("of_rank_1", "fails", "kind", "said"),
    [
        (
            {"w": torch.ones(4)},
            False,
            ConfigError,
            DIFFERENT,
        ),
        (
            {"w": torch.ones(3).half()},
            False,
            ConfigError,
            DIFFERENT,
        ),
        (
            {"v": torch.ones(1)},
            False,
            ConfigError,
            DIFFERENT,
        ),
        ({}, True, DivergedError, "rank 1: a parameter is not finite"),
    ],
)
def test_a_save_that_fails_on_one_rank_fails_on_all_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_rank_1: dict[str, Tensor],
    kind: type[Exception],
    said: str,
    *,
    fails: bool,
) -> None:
    def check(state: Any) -> None:
        if fails and "state.1.mean" in state["optimizer"]:
            raise DivergedError("a parameter is not finite")

    ends = Together(monkeypatch).save(tmp_path, [a_state(0), a_state(1, **of_rank_1)], check)
    assert type(ends[0]) is kind
    assert str(ends[0]).startswith(said)
    if not fails:  # Otherwise rank 1 learns it from rank 0.
        assert type(ends[1]) is kind
    assert isinstance(ends[1], TrainerError)
    assert [*tmp_path.iterdir()] == []


def test_a_state_that_cannot_be_taken_on_one_rank_is_saved_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Together(monkeypatch).save(tmp_path, [a_state(0), a_state(1)], lambda _: None, object())
    assert [type(end) for end in ends] == [CheckpointMissedError] * 2
    assert all(str(end).startswith("the state cannot be saved: ") for end in ends)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("message", [1, 2, 3])
def test_a_rank_that_is_lost_in_a_save_is_no_error_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: int
) -> None:
    """The ranks have compared their directories before."""
    ends = Together(monkeypatch, lost=1 + message).save(tmp_path, [a_state(0), a_state(1)], lambda _: None)
    assert [type(end) for end in ends] == [PeerLostError] * 2
    assert {str(end) for end in ends} == {
        "a rank was lost before its part of a checkpoint was durable: Connection closed by peer"
    }


def test_nodes_that_do_not_share_the_directory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Together(monkeypatch)

    def opened(rank: int) -> Any:
        world = World(rank=rank, world_size=2)
        try:
            ShardedSaver(
                tmp_path / str(rank), CheckpointDirectory(tmp_path / "0", 2) if world.leads else None, world, []
            )
        except ConfigError as error:
            return str(error)

    with ThreadPoolExecutor(2) as ranks:
        said = list(ranks.map(opened, range(2)))
    assert [text.partition(" in ")[0] for text in said] == [
        "these ranks cannot write to the directory that rank 0 has made"
    ] * 2
    assert all("rank 1 (No such file or directory)" in text and "rank 0 (" not in text for text in said)


def test_tensors_of_the_same_name_are_kept_apart_and_parts_of_a_sum_are_refused() -> None:
    parts = Parts(leads=True)
    split = parts.split({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}, "c": [torch.ones(2), "word"]}, ("m",))
    assert [split["a.b"].name, split["a"]["b"].name, split["c"][0].name] == ["m.a.b", "m.a.b_", "m.c.0"]
    assert split["c"][1] == "word"
    assert {name: tensor.tolist() for name, tensor in parts.ours.items()} == {
        "m.a.b": [0.0],
        "m.a.b_": [1.0],
        "m.c.0": [1.0, 1.0],
    }
    assert not Parts(leads=False).split({}, ())
    follower = Parts(leads=False)
    follower.split({"a": torch.zeros(1)}, ())
    assert (follower.ours, list(follower.tensors)) == ({}, ["a"])


@pytest.mark.usefixtures("alone_in_a_group")
def test_a_sum_whose_parts_the_ranks_hold_is_refused() -> None:
    mesh = init_device_mesh("cpu", (1,))
    partial_ = DTensor.from_local(torch.ones(1), mesh, [Partial()])
    with pytest.raises(ConfigError, match=r"^m\.w is a DTensor with the placement Partial"):
        Parts(leads=True).split({"w": partial_}, ("m",))


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize("now_divided", [True, False])
@pytest.mark.parametrize("was_divided", [True, False])
def test_a_state_fits_what_is_divided_now_however_it_was_saved(
    tmp_path: Path, *, was_divided: bool, now_divided: bool
) -> None:
    def made(*, divided: bool) -> Things:
        model = dividing.a_model()
        if divided:
            fully_shard(model)
        things = {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.1)}
        assert [is_divided(name, thing) for name, thing in things.items()] == [divided] * 2
        return things

    saved, present = made(divided=was_divided), made(divided=now_divided)
    step(saved, 1)
    mine = ShardedSaver(tmp_path, CheckpointDirectory(tmp_path, 2), World(), saved if was_divided else [])
    save(mine, saved, 1, 0)
    assert mine.finished(wait=True)
    found = find_newest(lambda: checkpoints_in(tmp_path), decode, reader=FILES).found
    assert found
    state = fitted(found.state, Path(found.location), {**present, "new": None})
    assert state.keys() == present.keys(), "it was not there yet"
    for name, thing in present.items():
        thing.load_state_dict(state[name])
    assert same(dividing.everything(present), dividing.everything(saved))
    weight = state["optimizer"]["state"][0]["exp_avg"]
    assert isinstance(weight, DTensor) is now_divided


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize("size", [4, 6])
def test_a_tensor_is_divided_as_that_of_now_if_it_has_its_size(size: int) -> None:
    mesh = init_device_mesh("cpu", (1,))
    like = distribute_tensor(torch.zeros(4), mesh, [Shard(0)])
    made = shard_fitting._divided(torch.arange(float(size)), like)
    assert isinstance(made, DTensor) is (size == 4)
    whole = made.full_tensor() if isinstance(made, DTensor) else made
    assert whole.tolist() == list(range(size))
    for divided in (True, False):
        placed = Placed(torch.float16, (size,), divided, ())
        found = shard_fitting._Fitting._place(placed, shard_fitting._Like(like))
        assert (tuple(found.shape), found.dtype) == ((size,), torch.float16)
        assert isinstance(found, DTensor) is (size == 4 or divided)
        if isinstance(found, DTensor):
            assert list(found.placements) == ([Shard(0)] if size == 4 else [Replicate()])
    assert shard_fitting._Fitting._place(Placed(torch.float32, (4,), True, ()), like).data_ptr() == like.data_ptr()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ([torch.float32, [4], True, [[[0], [4], "f", 0, 9]]], None),
        ([torch.float32, [4], True, [[[0], [2], "f", 0, 9], [[2], [2], "f", 9, 9]]], None),
        ([torch.float32, [4], True, [[[0], [3], "f", 0, 9]]], "its parts do not add up to the size [4]"),
        (
            [torch.float32, [4], True, [[[1], [4], "f", 0, 9]]],
            "its part of size [4] at [1] does not fit into its size",
        ),
        ([torch.float32, [4], True, [[[0, 0], [4, 1], "f", 0, 9]]], "its part of size [4, 1] at [0, 0] does not fit"),
        ([torch.float32, [-4], True, []], "[-4] are not sizes"),
        ([torch.float32, [True], True, []], "[True] are not sizes"),
        (["torch.float32", [4], True, []], "'torch.float32' is not a dtype"),
        ([torch.float32, [4], True, [[[0], [4], "f", -1, 9]]], "(-1, 9) are not sizes"),
    ],
)
def test_the_parts_of_a_tensor_make_up_the_whole(form: Any, said: str | None) -> None:
    if said is None:
        Placed.of(form).check()
        assert Placed.of(form).form() == form
        return
    with pytest.raises((ValueError, TypeError)) as refused:
        Placed.of(form).check()
    assert str(refused.value).startswith(said)


def test_tensors_that_no_rank_holds_whole_or_that_have_other_sizes_are_told(tmp_path: Path) -> None:
    half = {"w": [torch.float32, [4], True, [[[0], [2], "f", 0, 9]]]}
    other = {"w": [torch.float32, [4], True, [[[2], [2], "g", 0, 9]]]}
    whole = shard_files.merged([half, other, half])
    assert [file for *_, file, _, _ in whole["w"].parts] == ["f", "g"]
    with pytest.raises(ConfigError, match=r"^w cannot be saved, because the ranks together do not hold the whole"):
        shard_files.merged([half, half])
    with pytest.raises(ConfigError, match=r"does not fit: w \(\[4\] in the checkpoint, \[5\] now\)$"):
        shard_files.read(tmp_path, whole, {"w": torch.zeros(5)})


def test_the_state_of_a_thing_that_is_not_divided_by_an_optimizer_is_its_own() -> None:
    model = nn.Linear(1, 1)
    assert same(dict(state_of(model)), dict(model.state_dict()))
