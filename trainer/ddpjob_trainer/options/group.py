"""Options of the process group: which library processes communicate with, and how long they wait."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.limits import JOINING_SECONDS, longest
from ddpjob_rank.parsing import counting_from, positive

AUTO: Final = "auto"
BACKENDS = ("gloo", "nccl", "mpi")

LOOKING_SECONDS = 60.0
"""From the moment when a gang counts as stalled until its supervisors have looked at all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """How the processes of a run work together."""

    backend: str | None = None
    """Lower case; None: the one that fits the devices."""
    timeout_seconds: float | None = None
    """As asked for."""
    verdict_seconds: float | None = None
    """After this long without a step, at most, this process's supervisor has found a stall; None: it has none."""

    @property
    def joining_seconds(self) -> float:
        """How long to wait for others that have not come yet."""
        return self.timeout_seconds or JOINING_SECONDS

    @property
    def collective_seconds(self) -> float:
        """How long a collective waits for others.

        If a supervisor watches, longer than it does: a rank that gave up earlier would look like the one to blame,
        while the supervisor is about to find out which one keeps all others waiting.
        """
        if self.timeout_seconds or self.verdict_seconds is None:
            return self.joining_seconds
        return self.verdict_seconds + LOOKING_SECONDS


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("how the processes work together")
    group.add_argument(
        "--backend",
        choices=(AUTO, *BACKENDS),
        help=f"default: {Env.BACKEND}, else auto: nccl where each process has a GPU, else gloo",
    )
    group.add_argument(
        "--timeout-seconds",
        type=positive,
        metavar="SECONDS",
        help=f"how long to wait for other processes (default {JOINING_SECONDS:.0f}; under a supervisor a collective"
        " waits until that has found out which rank holds it up)",
    )


def read(flags: argparse.Namespace, env: Mapping[str, str]) -> GroupConfig:
    """What flags and environment ask for.

    Raises:
        ConfigError: A variable has a value that it cannot have.
    """
    backend = flags.backend or _backend(env)
    return GroupConfig(
        backend=None if backend == AUTO else backend,
        timeout_seconds=flags.timeout_seconds,
        verdict_seconds=_verdict(env),
    )


def _backend(env: Mapping[str, str]) -> str | None:
    backend = env.get(Env.BACKEND)
    if backend is not None and backend not in BACKENDS:
        raise ConfigError(f"{Env.BACKEND} is {backend!r}: it must be one of {', '.join(BACKENDS)}")
    return backend


def _verdict(env: Mapping[str, str]) -> float | None:
    name = Env.STALL_TIMEOUT_SECONDS
    timeout = counting_from(0, env.get(name, "0"), name) or None
    return longest(timeout) if Env.HEARTBEAT in env else None
