"""Joining the others and leaving them: a process group for as long as a run lasts."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.interface import VARIABLE, choose_interface, local_address
from ddpjob_rank.stopping import StoppedOnRequest
from ddpjob_rank.world import World
from torch.distributed.distributed_c10d import Store

from ddpjob_trainer.config import TrainConfig

from .backend import backend_of, device_of, settings
from .fitting import MPI, NCCL
from .stores import InitMethod, address_of

_KEPT: list[Store] = []
"""A store of a file removes the file at its end, maybe while others still use it: it stays as long as the process."""


@contextmanager
def process_group(world: World, config: TrainConfig) -> Iterator[torch.device]:
    """Joins the other processes and returns this one's device. A world of one needs no group.

    On failure the group is left as it is: taking it down may wait for peers that are gone, and the process ends
    anyway.

    Raises:
        PeerLostError: A process did not come within the timeout; the message says which.
        ConfigError: The backend is missing, has no device for this process, or the others have another one.
    """
    backend = backend_of(config.group.backend, world)
    device = device_of(backend, world)
    if world.alone:
        say(f"a world of one process on {device}: no process group is needed")
        yield device
        return
    say(f"rank {world.rank} of {world.world_size}: backend {backend}, device {device}")
    if backend == MPI:
        _join_by_mpi(world, config)
    else:
        _join(world, config, backend, device)
    try:
        yield device
    except StoppedOnRequest:
        _leave_together()
        _clear_up(world, config)
        raise
    _leave_together()
    _clear_up(world, config)


def _join(world: World, config: TrainConfig, backend: str, device: torch.device) -> None:
    method = InitMethod(world, config.attempt, config.group.joining_seconds, config.place.init_file)
    address = local_address(world)
    store = method.join(backend, address)
    _KEPT.append(store)
    interface = choose_interface(address, _addresses(store, world))
    if world.leads:
        if interface:
            say(f"gloo uses {interface}, which leads to the other machines; to use another one, set {VARIABLE}")
        if settings():
            say(f"set for the backend: {settings()}")
    dist.init_process_group(
        # With nccl there is gloo as well, for what is decided and saved on the CPU.
        "cpu:gloo,cuda:nccl" if backend == NCCL else backend,
        store=store,
        rank=world.rank,
        world_size=world.world_size,
        timeout=timedelta(seconds=config.group.joining_seconds),
        device_id=device if backend == NCCL else None,
    )
    dist.set_timeout(timedelta(seconds=config.group.collective_seconds))


def _join_by_mpi(world: World, config: TrainConfig) -> None:
    """MPI knows itself how many there are, and which one this is."""
    dist.init_process_group(MPI, timeout=timedelta(seconds=config.group.collective_seconds))
    told = dist.get_rank(), dist.get_world_size()
    if told != (world.rank, world.world_size):
        raise ConfigError(
            f"MPI says that this is rank {told[0]} of {told[1]}, not {world.rank} of {world.world_size}: start all"
            " processes with mpirun, or with srun --mpi"
        )


def _addresses(store: Store, world: World) -> Iterator[str]:
    """The addresses of all others on their way to the master, in an order that soon leaves this node."""
    for step in range(world.world_size):
        yield address_of(store, (world.rank + world.local_world_size + step) % world.world_size)


def _leave_together() -> None:
    """No rank leaves before all are done: to a slower rank another's end would look like its loss."""
    dist.barrier()
    dist.destroy_process_group()


def _clear_up(world: World, config: TrainConfig) -> None:
    """The file in which they have met must not serve another run."""
    if world.leads and config.place.init_file is not None:
        with suppress(OSError):
            config.place.init_file.unlink()
