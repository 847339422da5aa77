"""The leader's decisions: who has joined, which attempt runs, what ended it, and what comes next.

Pure: its methods are called with what happens and when, and it leaves the messages to send in its outbox. An attempt
goes through these phases, and each is left by one method:

    GATHERING --all there, nothing runs--> RUNNING --a rank failed, a member went--> STOPPING --all idle--> GATHERING
        |                                   ^ |                                       ^  ^          |
        +--to be tried first--> PREFLIGHT --+ +--no step for too long--> STALLED -----+  |          +--> DONE
                                    +----------------------------------------------------+
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from operator import attrgetter
from typing import Any

from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.exit_codes import ExitCode

from ddpjob_supervisor.watch.blame import Finding

from .judging import (
    KILLED_SECONDS,
    LONG_SECONDS,
    PEER_LOST,
    Limits,
    Record,
    finding_of,
    first_of,
    incident_of,
    is_consequence,
    is_explained,
    is_of_a_stall,
    is_well,
)
from .messages import (
    Beats,
    Done,
    End,
    Examine,
    Examined,
    Failed,
    Farewell,
    Hello,
    Idle,
    Incident,
    Leave,
    Leaving,
    Located,
    Message,
    Past,
    Start,
    Stop,
    UnreadableError,
)
from .ring import Ring, order_of

SETTLING_SECONDS = 1.0
"""A rank notices the loss of a peer at once; the loss of its whole node may be noticed a moment later."""

EXAMINING_SECONDS = 5.0
"""How long to examine each rank of a stalled gang: a moment is enough, but a busy node that is late looks guilty."""


class Phase(StrEnum):
    """What the gang is doing."""

    GATHERING = "Gathering"
    """Some supervisors are missing, or are still cleaning up."""
    PREFLIGHT = "Preflight"
    """The machines are being tested."""
    RUNNING = "Running"
    """The ranks of an attempt run."""
    STALLED = "Stalled"
    """They make no progress, and the reason is being found."""
    STOPPING = "Stopping"
    """They are being stopped."""
    DONE = "Done"
    """Rank 0's ranks are done, or the incident was left to the operator."""


WITH_RANKS = frozenset({Phase.PREFLIGHT, Phase.RUNNING, Phase.STALLED})


class _Doing(Enum):
    IDLE = "idle"
    BUSY = "busy"
    DONE = "done"


@dataclass(slots=True)
class Member:
    """A supervisor that is connected."""

    incarnation: int
    address: str
    attempt: int
    domain: str | None = None
    """As in its Hello."""
    doing: _Doing = _Doing.IDLE
    leaving: bool = False
    beats: tuple[dict[str, Any], ...] = ()
    """The last reports of its processes, each with `node`, the node's rank."""
    running: tuple[int, ...] = ()
    """Its processes that have not ended."""
    findings: tuple[Finding, ...] | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """No rank has finished a step for too long."""

    since: float
    node: int | None = None
    """The one of the rank that is to blame, once that is known."""
    process: int | None = None
    """That rank."""
    message: str = ""


@dataclass(slots=True)
class _Course:
    """How an attempt went, from its start to the next one's."""

    began: float
    lasted: float = 0.0
    """Seconds until it was stopped."""
    ends: dict[int, tuple[End, ...]] = field(default_factory=dict)
    """By node, including those that are gone by now."""
    heard: dict[int, float] = field(default_factory=dict)
    """When a node first reported a failure, or its end."""
    absent: dict[int, int | None] = field(default_factory=dict)
    """By node, which supervisor left: its incarnation, or None if it had announced that."""
    verdict: Incident | None = None
    """What ended it, if the ends do not show it."""
    idle_since: float | None = None
    answered: bool = False
    """Whether its incident is recorded."""


