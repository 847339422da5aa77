"""A gang whose coordinator is told what happens, one thing after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpjob_supervisor.gang.coordinator import Coordinator
from ddpjob_supervisor.gang.judging import Limits
from ddpjob_supervisor.gang.messages import (
    Beats,
    End,
    Examine,
    Failed,
    Finished,
    Hello,
    Idle,
    Incident,
    Leave,
    Leaving,
    Message,
    Past,
    Start,
    Stop,
)

if TYPE_CHECKING:
    from ddpjob_supervisor.watch.beat import BeatFields

BEGIN = 1_700_000_000.0
KILLED = End(1, 137, BEGIN, "Application", "killed by SIGKILL")
LOST = End(0, 1, BEGIN, "PeerLost", "Connection closed by peer", "PeerLostError")
RAISED = End(1, 1, BEGIN, "Application", "No module named 'httpx'", "ModuleNotFoundError")
AT_7 = End(1, 1, BEGIN, "Application", "bad batch", "ValueError", 7)
CONFIG = End(1, 2, BEGIN, "ConfigError", "no such workload", "ConfigError")
WAITED = End(0, 134, BEGIN, "Stalled", "it waited for 600 s", begun={"0 nccl": 7}, waited="NCCL's ALLREDUCE number 7")
"""Ended by NCCL's watchdog, since another rank did not come to a collective."""
STUCK = End(1, 203, BEGIN, "DeviceFailed", "it hangs, and GPU 0: Xid 79, GPU has fallen off the bus")
STOPPED = End(0, 137, BEGIN)
"""Ended by its supervisor."""
INTERRUPTED = End(0, 130, BEGIN)
"""It was told to stop, knew of no signal, and has cleaned up."""
SAVED = End(0, 205, BEGIN)
WELL = End(0, 0, BEGIN)


def limits(
    restarts: int = 5, window: float = 3600, causes: tuple[str, ...] = (), codes: tuple[int, ...] = ()
) -> Limits:
    return Limits(restarts, window, frozenset(codes), frozenset(causes))


def hello(node: int, incarnation: int = 1, attempt: int = 1, domain: str | None = None) -> Hello:
    return Hello("uid", node, incarnation, attempt, 29502, "0.1.0", domain=domain)


@dataclass
class Gang:
    """A coordinator, what it says, and the time."""

    nodes: int = 2
    limits: Limits = field(default_factory=limits)
    check: bool = False
    joining_seconds: float | None = None
    processes: int = 1
    domains: str = ""
    """The topology domain of each node, as one letter; `?`: not known. Empty: ranks do not follow placement."""
    now: float = BEGIN
    said: list[tuple[int, Message]] = field(default_factory=list)
    """In answer to what happened last."""

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(
            self.nodes,
            self.limits,
            self.now,
            processes=self.processes,
            check_first=self.check,
            joining_seconds=self.joining_seconds,
        )

    @property
    def words(self) -> str:
        """What it says, as `Stop(1) to 0 1`."""
        heard: dict[str, list[str]] = {}
        for node, message in self.said:
            heard.setdefault(_words(message), []).append(str(node))
        return "; ".join(f"{words} to {' '.join(nodes)}" for words, nodes in heard.items())

    @property
    def incidents(self) -> list[str]:
        """As `1: rank 0 Application`."""
        return [_named(incident) for incident in self.coordinator.past.incidents]

    def _hear(self) -> Gang:
        self.said = [(node, message) for nodes, message in self.coordinator.drained() for node in nodes]
        return self

    def joins(self, *nodes: int, incarnation: int = 1, attempt: int = 1) -> Gang:
        for node in nodes:
            domain = self.domains[node].replace("?", "") if self.domains else None
            said = hello(node, incarnation, attempt, domain)
            self.coordinator.joined(node, said, f"10.0.0.{node}:29502", self.now)
        return self._hear()

    def starts(self) -> Gang:
        """All are there."""
        return self.joins(*range(self.nodes))

    def says(self, node: int, message: Message) -> Gang:
        self.coordinator.said(node, message, self.now)
        return self._hear()

    def steps(self, node: int = 0, step: int = 1) -> Gang:
        process = self.coordinator.current.ring.first_rank(node)
        return self.says(node, Beats(self.coordinator.attempt, (beat(process, step),)))

    def fails(self, node: int, end: End = KILLED) -> Gang:
        return self.says(node, Failed(self.coordinator.attempt, end.cause, bool(end.waited)))

    def idle(self, node: int, *ends: End) -> Gang:
        return self.says(node, Idle(self.coordinator.attempt, ends or (STOPPED,)))

    def done(self, node: int) -> Gang:
        return self.says(node, Finished(self.coordinator.attempt))

    def leaving(self, node: int) -> Gang:
        return self.says(node, Leaving())

    def lost(self, node: int) -> Gang:
        self.coordinator.left(node, self.now)
        return self._hear()

    def after(self, seconds: float) -> Gang:
        self.now += seconds
        self.coordinator.tick(self.now)
        return self._hear()

    def stalls(self) -> Gang:
        self.coordinator.found_stalled(self.now - 30, self.now)
        return self._hear()

    def blames(self, process: int | None) -> Gang:
        self.coordinator.blamed(process, "it is stopped", 7, self.now)
        return self._hear()

    def stuck(self, node: int) -> Gang:
        """A rank is found on a broken GPU; it runs."""
        return self.says(node, Failed(self.coordinator.attempt, STUCK.cause, end=STUCK))

    def breaks(self, node: int, end: End = KILLED, other: End = STOPPED) -> Gang:
        """A rank fails, and all are ended."""
        self.fails(node).idle(node, end)
        for one in [*self.coordinator.members]:
            if one != node:
                self.idle(one, other)
        return self

    def remembers(self, attempt: int, past: Past = Past()) -> Gang:  # noqa: B008  (it is frozen)
        self.coordinator.remember(attempt, past)
        return self._hear()


def _words(message: Message) -> str:
    match message:
        case Start(attempt, check=check):
            return f"{'Try' if check else 'Start'}({attempt})"
        case Stop(attempt) | Examine(attempt):
            return f"{type(message).__name__}({attempt})"
        case Leave(incident):
            return f"Leave({_named(incident)})"
        case _:
            return type(message).__name__


def _named(incident: Incident) -> str:
    return f"{incident.attempt}: rank {incident.node} {incident.end.cause}"


def beat(process: int, step: int, attempt: int = 1) -> BeatFields:
    return {"rank": process, "attempt": attempt, "activity": "training", "step": step}
