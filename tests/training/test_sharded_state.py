"""State that is divided among ranks: saved by all of them, and restored on any number of ranks."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddpjob.checkpoint import shard_files as shards
from ddpjob.checkpoint.divided import state_of
from ddpjob.checkpoint.weights import export
from ddpjob.training.checkpoints import Checkpoints
from ddpjob.training.training import Training
from ddpjob_rank.errors import ConfigError, DivergedError, TrainerError
from ddpjob_rank.manifests.manifest import Manifest, checkpoints_in
from ddpjob_rank.world import World
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel

from tests.training import dividing
from tests.training.dividing import Things, everything, on_ranks, resume, save, saver, step, train
from tests.unit.trainer.test_sharded_state import alone, same


@pytest.mark.parametrize(
    ("before", "ranks_before", "after", "ranks_after"),
    [
        (dividing.fsdp, 4, dividing.fsdp, 2),
        (dividing.fsdp, 2, dividing.replicated, 1),
        (dividing.replicated, 1, dividing.fsdp, 2),
        (dividing.zero, 2, dividing.zero, 3),
        (dividing.two_models, 2, dividing.two_models, 2),
        (dividing.factored, 2, dividing.factored, 2),
        (dividing.tensor_parallel, 4, dividing.tensor_parallel, 4),
        (dividing.both, 4, dividing.both, 4),
        (dividing.hybrid, 4, dividing.fsdp, 2),
    ],
)
def test_training_resumes_with_the_same_bits_however_its_state_is_divided(
    tmp_path: Path, before: Any, ranks_before: int, after: Any, ranks_after: int
) -> None:
    undisturbed, *_ = on_ranks(ranks_before, tmp_path, train, before, 5, 3)
    resumed, *_ = on_ranks(ranks_after, tmp_path, train, after, 5, 0)
    assert not isinstance(undisturbed, str), undisturbed
    assert not isinstance(resumed, str), resumed
    assert all(undisturbed.values())
    assert same(resumed, undisturbed)
    assert not list(tmp_path.glob(".step*"))


def test_weights_are_exported_for_everybody(tmp_path: Path) -> None:
    from safetensors.torch import load_file  # noqa: PLC0415

    things, output = alone(tmp_path), tmp_path / "weights.safetensors"
    (tmp_path / "torch.py").write_text("raise SystemExit('this is not torch')")
    ddpjob = [str(Path(sys.executable).with_name("ddpjob")), "export", str(tmp_path), "-o", str(output)]
    done = subprocess.run(ddpjob, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith(f"exported step=1 checkpoint={tmp_path}/step-00000001 tensors=9 file={output}")
    assert same(load_file(output), dict(things["model"].state_dict()))
    assert output.stat().st_mode == (tmp_path / "torch.py").stat().st_mode
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/step-00000001 has no ema: it has model, optimizer$"):
        export(tmp_path, output, "ema")


def test_a_model_of_other_sizes_is_refused_with_the_first_three(tmp_path: Path) -> None:
    told = (
        f"ConfigError: checkpoint {tmp_path}/step-00000001 does not fit: model.0.weight ([10, 6] in the checkpoint, "
        "[12, 6] now), model.0.bias ([10] in the checkpoint, [12] now), model.2.weight ([10] in the checkpoint, [12] "
        "now), …"
    )
    assert on_ranks(2, tmp_path, other_sizes) == [told, told]


def other_sizes(directory: Path, world: World) -> None:
    things = dividing.fsdp(world)
    mine = saver(directory, world, things)
    save(mine, things, 1, world.rank)
    mine.finished(wait=True)
    resume(mine, directory, world, dividing.fsdp(world, 12))


def test_nodes_that_do_not_share_the_directory_are_refused_at_the_start(tmp_path: Path) -> None:
    for node in ("a", "b"):
        (tmp_path / node).mkdir()
    told = on_ranks(3, tmp_path, unshared)
    assert told[0] == (
        f"ConfigError: these ranks cannot write to the directory that rank 0 has made in {tmp_path}/a: rank 1 (No "
        "such file or directory), rank 2 (No such file or directory). State that is divided among ranks is written "
        "by all of them, so all nodes need the same directory: in a pod, a volume with the access mode ReadWriteMany"
    )
    assert all("ConfigError" in one for one in told)
    assert not list(tmp_path.glob("*/.step*"))


def unshared(directory: Path, world: World) -> None:
    saver(directory / ("b" if world.rank else "a"), world, {})


def test_a_save_that_fails_on_one_rank_fails_on_all_and_the_next_one_succeeds(tmp_path: Path) -> None:
    told = on_ranks(3, tmp_path, failing)
    for full, not_plain, differing, apart, path in told:
        assert full == (
            "StorageFullError: rank 1: its part of the checkpoint could not be saved: No space left on device; free "
            "some space, or name another directory"
        )
        assert not_plain.startswith("CheckpointMissedError: rank 1: the state cannot be saved: ['own'] is of type ")
        assert differing.startswith(
            "ConfigError: the state cannot be saved: rank 1 and rank 0 have tensors of different "
        )
        assert apart == "PeerLostError: rank 1 is at another step than rank 0, so this step is not saved"
        assert path == f"{tmp_path}/step-00000005"
    assert [path.name for path in tmp_path.glob("*step*")] == ["step-00000005"]


def failing(directory: Path, world: World) -> list[str]:
    things = dividing.fsdp(world)
    mine, write = saver(directory, world, things), shards.write
    told = []
    for number in range(1, 6):
        state = {name: state_of(thing) for name, thing in things.items()}
        own: Any = None
        if world.rank == 1:
            shards.write = full_disk if number == 1 else write  # type: ignore[assignment]
            own = object() if number == 2 else None
            if number == 3:
                state["model"]["another"] = torch.ones(1)
        position = 2 * number + (world.rank == 1 and number == 4)
        mine.begin(Manifest(number, 0, 0, 1, 1, "uid", (1,)), state, own, position)
        try:
            written = mine.finished(wait=True)
            assert written
            told.append(written.location)
        except TrainerError as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


@pytest.mark.parametrize("ignored", [False, True])
def test_a_part_that_is_not_finite_on_one_rank_is_saved_by_none(tmp_path: Path, *, ignored: bool) -> None:
    told = on_ranks(2, tmp_path, diverging, ignored)
    for build, each in zip(BREAKING, zip(*told, strict=True), strict=True):
        where = "rank 1: " if build != "ZeroRedundancyOptimizer" else ""
        problem = (
            f"{where}training has diverged: these parameters of {BREAKING[build][0]} are not finite numbers: 0.weight"
        )
        assert each == (("", "") if ignored else (problem, problem))
        assert [path.name for path in (tmp_path / build).iterdir()] == ["step-00000001"]


def in_a_dict(world: World) -> tuple[Things, nn.Module]:
    models = {name: dividing.fsdp(world)["model"] for name in ("g", "d")}
    return {"model": models}, models["d"]


def averaged(world: World) -> tuple[Things, nn.Module]:
    average = AveragedModel(dividing.a_model()).requires_grad_(False)
    fully_shard(average.module)
    return dividing.fsdp(world) | {"ema": average}, average


def compiled(world: World) -> tuple[Things, nn.Module]:
    model = dividing.fsdp(world)["model"]
    return {"model": torch.compile(model, backend="eager")}, model


def with_zero(world: World) -> tuple[Things, nn.Module]:
    things = dividing.zero(world)
    return things, things["model"]


BREAKING: dict[str, tuple[str, Callable[[World], tuple[Things, nn.Module]]]] = {
    "a dict": ("model.d", in_a_dict),
    "an average": ("ema", averaged),
    "torch.compile": ("model", compiled),
    "ZeroRedundancyOptimizer": ("model", with_zero),
}
"""For each training, the name of the model that will not be finite, and what makes the objects and that model."""


def diverging(directory: Path, world: World, ignored: bool) -> list[str]:  # noqa: FBT001  (a value, not an option)
    return [outcome(directory / name, world, *build(world), ignored=ignored) for name, (_, build) in BREAKING.items()]


def outcome(directory: Path, world: World, things: Things, broken: nn.Module, *, ignored: bool) -> str:
    """Makes four steps, each with a save. From the second one on, a weight of rank 1 is NaN."""
    training = Training(
        loader=range(4), directory=directory, every_steps=1, on_nonfinite="ignore" if ignored else "stop", **things
    )
    weight = next(broken.parameters()).detach()
    try:
        for _ in training.epochs(1):
            for number in training.batches():
                if number == 1 and (world.rank or not isinstance(weight, DTensor)):
                    shards.local(weight)[0, 0] = float("nan")
                training.step()
    except DivergedError as error:
        return str(error).replace("module.", "")
    return ""


def test_state_that_was_replicated_can_be_divided_but_not_the_reverse(tmp_path: Path) -> None:
    refused = (
        "the state in the checkpoint is divided among ranks, but the state of this training is not: divide it, too, "
        "for example by fully_shard, or write the weights into a file with ddpjob export"
    )
    expected = ["", f"{tmp_path}/step-00000001", refused]
    assert on_ranks(2, tmp_path, redivided) == [expected, expected]


def redivided(directory: Path, world: World) -> list[str]:
    """Three trainings, each of which adds a step to the one before."""
    told, undisturbed = [], dividing.replicated(world)
    for number, build in enumerate((dividing.replicated, dividing.fsdp, dividing.replicated), 1):
        things = build(world)
        checkpoints = Checkpoints(**things, directory=directory, every_steps=1)
        try:
            resumed = checkpoints.resume()
        except ConfigError as error:
            told.append(str(error))
            break
        told.append(resumed.path if resumed else "")
        if resumed:
            assert same(everything(things), everything(undisturbed))
        step(things, number)
        step(undisturbed, number)
        checkpoints.save_if_due(number)
        checkpoints.finish()
    return told


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_training_goes_on_while_others_have_not_come_to_the_save(tmp_path: Path) -> None:
    assert on_ranks(2, tmp_path, at_different_times) == [True, True]


def at_different_times(directory: Path, world: World) -> bool:
    """Rank 1 comes to the save only after a collective of the script's group, for which rank 0 must train on."""
    things = dividing.fsdp(world)
    mine = saver(directory, world, things)
    if world.leads:
        save(mine, things, 1, 0)
        unfinished = mine.finished(wait=False) is None
    dist.barrier()
    if not world.leads:
        save(mine, things, 1, 1)
        unfinished = True
    written = mine.finished(wait=True)
    return unfinished and bool(written) and mine.finished(wait=True) is None


@pytest.mark.parametrize("victim", [0, 1])
def test_after_a_kill_in_the_middle_of_a_save_the_one_before_is_resumed(tmp_path: Path, victim: int) -> None:
    told = on_ranks(2, tmp_path, killed, victim)
    assert told[1 - victim].startswith("PeerLostError: a rank was lost before its part of a checkpoint was durable: ")
    assert [path.name for path in checkpoints_in(tmp_path)] == ["step-00000001"]
    assert on_ranks(2, tmp_path, resumed_step) == [1, 1]
    assert not list(tmp_path.glob(".step*")), "the leftovers of the killed are removed"


def killed(directory: Path, world: World, victim: int) -> None:
    things = dividing.fsdp(world)
    mine = saver(directory, world, things)
    save(mine, things, 1, world.rank)
    assert mine.finished(wait=True)
    if world.rank == victim:
        if victim == 0:  # When all have written, before there is a manifest.
            shards.write_metadata = die
        else:
            shards.write = die  # type: ignore[assignment]
    save(mine, things, 2, world.rank)
    mine.finished(wait=True)


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def resumed_step(directory: Path, world: World) -> int:
    things = dividing.fsdp(world)
    return resume(saver(directory, world, things), directory, world, things)
