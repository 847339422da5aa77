"""The store through which the processes of a world find each other: at a port of rank 0, or in a file shared by all.

All keys contain the attempt. Otherwise a process of an earlier attempt that is still waiting would join this attempt
and train, which torch does not prevent.
"""

import json
import os
import struct
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist
from ddpjob_rank.console import counted, listed
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, PeerLostError, TrainerError
from ddpjob_rank.machine.port_holder import holder_of
from ddpjob_rank.machine.regular_file import NotRegularError, open_regular
from ddpjob_rank.places.master import await_rank_0
from ddpjob_rank.world import World, restart_of_torchrun
from torch.distributed.distributed_c10d import PrefixStore, Store

MISSING_NAMED = 8
ARRIVED, CONFIRMED, REFUSED = "arrived", "confirmed", "refused"
MARK, ADDRESS = "mark", "address"
SIZE, BACKEND = "size", "backend"
"""Keys whose values must be the same for all processes, which would otherwise wait for each other forever."""
TAKEN = "EADDRINUSE"
LENGTH, LONGEST_KEY = struct.Struct("=I"), 1024
"""The file of a FileStore begins with the length of a key (torch's `FileStore.cpp`, `File::write`)."""


@dataclass(frozen=True, slots=True)
class InitMethod:
    """Where the processes of a world meet (`init_method` in torch.distributed), and how long they wait."""

    world: World
    attempt: int
    seconds: float
    """How long a process waits for processes that have not arrived yet."""
    file: Path | None = None
    """The file of the store; None if the store is at the master's port."""

    @property
    def meeting_point(self) -> str:
        """The file, or the master's address and port, for messages."""
        return str(self.file or f"{self.world.master_addr}:{self.world.master_port}")

    @property
    def _told_apart(self) -> str:
        """What the user can do if an unexpected process has arrived."""
        if self.file:
            return (
                "an earlier run has left this file: remove it, or name another file, because each run needs a new one"
            )
        return "all processes of a run need the same numbers of nodes and processes, and each needs its own rank"

    def join(self, backend: str, address: str) -> Store:
        """Waits until all processes have arrived. Returns the store, which contains the address of each process.

        Raises:
            PeerLostError: A process did not arrive in time; the message names its rank.
            ConfigError: Another program or an earlier run uses the port or the file, or backends differ.
            TrainerError: The store cannot be used.
        """
        whole = _file_store(self) if self.file else _tcp_store(self)
        store = PrefixStore(f"{self.attempt}/{restart_of_torchrun()}", whole)
        self._sign(store, backend, address)
        for phase in (ARRIVED, CONFIRMED):
            self._await_all(store, phase)
        return store

    def _sign(self, store: Store, backend: str, address: str) -> None:
        rank, size = self.world.rank, self.world.world_size
        sizes = int(store.compare_set(SIZE, "", str(size)))
        backends = store.compare_set(BACKEND, "", backend).decode()
        if store.add(f"{MARK}/{rank}", 1) > 1:
            self._refuse(store, f"rank {rank} is already at {self.meeting_point}: {self._told_apart}")
        if sizes != size:
            theirs = f"{counted(sizes, 'process')} {'is' if sizes == 1 else 'are'}"
            expected = f"{theirs} to meet at {self.meeting_point}: {self._told_apart}"
            self._refuse(store, f"rank {rank} is one of {size}, but {expected}")
        if backends != backend:
            chosen = f"rank {rank} has chosen backend {backend}, but other ranks chose {backends}"
            self._refuse(store, f"{chosen}: name one for all with --backend")
        store.set(f"{ADDRESS}/{rank}", address)

    def _refuse(self, store: Store, message: str) -> NoReturn:
        """Makes the meeting fail for all processes, including those that arrive later.

        Raises:
            ConfigError: Always, with this message.
        """
        store.set(REFUSED, message)
        for phase in (ARRIVED, CONFIRMED):
            store.set(f"{phase}/all", "1")
        raise ConfigError(message)

    def _await_all(self, store: Store, phase: str) -> None:
        """Waits until all processes have reached a phase.

        There are two phases because a process of an earlier run may have arrived in the same store. It does not
        confirm.
        """
        size = self.world.world_size
        store.set(f"{phase}/{self.world.rank}", "1")
        if store.add(phase, 1) == size:
            store.set(f"{phase}/all", "1")
        try:
            store.wait([f"{phase}/all"], timedelta(seconds=self.seconds))
        except RuntimeError as error:  # FileStore has no exception class of its own for a timeout.
            missing = self._missing(store, phase)
            raise PeerLostError(
                f"waited {self.seconds:.0f} s for rank {listed(missing, MISSING_NAMED)}: {size - len(missing)} of"
                f" {size} processes came to {self.meeting_point}"
            ) from error
        if store.check([REFUSED]):
            raise ConfigError(store.get(REFUSED).decode())

    def _missing(self, store: Store, phase: str) -> list[int]:
        """The ranks that have not reached a phase.

        Only the first process that calls this checks each rank, because a store answers one request after another.
        The other processes read its result.
        """
        answer = f"{phase}/missing"
        if store.add(f"{phase}/asked", 1) == 1:
            ranks = range(self.world.world_size)
            store.set(answer, json.dumps([rank for rank in ranks if not store.check([f"{phase}/{rank}"])]))
        missing: list[int] = json.loads(store.get(answer))
        return missing


def address_of(store: Store, rank: int) -> str:
    """The address that a rank has put into the store. All ranks must have arrived."""
    address: bytes = store.get(f"{ADDRESS}/{rank}")
    return address.decode()


def _tcp_store(method: InitMethod) -> Store:
    """The TCPStore, which rank 0 (or torchrun) serves."""
    world, timeout = method.world, timedelta(seconds=method.seconds)
    serves = world.leads and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not serves:
        await_rank_0(world, timeout)
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            world.master_addr, world.master_port, is_master=serves, timeout=timeout, wait_for_workers=False
        )
    except dist.DistNetworkError as error:
        if serves and TAKEN in str(error):
            # In a job, a restart may help: on another node, or because the other program has ended by then.
            kind = TrainerError if Env.UID in os.environ else ConfigError
            raise kind(
                f"port {world.master_port} of this machine is taken by {holder_of(world.master_port)}: set another"
                f" {_port_setting()}"
            ) from error
        raise TrainerError(
            f"rank {world.rank} cannot use {method.meeting_point}: {str(error).splitlines()[0]}; if another program"
            f" has the port, set another {_port_setting()}"
        ) from error


def _port_setting() -> str:
    """The setting that determines the port. In a job it is a field, because users cannot set the variable there."""
    by_hand = f"{Env.MASTER_PORT} (--master-port) for all processes"
    return "spec.network.masterPort" if Env.UID in os.environ else by_hand


def _file_store(method: InitMethod) -> Store:
    assert method.file is not None, "the caller has seen to it"
    meeting = f"{method.file}, where the processes are to meet"
    try:
        with os.fdopen(open_regular(method.file, os.O_RDWR | os.O_CREAT), "rb") as file:
            start = file.read(LENGTH.size)
    except NotRegularError:
        raise ConfigError(f"{meeting}, is not a regular file: name a file that does not exist yet") from None
    except OSError as error:
        raise ConfigError(f"cannot write {meeting}: {error.strerror}") from None
    # FileStore does not check its file. It would take the beginning of a text for a length, and hang.
    if len(start) == LENGTH.size and not 0 < LENGTH.unpack(start)[0] <= LONGEST_KEY:
        raise ConfigError(f"{meeting}, holds something else: name a file that does not exist yet")
    return dist.FileStore(str(method.file))  # type: ignore[attr-defined]
