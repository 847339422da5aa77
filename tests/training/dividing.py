"""Ranks whose state is divided among them: what they hold, how they train, and how they save and resume."""

import queue
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.divided import is_divided, state_of
from ddpjob.checkpoint.encoding import RANKS, decode
from ddpjob.checkpoint.reading import FILES, find_newest
from ddpjob.checkpoint.shard_fitting import fitted
from ddpjob.checkpoint.sharded import ShardedSaver
from ddpjob_rank.manifests.manifest import Manifest, checkpoints_in
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import Adam, Optimizer

from tests.support.waiting import wait_for
from tests.training.forking import FORKS

with warnings.catch_warnings(action="ignore"):  # Of torch 2.11.
    from torch.distributed.optim import ZeroRedundancyOptimizer

Things = dict[str, Any]


def a_model(width: int = 10) -> nn.Module:
    """Its tensors cannot be divided evenly among two or four ranks, and it has a buffer."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Linear(width, 3))


def replicated(_: World) -> Things:
    model = a_model()
    return {"model": model, "optimizer": Adam(model.parameters(), lr=0.1)}


def fsdp(_: World, width: int = 10) -> Things:
    model = a_model(width)
    for layer in (model[0], model[3], model):  # type: ignore[index]
        fully_shard(layer)
    return {"model": model, "optimizer": Adam(model.parameters(), lr=0.1)}


class Factored(Optimizer):
    """Its states have fewer dimensions than the parameters, as Adafactor's, which does not work on DTensors."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None and parameter.ndim > 1:
                rows = parameter.grad.square().mean(dim=1)
                state = self.state[parameter]
                state["rows"] = state["rows"].mul(0.5).add(rows, alpha=0.5) if state else rows
                parameter.sub_(parameter.grad / (state["rows"].unsqueeze(1) + 1), alpha=0.1)


def factored(world: World) -> Things:
    model = fsdp(world)["model"]
    return {"model": model, "optimizer": Factored(model.parameters())}


def tensor_parallel(world: World) -> Things:
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
    mesh = init_device_mesh("cpu", (2, world.world_size // 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return {"model": model, "optimizer": Adam(model.parameters(), lr=0.1)}


def both(world: World) -> Things:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    mesh = init_device_mesh("cpu", (2, world.world_size // 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    return {"model": model, "optimizer": Adam(model.parameters(), lr=0.1)}


def hybrid(world: World) -> Things:
    model = a_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (2, world.world_size // 2), mesh_dim_names=("copies", "shards")))
    return {"model": model, "optimizer": Adam(model.parameters(), lr=0.1)}


def zero(_: World) -> Things:
    model = a_model()
    return {"model": model, "optimizer": ZeroRedundancyOptimizer(model.parameters(), Adam, lr=0.1)}


def two_models(world: World) -> Things:
    first, second = fsdp(world), fsdp(world)
    return {f"{key}.{name}": each[key] for name, each in (("g", first), ("d", second)) for key in first}


def step(things: Things, number: int) -> None:
    """An optimizer step with the same samples on each rank, so that their number changes no bit."""
    for name, model in things.items():
        if name.startswith("model"):
            optimizer = things[name.replace("model", "optimizer")]
            torch.manual_seed(number)
            model(torch.randn(5, next(model.parameters()).shape[1])).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def whole(value: Any) -> Any:
    """A state with whole tensors, which all ranks put together."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [whole(item) for item in value]
    return (
        value.full_tensor().clone()
        if isinstance(value, DTensor)
        else (value.clone() if isinstance(value, Tensor) else value)
    )


def everything(things: Things) -> dict[str, Any]:
    """All of the things' states."""
    for optimizer in things.values():
        if isinstance(optimizer, ZeroRedundancyOptimizer):
            optimizer.consolidate_state_dict()
            if dist.get_rank():
                return {}
    return {name: whole(thing.state_dict()) for name, thing in things.items()}


def saver(directory: Path, world: World, things: Things) -> ShardedSaver:
    files = CheckpointDirectory(directory, 2) if world.leads else None
    divided = [name for name, thing in things.items() if is_divided(name, thing)]
    group = None if world.alone else dist.new_group(backend="gloo")
    return ShardedSaver(directory, files, world, divided, group=group)


def save(saver: ShardedSaver, things: Things, number: int, own: Any) -> None:
    manifest = Manifest(number, 0, 0, 1, 1, "uid", (1,))
    saver.begin(manifest, {name: state_of(thing) for name, thing in things.items()}, own, number)


def resume(saver: ShardedSaver, directory: Path, world: World, things: Things) -> int:
    """Loads the newest checkpoint; returns its step."""
    found = find_newest(lambda: checkpoints_in(directory), decode, reader=FILES).found
    assert found is not None
    state = fitted(found.state, saver.located(Path(found.location).name if world.leads else ""), things)
    for name, thing in things.items():
        thing.load_state_dict(state[name])
    assert found.state[RANKS] == list(range(len(found.state[RANKS])))
    return found.manifest.step


def train(directory: Path, world: World, build: Callable[[World], Things], steps: int, save_at: int) -> Any:
    """Trains, from the newest checkpoint if there is one; returns the state of all ranks together."""
    things = build(world)
    mine = saver(directory, world, things)
    first = 0
    if any(directory.glob("step-*")):
        first = resume(mine, directory, world, things)
    for number in range(first + 1, steps + 1):
        step(things, number)
        if number == save_at:
            save(mine, things, number, world.rank)
    if save_at > first:
        assert mine.finished(wait=True)
    return everything(things)


def _rank(store: Path, world: World, told: Any, program: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    try:
        if not world.alone:
            where = dist.FileStore(str(store), world.world_size)  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=where, rank=world.rank, world_size=world.world_size)
        result = BytesIO()  # A tensor in a queue would be a file of the process, which ends.
        torch.save(program(arguments[0], world, *arguments[1:]), result)
        told.put((world.rank, result.getvalue()))
        if not world.alone:
            dist.barrier()
            dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        told.put((world.rank, f"{type(error).__name__}: {error}"))


COUNT = 0


def on_ranks(size: int, directory: Path, program: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Runs a program on each rank; returns the results, the errors as text, or None for those that were killed."""
    global COUNT  # noqa: PLW0603
    COUNT += 1
    told = FORKS.Queue()
    ranks = [
        FORKS.Process(
            target=_rank,
            args=(
                directory / f"store-{COUNT}",
                World(rank, rank, size, size),
                told,
                program,
                (directory, *arguments),
            ),
        )
        for rank in range(size)
    ]
    for rank in ranks:
        rank.start()
    results: dict[int, Any] = {}

    def all_have_told() -> bool:
        with suppress(queue.Empty):
            while len(results) < size:
                rank, result = told.get_nowait()
                results[rank] = torch.load(BytesIO(result)) if isinstance(result, bytes) else result
        return all(rank in results or process.exitcode for rank, process in enumerate(ranks))

    wait_for("an end of all ranks", all_have_told, 60)
    for process in ranks:
        process.join()
    return [results.get(rank) for rank in range(size)]
