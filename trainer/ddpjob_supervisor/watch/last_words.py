"""What a rank says of NCCL and its GPU, and leaves behind when NCCL's watchdog ends it by SIGABRT."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from ddpjob_rank.console import say, warn
from ddpjob_rank.environment import Env

from ddpjob_supervisor.gpu import flight_recorder
from ddpjob_supervisor.gpu.nccl_words import Ending, NcclWords
from ddpjob_supervisor.gpu.transport import fell_back, infiniband, transport_of

from . import evidence
from .relay import Relay

DUMP = ".trace-"
"""Of the flight recorder's dump, after the heartbeat file's path; the rank's number completes the name."""

NCCL_DEBUG, NCCL_DEBUG_FILE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
"""NCCL writes to stdout, unless it is told otherwise."""

GLOO = "gloo"


class LastWords:
    """Listens to one rank, from before its start until it has ended."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """`env` is the rank's."""
        self.words = NcclWords()
        self.env: dict[str, str] = {}
        """What the rank's environment has to have besides."""
        self._rank, self._attempt = (int(env.get(name, "0")) for name in (Env.RANK, Env.ATTEMPT))
        self._transport: str | None = None
        self._transport_told = False
        heartbeat = env.get(Env.HEARTBEAT)
        self._relay = Relay.of(heartbeat, self.words.hear)
        self._dump: Path | None = None
        self._says_nothing = env.get(Env.BACKEND) == GLOO
        if heartbeat is None:
            return
        if self._says_nothing:
            self.env |= flight_recorder.settings(None, env)
            return
        self._dump = Path(f"{heartbeat}{DUMP}{self._rank}")
        self._dump.unlink(missing_ok=True)
        self.env |= flight_recorder.settings(f"{heartbeat}{DUMP}", env)
        if self._relay is not None and NCCL_DEBUG in env and NCCL_DEBUG_FILE not in env:
            self.env[NCCL_DEBUG_FILE] = str(self._relay.path)

    def transport(self) -> str | None:
        """How NCCL passes data, if it says so. It is logged once it says no more; a better way is worth a warning."""
        transport = transport_of(self.words)
        if transport != self._transport:
            self._transport = transport
        elif transport is not None and not self._transport_told:
            self._transport_told = True
            say(f"rank {self._rank}: NCCL goes by {transport}")
            if problem := fell_back(self.words, infiniband()):
                warn(problem)
        return transport

    async def finish(self) -> NcclWords:
        """All that was said, once the rank has ended."""
        if self._relay is not None:
            # Gloo says nothing that is not in the rank's own report, and a restart in place has no time to lose.
            await self._relay.finish(waits=not self._says_nothing)
        if self.words.ending is Ending.TIMEOUT and (dump := self._dumped()):
            self.words.begun |= flight_recorder.begun(flight_recorder.entries_of(dump), "nccl")
            await evidence.keep_recording(dump, self._attempt, self._rank)
        return self.words

    def _dumped(self) -> bytes:
        """The flight recorder's dump; empty if there is none."""
        with contextlib.suppress(OSError):
            return b"" if self._dump is None else self._dump.read_bytes()
        return b""
