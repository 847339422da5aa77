"""The actual state of a job's supervisors, in contrast to what their coordinator knows of them.

A link keeps the order of its messages. There is no order between messages on two links. When a link breaks, messages
that are on their way are lost, and each side notices the break at a time of its own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, groupby
from operator import attrgetter

from ddpjob_supervisor.gang.coordinator import Coordinator
from ddpjob_supervisor.gang.judging import LONG_SECONDS, NOT_OF_THE_CODE, Limits
from ddpjob_supervisor.gang.messages import (
    Beats,
    CodeRevision,
    End,
    Examine,
    Examined,
    Failed,
    FailedCode,
    Farewell,
    Finished,
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
)
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.watch.blame import Observation

BEGIN = 1_700_000_000.0


@dataclass(eq=False)
class Link:
    """A connection, as an outside observer sees it."""

    node: int
    to_coordinator: deque[Message] = field(default_factory=deque)
    to_member: deque[Message] = field(default_factory=deque)
    closed: bool = False
    """Whether nothing more can be sent. Messages that were sent before still arrive."""

    broken: bool = False
    """Whether messages that were on their way are lost."""

    def cut(self) -> None:
        """Breaks the link, so that messages on their way are lost."""
        self.closed = self.broken = True
        self.to_coordinator.clear()
        self.to_member.clear()


@dataclass
class Ranks:
    """The ranks of a node in one attempt."""

    attempt: int
    check: bool
    began: float
    order: tuple[int, ...] | None = None
    ends: list[End] = field(default_factory=list)
    """The ends of the ranks that have failed so far."""
    stepped: bool = False
    stopped: bool = False
    stuck: bool = False
    """Whether the ranks do not end although they were killed."""


@dataclass
class Supervisor:
    """The supervisor of one pod, simulated after gang/membership.py."""

    node: int
    incarnation: int
    attempt: int
    domain: str | None = None
    """The supervisor's topology domain; None if ranks do not follow placement, or its version does not support
    that."""
    process: int = 0
    """The supervisor's rank in the present attempt."""
    past: Past = field(default_factory=Past)
    made_with: CodeRevision = field(default_factory=CodeRevision)
    """The code with which its pod was made."""
    ranks: Ranks | None = None
    link: Link | None = None
    leaving: bool = False
    alone: bool = False
    done: bool = False
    """Whether its ranks have ended without a failure."""
    exit_code: int | None = None
    """The exit code; None while the supervisor runs."""

    @property
    def lives(self) -> bool:
        """Whether the supervisor still runs."""
        return self.exit_code is None

    def tell(self, message: Message) -> None:
        """Sends a message to the coordinator, if there is a connection."""
        if self.link is not None and not self.link.closed:
            self.link.to_coordinator.append(message)

    def hear(self, message: Message, now: float) -> None:
        """Carries out a message from the coordinator."""
        match message:
            case Start(attempt, past=past, check=check, order=order):
                assert self.ranks is None, f"{self} is to start attempt {attempt} while another one runs"
                assert order is None or self.domain is not None, f"{self} does not understand an order"
                self.attempt, self.past, self.done = attempt, past, False
                self.process = self.node if order is None else order.index(self.node)
                self.ranks = Ranks(attempt, check, now, order)
            case Stop(attempt) if self.ranks and attempt == self.attempt:
                self.ranks.stopped = True
            case Examine(attempt) if attempt == self.attempt:
                self.tell(Examined(attempt, (Observation(self.process),)))
            case Leave():
                self.exit(204)
            case Farewell():
                self.alone = True
                if self.ranks is None:
                    self.exit(0 if self.done else 205)

    def fail(self, end: End) -> None:
        """Makes one of the supervisor's ranks fail."""
        assert self.ranks is not None
        self.ranks.ends.append(end)
        if not self.ranks.stopped:
            self.tell(Failed(self.attempt))

    def end_ranks(self, code: int, now: float) -> None:
        """Ends all ranks. Those that had not failed end with this code."""
        ranks = self.ranks
        assert ranks is not None
        self.ranks = None
        ends = (*ranks.ends, End(self.process, code, now))
        if ranks.order is not None and self.domain is not None:
            self.tell(Located(self.domain))
        self.done = code == 0 and not ranks.ends and not ranks.check
        self.tell(Finished(ranks.attempt) if self.done else Idle(ranks.attempt, ends, ranks.stepped))
        if self.alone:
            self.exit(0 if self.done else ends[0].exit_code or 143)
        elif self.leaving and (self.link is None or not self.done):
            self.exit(ends[0].exit_code or 205)

    def exit(self, code: int) -> None:
        """Ends the supervisor. What it has sent before still arrives."""
        self.exit_code, self.ranks = code, None
        if self.link is not None:
            self.link.closed = True


