"""The process group of a run: how a process joins the others, and how it leaves them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from ddpjob.group.collectives import all_gather
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.interface import CHOSEN, choose_interface, local_address
from ddpjob_rank.stopping import StoppedOnRequest
from ddpjob_rank.world import World
from torch.distributed.distributed_c10d import Store

from ddpjob_trainer.config import TrainConfig

from .backend import backend_of, device_of, settings
from .fitting import MPI, NCCL
from .stores import InitMethod, address_of

_KEPT: list[object] = []
"""Keeps stores and groups until the process ends. A FileStore that is destroyed removes its file, which others may
still use. If DistributedDataParallel is the last owner of a group, the group holds Python's global lock while it
waits for its threads. A thread may wait for the lock too, to release a tensor: with torch 2.8 and gloo, a process has
hung at its end."""


@contextmanager
def process_group(world: World, config: TrainConfig) -> Iterator[torch.device]:
    """Joins the other processes, and yields the device of this process. A world of one needs no group.

    After an error the group is not destroyed, because destroying it could wait for processes that no longer exist.
    The process ends anyway.

    Raises:
        PeerLostError: A process did not join within the timeout; the message names its rank.
        ConfigError: The backend is missing, has no device for this process, or differs from that of other processes.
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
            say(CHOSEN.format(interface))
        if settings():
            say(f"set for the backend: {settings()}")
    joining, collective = (
        timedelta(seconds=seconds) for seconds in (config.group.joining_seconds, config.group.collective_seconds)
    )
    # In torch 2.8, gloo keeps the timeout with which the group was made, so connecting times out only after
    # the timeout of collectives.
    changes = hasattr(dist.ProcessGroup, "set_timeout")
    dist.init_process_group(
        # In addition to NCCL, the group has gloo, for the CPU tensors of decisions and saves.
        "cpu:gloo,cuda:nccl" if backend == NCCL else backend,
        store=store,
        rank=world.rank,
        world_size=world.world_size,
        timeout=joining if changes else collective,
        device_id=device if backend == NCCL else None,
    )
    if changes:
        assert dist.group.WORLD is not None, "it was just made"
        dist.group.WORLD.set_timeout(collective)


def _join_by_mpi(world: World, config: TrainConfig) -> None:
    """Joins by MPI, which itself gives each process its rank and the world size.

    Raises:
        ConfigError: MPI's rank or world size differs from the environment's.
    """
    dist.init_process_group(MPI, timeout=timedelta(seconds=config.group.collective_seconds))
    place = dist.get_rank(), dist.get_world_size()
    if place != (world.rank, world.world_size):
        raise ConfigError(
            f"MPI says that this is rank {place[0]} of {place[1]}, not {world.rank} of {world.world_size}: start all"
            " processes with mpirun, or with srun --mpi"
        )


def _addresses(store: Store, world: World) -> Iterator[str]:
    """Yields the addresses from which processes reach the master, beginning with a process of the next node."""
    for step in range(world.world_size):
        yield address_of(store, (world.rank + world.local_world_size + step) % world.world_size)


def _leave_together() -> None:
    """Waits until all ranks are done. If a rank ended earlier, a slower rank would take it for a lost peer."""
    dist.barrier()
    _KEPT.append(dist.group.WORLD)
    dist.destroy_process_group()


def _clear_up(world: World, config: TrainConfig) -> None:
    """Removes the file of the store, so that no other run uses it."""
    if world.leads and config.place.init_file is not None:
        with suppress(OSError):
            config.place.init_file.unlink()


def store_of_mpi(world: World) -> Store | None:
    """A store of all ranks, if their backend is MPI, which has none. All ranks make this call together."""
    if world.alone or dist.get_backend() != MPI:
        return None
    return store_through_group(world)


def store_through_group(world: World) -> Store:
    """A new store that rank 0 serves. The ranks find it through their process group."""
    served = dist.TCPStore(socket.gethostname(), 0, is_master=True, wait_for_workers=False) if world.leads else None  # type: ignore[attr-defined]
    host, port = all_gather((served.host, served.port) if served else ("", 0), world)[0]
    store = served or dist.TCPStore(host, port, is_master=False, wait_for_workers=False)  # type: ignore[attr-defined]
    _KEPT.append(store)
    return store
