"""The process group: how the processes of a world find each other, and how they part."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from .config import TrainConfig
from .console import say
from .environment import Env
from .errors import ConfigError, PeerLostError, TrainerError
from .stopping import StoppedOnRequest
from .world import World

MISSING_NAMED = 8
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.02
ARRIVED, COMPLETE = "arrived", "complete"


@contextmanager
def process_group(world: World, config: TrainConfig) -> Iterator[torch.device]:
    """Joins the other processes and gives this one's device. A world of one needs no group.

    On failure the group is left as it is: taking it down may wait for peers that are gone, and the process ends.

    Raises:
        PeerLostError: Somebody did not come within the timeout; the message says who.
        ConfigError: The backend has no device for this process.
    """
    backend = config.backend or _fitting_backend(world)
    device = _device(backend, world)
    if world.alone:
        say(f"a world of one process on {device}: no process group is needed")
        yield device
        return
    say(f"rank {world.rank} of {world.world_size}: backend {backend}, device {device}")
    timeout = timedelta(seconds=config.timeout_seconds)
    dist.init_process_group(
        # With nccl there is gloo as well, for what is decided and saved on the CPU.
        "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo",
        store=_store(world, config.attempt, timeout),
        rank=world.rank,
        world_size=world.world_size,
        timeout=timeout,
        device_id=device if backend == "nccl" else None,
    )
    try:
        yield device
    except StoppedOnRequest:
        _leave_together()
        raise
    _leave_together()


def _leave_together() -> None:
    """Nobody leaves before all are done: to a slower rank another's end would look like its loss."""
    dist.barrier()
    dist.destroy_process_group()


def _fitting_backend(world: World) -> str:
    gpus = torch.cuda.device_count()
    backend = "nccl" if gpus >= world.local_world_size else "gloo"
    if world.leads and not world.alone:
        say(f"backend {backend}: GPUs on this node: {gpus}, processes: {world.local_world_size}")
    return backend


def _device(backend: str, world: World) -> torch.device:
    if backend == "gloo":
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if world.local_rank >= gpus:
        raise ConfigError(
            f"backend nccl needs a GPU for each process: local rank {world.local_rank} sees {gpus};"
            " use fewer processes per node, or backend gloo"
        )
    device = torch.device("cuda", world.local_rank)
    torch.cuda.set_device(device)
    return device


def _store(world: World, attempt: int, timeout: timedelta) -> Store:
    """The store that rank 0 (or torchrun) serves, once all have arrived there.

    Its keys carry the attempt, since torch has no such guard: a process of an earlier attempt that still waits would
    join this one and train.
    """
    serves = world.leads and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not serves:
        await_rank_0(world, timeout)
    try:
        tcp = dist.TCPStore(  # type: ignore[attr-defined]
            world.master_addr, world.master_port, is_master=serves, timeout=timeout, wait_for_workers=False
        )
    except dist.DistNetworkError as error:
        raise TrainerError(
            f"rank {world.rank} cannot use {_master(world)}: {_reason(error)};"
            f" if another program has the port, set another {Env.MASTER_PORT}"
        ) from error
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"{attempt}/{restarts}", tcp)
    _await_all(store, world, timeout)
    return store


def _await_all(store: Store, world: World, timeout: timedelta) -> None:
    store.set(f"{ARRIVED}/{world.rank}", "")
    if store.add(ARRIVED, 1) == world.world_size:
        store.set(COMPLETE, "")
    try:
        store.wait([COMPLETE], timeout)
    except dist.DistStoreError as error:
        missing = [rank for rank in range(world.world_size) if not store.check([f"{ARRIVED}/{rank}"])]
        named = ", ".join(map(str, missing[:MISSING_NAMED])) + (", …" if len(missing) > MISSING_NAMED else "")
        raise PeerLostError(
            f"waited {timeout.total_seconds():.0f} s for rank {named}: {world.world_size - len(missing)} of"
            f" {world.world_size} processes came to {_master(world)}"
        ) from error


def await_rank_0(world: World, timeout: timedelta) -> None:
    """Waits until rank 0 answers. The store would wait by itself, but tells of its end in pages of C++ frames."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            socket.create_connection((world.master_addr, world.master_port), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                seconds = f"{timeout.total_seconds():.0f}"
                raise PeerLostError(
                    f"waited {seconds} s for rank 0 to answer at {_master(world)}: {error.strerror or error}"
                ) from error
            time.sleep(RETRY_SECONDS)
        else:
            return


def _master(world: World) -> str:
    return f"{world.master_addr}:{world.master_port}"


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0]