class Coordinator:
    """The gang as its leader sees it.

    Times are seconds of the epoch, by a clock that neither goes back nor jumps.
    """

    def __init__(
        self,
        nodes: int,
        limits: Limits,
        now: float,
        *,
        processes: int = 1,
        check_first: bool = False,
        patience: float | None = None,
    ) -> None:
        """Without an operator, which replaces lost nodes, `patience` limits the wait for missing ones."""
        self.nodes = nodes
        self.members: dict[int, Member] = {}
        self.attempt = 0
        self.phase = Phase.GATHERING
        self.since = now
        self.stall: Stall | None = None
        self.outbox: list[tuple[Sequence[int], Message]] = []
        self.progressed = False
        """Whether a step was finished in this attempt."""
        self.succeeded = False
        """Whether rank 0's ranks are done."""
        self.ring = Ring(range(nodes), processes)
        """Of the present attempt."""
        self._processes = processes
        self._record = Record(limits)
        self._course = _Course(now)
        self._check_first = check_first
        self._patience = patience
        self._begun = False
        """Whether the attempt's number has been used."""
        self._inherited = False
        """Whether there was a leader before, and this one has not started an attempt yet."""
        self._newest: dict[int, int] = {}
        """The highest incarnation of each node that has joined."""
        self._done: set[int] = set()

    @property
    def missing(self) -> tuple[int, ...]:
        """Nodes whose supervisors have not joined."""
        return tuple(node for node in range(self.nodes) if node not in self.members and node not in self._done)

    @property
    def ended(self) -> bool:
        """Whether there will be no other attempt."""
        return self.phase is Phase.DONE

    @property
    def past(self) -> Past:
        """What is known about former attempts."""
        return self._record.past

    def next_moment(self) -> float | None:
        """When `tick` has to be called even if nothing happens."""
        if self.phase is Phase.STALLED:
            return self.since + EXAMINING_SECONDS
        if self.phase is Phase.STOPPING:
            idle = self._course.idle_since
            return self.since + KILLED_SECONDS if idle is None else idle + SETTLING_SECONDS
        if self.phase is Phase.GATHERING and self._patience is not None:
            return self.since + self._patience
        return None

    def remember(self, attempt: int, past: Past) -> None:
        """Takes in what a living supervisor knows about the time before this leader: nothing, if it is new itself."""
        self.attempt, self._inherited = max(self.attempt, attempt), True
        # Nothing in it ever goes back, so the newest knows the most.
        self._record.past = max(self.past, past, key=attrgetter("restarts", "failures", "ran"))

    def is_outdated(self, hello: Hello) -> bool:
        """Whether a newer pod of the same node has joined: this one must not come back."""
        return hello.incarnation < self._newest.get(hello.node, 0)

    def joined(self, node: int, hello: Hello, address: str, now: float) -> None:
        """A supervisor has joined, with nothing running."""
        if node in self.members:  # Its former connection is dead, and that was not noticed.
            self.left(node, now)
        done = node in self._done and hello.incarnation == self._newest[node]
        self._newest[node] = max(hello.incarnation, self._newest.get(node, 0))
        self.members[node] = Member(hello.incarnation, address, hello.attempt, hello.domain)
        if done:
            self._dismiss(node)  # It has not received its farewell.
        self._go_on(now)

    def left(self, node: int, now: float) -> None:
        """A supervisor's connection is lost."""
        member = self.members.pop(node, None)
        if member is None or self.ended:
            return
        if member.doing is _Doing.DONE:
            self._done.add(node)
        elif self.phase is not Phase.GATHERING:  # Otherwise it had nothing running.
            self._course.absent[node] = None if member.leaving else member.incarnation
            if member.doing is _Doing.BUSY:
                self._stop(now)
        self._go_on(now)

    def said(self, node: int, message: Message, now: float) -> None:
        """A message has come from a member; if it belongs to a former attempt, it changes nothing.

        Raises:
            UnreadableError: It is about processes that are not the member's own.
        """
        member = self.members.get(node)
        if member is None:
            return
        match message:
            case Leaving():
                member.leaving = True
            case Located(domain):
                member.domain = domain
            case Beats(attempt, beats, running) if attempt == self.attempt:
                self._check_processes(node, (beat["process"] for beat in beats))
                member.beats, member.running = tuple({**beat, "node": node} for beat in beats), running
                self.progressed |= any(beat.get("step") is not None for beat in beats)
                return  # By far the most frequent messages, and they end no phase.
            case Examined(attempt, findings) if attempt == self.attempt:
                self._check_processes(node, (finding.process for finding in findings))
                member.findings = findings
            case Failed(attempt) | Idle(attempt) | Done(attempt) if (
                attempt == self.attempt and member.doing is _Doing.BUSY
            ):
                self._ended_some(node, member, message, now)
            case _:
                return
        self._go_on(now)

    def _check_processes(self, node: int, processes: Iterable[int]) -> None:
        first = self.ring.first_process(node)
        for process in processes:
            if not first <= process < first + self._processes:
                raise UnreadableError(f"{process} is no process of node {node}")

    def _ended_some(self, node: int, member: Member, message: Failed | Idle | Done, now: float) -> None:
        """Ranks of a node have ended."""
        self._course.heard.setdefault(node, now)
        match message:
            case Failed(waited=True) if self.phase is Phase.RUNNING:
                self.found_stalled(now, now)  # Another one did not come to the collective.
            case Failed(cause=cause, waited=waited) if self.phase is Phase.STALLED and (waited or cause == PEER_LOST):
                pass  # For the same reason, which is being found.
            case Failed():
                self._stop(now)
            case Idle(_, ends, progressed):
                member.doing, self._course.ends[node] = _Doing.IDLE, ends
                self.progressed |= progressed
                # Nodes whose ranks have only waited, or lost a peer, say nothing new of a stall.
                fell = self.phase is Phase.STALLED and all(is_of_a_stall(end) for end in ends)
                if not is_well(ends) and not fell:  # If they have saved and stopped, the others are still saving.
                    self._stop(now)
            case Done() if self.phase is Phase.STOPPING and not member.leaving:
                member.doing = _Doing.IDLE  # There will be another attempt, in which it is done again.
            case Done() if node == 0 and self.phase is not Phase.STOPPING:
                # Without its supervisor there are no more attempts, and if all goes well none are needed.
                member.doing, self.succeeded = _Doing.DONE, True
                self._enter(Phase.DONE, now)
                self._tell_all(Farewell())
            case Done():
                self._dismiss(node)

    def _dismiss(self, node: int) -> None:
        self.members[node].doing = _Doing.DONE
        self.outbox.append(([node], Farewell()))

    def found_stalled(self, since: float, now: float) -> None:
        """No rank makes progress: each is examined, and then ended."""
        if self.phase is not Phase.RUNNING:
            return
        self.stall = Stall(since)
        self._enter(Phase.STALLED, now)
        for member in self.members.values():
            member.findings = None
        self._tell_busy(Examine(self.attempt))

    @property
    def examined(self) -> bool:
        """Whether each rank of a stalled gang has been examined."""
        return self.phase is Phase.STALLED and all(member.findings is not None for _, member in self._busy())

    def findings(self) -> dict[int, Finding]:
        """What is known so far about what each rank is doing, by process; ranks of idle nodes have ended."""
        busy = dict(self._busy())
        everyone = range(self.nodes * self._processes)
        ended = {one: finding_of(one, None) for one in everyone if self.ring.node_of(one) not in busy}
        ended |= {
            end.process: finding_of(end.process, end)
            for node, ends in self._course.ends.items()
            for end in ends
            if node not in busy
        }
        found = (finding for member in busy.values() for finding in member.findings or ())
        return ended | {finding.process: finding for finding in found}

    def blamed(self, process: int | None, message: str, step: int | None, now: float) -> None:
        """It is known now which rank stalls the gang, or that this cannot be found out."""
        if self.phase is not Phase.STALLED or self.stall is None:
            return
        node = None if process is None else self.ring.node_of(process)
        self.stall = Stall(self.stall.since, node, process, message)
        end = End(process or 0, ExitCode.STALLED, now, "Stalled", message, None, step)
        self._course.verdict = incident_of(self.attempt, node or 0, end, self.members)
        self._stop(now)

    def tick(self, now: float) -> None:
        """Time has passed."""
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Leaves a phase that is over, and then the next one if that is over too."""
        if self.phase in WITH_RANKS and not self._busy():
            self._stop(now)
        if self.phase is Phase.STOPPING and not self._busy():
            self._judge(now)
        elif self.phase is Phase.STOPPING and now >= self.since + KILLED_SECONDS:
            self._give_up(self._stuck(now), now)
        if self.phase is Phase.GATHERING:
            self._start(now)
        if self.phase is Phase.GATHERING and self._patience is not None and now >= self.since + self._patience:
            self._give_up(self._lost(self.missing[0], f"it has not come for {self._patience:.0f} s", now), now)

    def _start(self, now: float) -> None:
        """The next attempt begins once all have joined."""
        if len(self.members) < self.nodes or any(member.leaving for member in self.members.values()):
            return
        absent = self._course.absent.items()
        back = [node for node, incarnation in absent if self.members[node].incarnation == incarnation]
        if back and not self._course.answered:  # The pod is the same, so nothing else knows of this.
            self._answer(self._lost(back[0], "its supervisor was out of reach", now), now)
            if self.ended:
                return
        self.attempt, self._inherited, self._begun = self._next_attempt(), False, True
        self._course = _Course(now)
        self.progressed, self.stall = False, None
        for member in self.members.values():
            member.doing, member.beats, member.running = _Doing.BUSY, (), ()
        self._enter(Phase.PREFLIGHT if self._check_first else Phase.RUNNING, now)
        members = {str(node): member.address for node, member in self.members.items()}
        order = self._order()
        self.ring = Ring(range(self.nodes) if order is None else order, self._processes)
        start = Start(self.attempt, port=0, members=members, past=self.past, check=self._check_first, order=order)
        self._tell_all(start)

    def _order(self) -> tuple[int, ...] | None:
        """Of the nodes in the next attempt; machines are tested in the order of their numbers, as they are named."""
        domains = {node: member.domain for node, member in self.members.items()}
        return None if self._check_first else order_of(domains)

    def _next_attempt(self) -> int:
        """A number that no attempt has had, and no lower than the operator's."""
        if self._inherited:  # A living supervisor may be in one that those we asked did not know of.
            begun = (member.attempt for node, member in self.members.items() if node)
            return max(self.members[0].attempt, max((self.attempt, *begun)) + 1)
        known = max(member.attempt for member in self.members.values())
        return max(self.attempt + self._begun, known, 1)

    def _stop(self, now: float) -> None:
        """The attempt is over: its ranks have nothing to save."""
        if self.phase not in WITH_RANKS:
            return
        self._course.lasted = now - self._course.began
        self._enter(Phase.STOPPING, now)
        self._tell_busy(Stop(self.attempt))

    def _judge(self, now: float) -> None:
        """All ranks have ended: finds the cause, and who deals with it."""
        course, gone = self._course, self._gone()
        failure = first_of(self.attempt, course.ends, course.heard)
        # If a rank reported why it failed, and then hung, its report says more than what it was found doing.
        incident = failure if failure is not None and is_explained(failure) else course.verdict or failure
        if incident is not None and is_consequence(incident):
            if not gone and not self._has_settled(now):
                return
            incident = None if gone else incident
        self._enter(Phase.GATHERING, now)
        if not self._check_first:
            lost = any(one is not None for one in course.absent.values())
            self._record.ran(course.lasted, failed=incident is not None or lost)
        if incident is not None:
            self._answer(incident, now)
        elif gone:
            self._excuse(gone[0], now)
        elif self._check_first and all(map(is_well, course.ends.values())):
            self._check_first = self._begun = False
        else:
            self._answer(self._stopped(now), now)

    def _gone(self) -> list[int]:
        """Nodes that left in this attempt, or are about to."""
        leaving = (node for node, member in self.members.items() if member.leaving)
        return [*self._course.absent, *leaving]

    def _has_settled(self, now: float) -> bool:
        if self._course.idle_since is None:
            self._course.idle_since = now
        return now >= self._course.idle_since + SETTLING_SECONDS

    def _excuse(self, node: int, now: float) -> None:
        """No rank failed by itself: a node left."""
        if self._patience is not None:
            self._part(node, now)
        elif self._someone_is_done:
            self._give_up(self._lost(node, "it went away after others were done", now), now)
        elif self._got_somewhere:
            self._record.got_somewhere()

    def _part(self, node: int, now: float) -> None:
        """A node that left will not come back: either all were told to stop, or the others have lost it."""
        if all(map(is_well, self._course.ends.values())) and not any(self._course.absent.values()):
            self._enter(Phase.DONE, now)
            self._tell_all(Farewell())
        else:
            self._give_up(self._lost(node, "it went away", now), now)

    def _lost(self, node: int, message: str, now: float) -> Incident:
        end = End(self.ring.first_process(node), ExitCode.PEER_LOST, now, PeerLostError.cause, message)
        return Incident(self.attempt, node, end)

    def _stuck(self, now: float) -> Incident:
        """Some ranks do not end, although they were killed. What they hold, such as a GPU, is not released."""
        (node, member), *_ = busy = self._busy()
        ranks = sorted(member.running)
        who = f"rank {', '.join(map(str, ranks))}" if ranks else f"what the ranks of node {node} had started"
        who = who if self.ring.is_plain or not ranks else f"{who} (node {node})"
        message = f"SIGKILL has not ended {who} within {KILLED_SECONDS:.0f} s: it waits for a disk or a device"
        first = ranks[0] if ranks else self.ring.first_process(node)
        end = End(first, ExitCode.STALLED, now, "Stalled", message)
        return incident_of(self.attempt, node, end, (other for other, _ in busy))

    def _stopped(self, now: float) -> Incident:
        """The attempt is over although no rank failed and no node left."""
        ends = ((node, end) for node, ends in sorted(self._course.ends.items()) for end in ends)
        saved = (one for one in ends if one[1].exit_code == ExitCode.SAVED_AND_STOPPED)
        node, process = next(((node, end.process) for node, end in saved), (0, 0))
        message = "it stopped, although its supervisor had not been told to"
        return Incident(self.attempt, node, End(process, ExitCode.SAVED_AND_STOPPED, now, "Stopped", message))

    def _answer(self, incident: Incident, now: float) -> None:
        """Answers an incident with another attempt in place, or leaves it to the operator."""
        lost = self._patience is not None and self._gone()  # Without an operator nobody brings a node back.
        left = self._someone_is_done or self._check_first or lost or self._is_for_the_operator(incident)
        if left or not self._record.takes(incident, now, progressed=self._got_somewhere):
            self._give_up(incident, now)
            return
        self._course.answered = True

    def _is_for_the_operator(self, incident: Incident) -> bool:
        """Whether the job may have to end, since training got no further, or the rank needs a new pod.

        It does if it raised an error of its own before it got anywhere: here it would only raise it again. Without an
        operator there are no other pods, and nothing that ends a job.
        """
        if self._patience is not None:
            return False
        raised = is_explained(incident) and not self._got_somewhere
        return raised or self._record.gets_no_further(incident)

    @property
    def _got_somewhere(self) -> bool:
        return self.progressed or self._course.lasted >= LONG_SECONDS

    @property
    def _someone_is_done(self) -> bool:
        return bool(self._done) or any(member.doing is _Doing.DONE for member in self.members.values())

    def _give_up(self, incident: Incident, now: float) -> None:
        self._enter(Phase.DONE, now)
        self._tell_all(Leave(incident))

    def _enter(self, phase: Phase, now: float) -> None:
        self.phase, self.since = phase, now

    def _busy(self) -> list[tuple[int, Member]]:
        return [(node, member) for node, member in sorted(self.members.items()) if member.doing is _Doing.BUSY]

    def _tell_busy(self, message: Message) -> None:
        self.outbox.append(([node for node, _ in self._busy()], message))

    def _tell_all(self, message: Message) -> None:
        self.outbox.append((sorted(self.members), message))

    def drained(self) -> Iterator[tuple[Sequence[int], Message]]:
        """The messages to send and their receivers, once."""
        said, self.outbox = self.outbox, []
        yield from said
