"""Collects what one rank logs about NCCL and its GPU, and its flight recorder's dump if the NCCL watchdog ends it."""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ddpjob_rank.console import say, warn
from ddpjob_rank.environment import GLOO, NCCL, Env
from ddpjob_rank.machine.network import fabric

from ddpjob_supervisor.gpu import flight_recorder, transport
from ddpjob_supervisor.gpu.nccl_words import Ending, NcclWords

from . import evidence, ras
from .crash_words import CrashWords
from .relay import Relay

DUMP = ".trace-"
"""The suffix of the flight recorder's dump: its path is the heartbeat file's path, this suffix and the rank's
number."""

NCCLS_OWN = ".nccl"
"""The suffix of the pipe for NCCL's log: its path is the heartbeat file's path and this suffix."""

INFO = " NCCL INFO "

DEVICE = Path("/dev/nvidiactl")
"""If this device exists, the program may use NCCL even if no backend is set."""


class LastWords:
    """Reads one rank's stderr and NCCL's log, from before the rank's start until it has ended."""

    def __init__(self, env: Mapping[str, str], told: set[str] | None = None) -> None:
        """`env` is the rank's environment.

        `told` holds the transports that this node has already logged in this attempt.
        """
        self.words = NcclWords()
        self.crash = CrashWords()
        self.env: dict[str, str] = {}
        """Variables to add to the rank's environment."""
        self._env = env
        self._rank, self._attempt = (int(env.get(name, "0")) for name in (Env.RANK, Env.ATTEMPT))
        self._transport: str | None = None
        self._told: set[str] = set() if told is None else told
        self._hears_of_transport = self.words
        self._nccl: Relay | None = None
        heartbeat = env.get(Env.HEARTBEAT)
        self._relay = Relay.of(heartbeat, self._hear)
        self._dump: Path | None = None
        self._says_nothing = env.get(Env.BACKEND) == GLOO
        if heartbeat is None:
            return
        if self._says_nothing:
            self.env |= flight_recorder.settings(None, env)
            return
        self._dump = Path(f"{heartbeat}{DUMP}{self._rank}")
        self._dump.unlink(missing_ok=True)
        self.env |= flight_recorder.settings(f"{heartbeat}{DUMP}", env, _torch())
        self._listen_to_nccl(heartbeat, env)

    def _hear(self, line: str) -> None:
        self.words.hear(line)
        self.crash.hear(line)

    def _listen_to_nccl(self, heartbeat: str, env: Mapping[str, str]) -> None:
        if self._relay is not None and transport.DEBUG in env and transport.FILE not in env:
            self.env[transport.FILE] = str(self._relay.path)
        if env.get(Env.BACKEND, NCCL if DEVICE.exists() else GLOO) != NCCL:
            return
        self.env |= ras.settings(env)
        quiet = transport.settings(f"{heartbeat}{NCCLS_OWN}", env)
        if not quiet:
            return
        # A separate object, because another thread reads stderr.
        words = NcclWords()

        def hear(line: str) -> None:
            words.hear(line)
            if INFO not in line and line:
                # INFO lines are left out, because they appear only because of our settings. NCCL always logs the
                # other lines.
                sys.stderr.write(f"{line}\n")  # NCCL waits until its log is read, so this must not block.

        self._nccl = Relay.aside(heartbeat, hear, NCCLS_OWN)
        if self._nccl is not None:
            self._hears_of_transport = words
            self.env |= quiet

    @property
    def ras_address(self) -> str | None:
        """The address at which the RAS of the rank's NCCL listens; None if the address was not set."""
        return self.env.get(ras.ADDRESS) or self._env.get(ras.ADDRESS)

    def transport(self) -> str | None:
        """How NCCL transfers data; None if unknown.

        The first rank of the node whose value no longer changes also logs it, with a warning if NCCL could do better.
        """
        way = transport.transport_of(self._hears_of_transport)
        if way != self._transport:
            self._transport = way
        elif way is not None and way not in self._told:
            self._told.add(way)
            say(f"rank {self._rank}: NCCL uses {way}")
            if problem := transport.fell_back(self._hears_of_transport, fabric().infiniband):
                warn(problem)
        return way

    async def finish(self, *, crashed: bool = False) -> NcclWords:
        """Returns everything that the rank has logged. Call this when the rank has ended.

        `crashed` means that the rank has crashed, and so has printed the reason.
        """
        # Unless the rank crashed, gloo logs nothing that is not in the rank's own report, and a restart in place must
        # not be delayed.
        waits = crashed or not self._says_nothing
        relays = (relay for relay in (self._relay, self._nccl) if relay is not None)
        await asyncio.gather(*(relay.finish(waits=waits) for relay in relays))
        if self.words.ending in {Ending.TIMEOUT, Ending.SIGNALLED} and (dump := self._dumped()):
            self.words.begun |= flight_recorder.begun(flight_recorder.entries_of(dump), NCCL)
            await evidence.keep_recording(dump, self._attempt, self._rank)
        return self.words

    def _dumped(self) -> bytes:
        """The flight recorder's dump; empty if there is none."""
        with contextlib.suppress(OSError):
            return b"" if self._dump is None else self._dump.read_bytes()
        return b""


@cache
def _torch() -> str:
    """The version of PyTorch that ranks import, because they run the same Python; empty if it is unknown."""
    with contextlib.suppress(PackageNotFoundError):
        return version("torch")
    return ""