def digest_of(revision: int) -> str:
    """The digest of the code that is sent as this revision."""
    return f"{revision:064x}"


@dataclass
class ObservedAttempt:
    """What the coordinator has learned about an attempt."""

    attempt: int
    check: bool
    began: float
    order: tuple[int, ...] = ()
    """The nodes in the order of their ranks."""
    failed: bool = False
    """Whether a rank failed, and was not killed by its supervisor."""
    excused: bool = False
    """Whether a supervisor left or was told to stop."""
    lost: dict[int, int] = field(default_factory=dict)
    """The incarnations, by node, of supervisors that disappeared without announcing it."""
    stepped: bool = False
    ended: float | None = None
    code: str = ""
    """The digest of its code."""
    replaced: bool = False
    """Whether it was ended because new code was sent."""


class Gang:
    """All nodes of a job, and its coordinator if there is one at present."""

    def __init__(self, nodes: int, limits: Limits, *, check: bool, domains: Sequence[str | None] = (None,)) -> None:
        """`domains` are the topology domains of its pods.

        If there are more pods, they begin again with the first domain.
        """
        self.nodes, self.limits = nodes, limits
        self._domains = cycle(domains)
        self.check = self.asked_to_check = check
        """Whether the machines still have to be tested."""
        self.now = BEGIN
        self.begun = 0
        """The last attempt that any coordinator started."""
        self.supervisors: dict[int, Supervisor] = {}
        self.links: dict[int, Link] = {}
        """The coordinator's links."""
        self.coordinator: Coordinator | None = None
        self.observed: ObservedAttempt | None = None
        self.restarts: list[float] = []
        self.fruitless = 0
        self.over = False
        """Whether a coordinator has decided that there will be no other attempt."""
        self.told: list[tuple[Supervisor, Link]] = []
        """The supervisors to which the coordinator has sent its last message."""
        self.dismissed: set[int] = set()
        """Nodes to which the present coordinator has sent Farewell."""
        self.newest = 0
        """The newest revision of code that the present coordinator was told of. New pods tell it by their Hello."""
        self.zombies: list[Supervisor] = []
        """Supervisors that still run somewhere out of reach, although the operator has replaced their pods."""
        self.code = CodeRevision(0, digest_of(0))
        """The code that new pods have."""
        for node in range(nodes):
            self.supervisors[node] = Supervisor(node, 1, 1, next(self._domains), made_with=self.code)
        self.stepped: set[str] = set()
        """The digests of the codes that have finished a step."""
        self.refused: set[str] = set()
        """The digests of the codes that failed before their first step."""
        self._new_coordinator()

    def _new_coordinator(self) -> None:
        self.links, self.observed, self.fruitless, self.restarts = {}, None, 0, []
        self.dismissed, self.newest = set(), 0
        self.coordinator = Coordinator(self.nodes, self.limits, self.now, check_first=self.check, code=self.code)

    @property
    def living(self) -> list[Supervisor]:
        """The supervisors that run, including those that should not."""
        return [one for one in (*self.supervisors.values(), *self.zombies) if one.lives]

    @property
    def _open(self) -> list[Link]:
        """Connections to the coordinator, including those that have not been answered with Welcome yet."""
        return [*self.links.values(), *(one.link for one in self.living if one.link)]

    # What the coordinator does.

    def tell_coordinator(self, happens: Callable[[Coordinator], None]) -> None:
        """Passes an event to the coordinator, and sends the messages that follow from it."""
        coordinator = self.coordinator
        assert coordinator is not None
        known, phase = coordinator.past.incidents, coordinator.phase
        failed, tries = coordinator.past.failed, coordinator.tries_code
        happens(coordinator)
        if coordinator.past.incidents != known:
            self._check_incident(coordinator, known)
            free = self.observed is not None and self.observed.excused
            excused = free or coordinator.past.incidents[-1].end.cause in NOT_OF_THE_CODE
            assert excused or not tries or coordinator.current.progressed, "untried code costs no restart"
        if coordinator.past.failed is not None and coordinator.past.failed != failed:
            self._check_failed_code(coordinator, coordinator.past.failed)
        said = [(node, message) for nodes, message in coordinator.drained() for node in nodes]
        start = next((message for _, message in said if isinstance(message, Start)), None)
        if start is not None:
            self._check_start(coordinator, start)
        for node, message in said:
            if isinstance(message, Farewell):
                going = node not in coordinator.members or coordinator.members[node].leaving or node in self.dismissed
                assert phase is not Phase.STOPPING or going, "what ended the attempt is told to nobody"
                self.dismissed.add(node)
            link = self.links[node]
            if link.closed:
                continue
            if isinstance(message, Leave | Farewell):
                self.told += [(one, link) for one in self.living if one.link is link]
            link.to_member.append(message)
        self.over |= coordinator.phase is Phase.DONE
        self._may_end()

    def _may_end(self) -> None:
        """Ends the coordinator when everything has been sent, because it is part of rank 0's supervisor."""
        first = self.supervisors[0]
        if (
            self.coordinator is None
            or first.lives
            or (first.exit_code == 0 and self.coordinator.phase is not Phase.DONE)
        ):
            return
        self.coordinator = None
        for link in self._open:
            link.closed = True

    def _check_incident(self, coordinator: Coordinator, known: tuple[Incident, ...]) -> None:
        *_, new = incidents = coordinator.past.incidents
        attempts = [incident.attempt for incident in incidents]
        assert attempts == sorted(set(attempts)), f"an attempt has two incidents: {attempts}"
        assert not known or known[-1] in incidents, "incidents are not forgotten"
        assert self.observed is not None
        assert new.attempt == self.observed.attempt, "the incident is the last attempt's"
        assert self.observed.order[new.end.rank] == new.node, f"{new} is not of the node that had that rank"
        assert not self.observed.check, "what the trial of the machines finds is the operator's"
        assert new.end.cause not in self.limits.left_causes, f"{new} is the operator's"
        assert new.end.exit_code not in self.limits.left_codes, f"{new} is the operator's"
        recent = [time for time in self.restarts if self.now - time < self.limits.window_seconds]
        assert len(recent) < self.limits.restarts, f"{new} is one restart too many: {recent}"
        self.restarts.append(self.now)
        self.fruitless = 0 if self._got_somewhere(self.observed) else self.fruitless + 1
        assert self.fruitless < 2, f"{new}: two attempts in a row got nowhere"
        raised = new.end.exception is not None and new.end.cause != "PeerLost"
        assert not (self.fruitless and raised), f"{new}: it would be raised again here"

    def _check_failed_code(self, coordinator: Coordinator, failed: FailedCode) -> None:
        assert failed.digest not in self.stepped, f"{failed} is given up, and has finished a step"
        assert self.observed is not None
        assert (failed.digest, failed.incident.attempt) == (self.observed.code, self.observed.attempt)
        assert not self.observed.check, "a test of the machines says nothing about the code"
        assert not self.observed.excused, "nor does what ranks do while a node leaves"
        assert failed.incident.end.cause not in NOT_OF_THE_CODE
        assert coordinator.past.code.digest != failed.digest
        self.refused.add(failed.digest)
        if self.code.revision == failed.revision:
            self.code = CodeRevision(failed.revision, coordinator.past.code.digest)

    @property
    def takes_code(self) -> bool:
        """Whether ranks run whose code can be replaced."""
        coordinator = self.coordinator
        runs = coordinator is not None and coordinator.phase in {Phase.RUNNING, Phase.STALLED}
        return runs and coordinator is not None and not coordinator.someone_is_done

    def send_code(self, *, applies: bool) -> None:
        """Sends new code, as `ddpjob submit --replace --in-place` does.

        Without `applies`, the command dies after it has changed the job.
        """
        revision = self.code.revision + 1
        self.code = CodeRevision(revision, digest_of(revision), "alice")
        assert self.observed is not None
        self.observed.replaced |= applies

        def replace(coordinator: Coordinator) -> None:
            coordinator.prepare(CodeRevision(digest=self.code.digest, by="alice"))
            if applies:
                coordinator.replace_code(self.code, self.now)

        self.tell_coordinator(replace)

    def _got_somewhere(self, observed: ObservedAttempt) -> bool:
        ended = self.now if observed.ended is None else observed.ended
        return observed.stepped or ended - observed.began >= LONG_SECONDS

    def _check_start(self, coordinator: Coordinator, start: Start) -> None:
        """Checks that two attempts never run at the same time, and that the end of the last attempt is explained."""
        assert set(coordinator.members) == set(range(self.nodes))
        for node, member in coordinator.members.items():
            one = self.supervisors[node]
            if one.incarnation == member.incarnation and one.link is self.links[node]:
                assert one.ranks is None, f"attempt {start.attempt} is to start, and {one} runs"
        observed, passed = self.observed, False
        if observed is not None:
            passed = observed.check and not observed.failed and not observed.excused
            self._check_accounts(coordinator, observed, passed=passed)
        if passed:
            assert observed is not None
            assert (start.attempt, start.check) == (observed.attempt, False), (
                "the attempt for which the machines were tried"
            )
        else:
            assert start.attempt > self.begun, f"attempt {start.attempt} was begun before"
            assert start.check == self.check, "the machines are tried until they are well"
        self.check &= start.check
        digest, revision = start.past.code.digest, start.past.code.revision
        assert digest not in self.refused, f"attempt {start.attempt} runs code that has failed"
        assert revision >= self.newest, f"attempt {start.attempt} runs older code than that of a pod: {self.newest}"
        known = digest == digest_of(revision) or digest_of(revision) in self.refused
        assert known, f"attempt {start.attempt} runs {digest} as revision {revision}"
        self._check_order(coordinator, start)
        order = start.order or tuple(range(self.nodes))
        self.begun, self.observed = start.attempt, ObservedAttempt(start.attempt, start.check, self.now, order)
        self.observed.code = digest

    def _check_order(self, coordinator: Coordinator, start: Start) -> None:
        """Checks that ranks follow the placement that the coordinator knows of, if all supervisors support this."""
        domains = [coordinator.members[node].domain for node in range(self.nodes)]
        assert (start.order is None) == (start.check or None in domains), f"{start.order} for {domains}"
        if start.order is not None:
            assert (start.order[0], sorted(start.order)) == (0, [*range(self.nodes)])
            assert len([*groupby(start.order[1:], key=domains.__getitem__)]) <= len({*domains[1:]})

    def _check_accounts(self, coordinator: Coordinator, observed: ObservedAttempt, *, passed: bool) -> None:
        """Checks that the end of an attempt has exactly one reason, and that it is recorded."""
        incidents = list(coordinator.past.incidents)
        if coordinator.past.failed is not None:
            incidents.append(coordinator.past.failed.incident)
        recorded = observed.replaced or any(incident.attempt == observed.attempt for incident in incidents)
        assert recorded or not observed.failed, f"a rank failed in {observed}, and that is no incident"
        assert recorded or observed.excused or passed, f"nothing tells why {observed} ended"
        back = [node for node, lost in observed.lost.items() if coordinator.members[node].incarnation == lost]
        assert recorded or not back, f"nobody but the gang knows why {observed} ended"
        if not recorded and self._got_somewhere(observed):
            self.fruitless = 0

    def ending(self) -> None:
        """Records when the coordinator ends an attempt."""
        if (
            self.coordinator
            and self.observed
            and self.observed.ended is None
            and self.coordinator.phase is Phase.STOPPING
        ):
            self.observed.ended = self.now

    # What happens to links.

    def connect(self, one: Supervisor) -> None:
        """Connects a supervisor to the coordinator."""
        one.link = Link(one.node)
        code = max(one.made_with, one.past.code, key=attrgetter("revision"))
        identity = ("uid", one.node, one.incarnation, one.attempt, 29502, "0.1.0")
        hello = Hello(*identity, domain=one.domain, revision=code.revision, code=code.digest)
        one.link.to_coordinator.append(hello)

    def to_coordinator(self, link: Link) -> None:
        """Delivers the next message on a link to the coordinator."""
        message = link.to_coordinator.popleft()
        if self.coordinator is None:
            return
        if isinstance(message, Hello):
            self._welcome(link, message)
        elif self.links.get(link.node) is link:
            self._note(link.node, message)
            self.tell_coordinator(lambda coordinator: coordinator.said(link.node, message, self.now))
            self.ending()

    def _welcome(self, link: Link, hello: Hello) -> None:
        assert self.coordinator is not None
        if self.coordinator.is_outdated(hello):
            link.closed = True
            return
        former = self.links.get(link.node)
        if former is not None:
            former.closed = True
            former.to_coordinator.clear()
            self._excuse(link.node)
        self.links[link.node], self.newest = link, max(self.newest, hello.revision)
        self.tell_coordinator(lambda coordinator: coordinator.joined(link.node, hello, "", self.now))
        self.ending()

    def _note(self, node: int, message: Message) -> None:
        """Keeps account of the messages that the coordinator receives."""
        observed = self.observed
        coordinator = self.coordinator
        if coordinator is None or observed is None or node not in coordinator.members:
            return
        match message:
            case Leaving() if coordinator.phase is not Phase.GATHERING:
                observed.excused = True
            case Idle(attempt, ends, progressed) if attempt == observed.attempt:
                observed.failed |= any(end.cause not in {"", "PeerLost"} for end in ends)
                observed.stepped |= progressed
                self.stepped |= {observed.code} if progressed else set()
            case Beats(attempt, beats) if attempt == observed.attempt:
                observed.stepped |= bool(beats)
                self.stepped |= {observed.code} if beats else set()

    def _excuse(self, node: int) -> None:
        observed, coordinator = self.observed, self.coordinator
        if (
            observed is None
            or coordinator is None
            or node not in coordinator.members
            or coordinator.phase is Phase.GATHERING
        ):
            return
        observed.excused = True
        if not coordinator.members[node].leaving:
            observed.lost[node] = coordinator.members[node].incarnation

    def lost_by_coordinator(self, link: Link) -> None:
        """Makes the coordinator notice that a connection is dead."""
        if self.coordinator is None:
            return
        del self.links[link.node]
        self._excuse(link.node)
        self.tell_coordinator(lambda coordinator: coordinator.left(link.node, self.now))
        self.ending()

    def to_member(self, one: Supervisor) -> None:
        """Delivers the coordinator's next message to a supervisor."""
        assert one.link is not None
        one.hear(one.link.to_member.popleft(), self.now)
        self._may_end()

    def lost_by_member(self, one: Supervisor) -> None:
        """Makes a supervisor notice that its connection is dead.

        Without a coordinator its ranks are stopped, unless the coordinator has sent Farewell.
        """
        one.link = None
        if one.ranks is not None and not one.alone:
            one.ranks.stopped = True
        elif one.ranks is None and one.leaving:
            one.exit(205)
            self._may_end()

    # What happens to pods.

    def ends(self, one: Supervisor, code: int) -> None:
        """Ends the ranks of a node."""
        one.end_ranks(code, self.now)
        self._may_end()

    def dies(self, one: Supervisor, code: int = 137) -> None:
        """Ends a pod immediately."""
        one.exit_code, one.ranks = code, None
        if one.link is not None:
            one.link.cut()
        if one.node == 0 and self.coordinator is not None:
            self.coordinator = None
            for link in self._open:
                link.cut()

    def replace(self, node: int, asked: Callable[[list[Supervisor]], list[Supervisor]]) -> None:
        """Replaces a pod, as the operator does.

        A new pod of rank 0 asks some of the running supervisors for the history.
        """
        former = self.supervisors[node]
        if former.lives:
            self.zombies.append(former)
        living = [one for one in self.supervisors.values() if one.lives and one.node != node]
        attempt = max(self.begun, 1) if living else self.begun + 1
        self.supervisors[node] = Supervisor(
            node, former.incarnation + 1, attempt, next(self._domains), made_with=self.code
        )
        if node == 0:
            self.check = self.asked_to_check
            self._new_coordinator()
            if living:
                self._remember(attempt, Past())
            for one in asked(living):
                self._remember(one.attempt, one.past)

    def _remember(self, attempt: int, past: Past) -> None:
        assert self.coordinator is not None
        self.coordinator.remember(attempt, past)
        self.restarts, self.fruitless = [*self.coordinator.past.recent], self.coordinator.past.fruitless
