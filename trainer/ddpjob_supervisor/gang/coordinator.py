"""The coordinator's decisions: who has joined, which attempt runs, what ended it, and what comes next.

Pure: its methods receive an event and the time of the event, and put the messages to be sent into an outbox. Each
event (`joined`, `left`, `said`, `found_stalled`, `blamed`, `tick`) is recorded first; then `_advance` leaves the
present state if that is over. The module `states` defines the states.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.exit_codes import ExitCode
from msgspec import structs

from ddpjob_supervisor.watch.blame import Observation

from .device_failures import DEVICE_FAILED
from .judging import (
    INTERRUPTED,
    KILLED_SECONDS,
    LONG_SECONDS,
    NOT_OF_THE_CODE,
    PEER_LOST,
    Ledger,
    Limits,
    first_of,
    has_parted,
    incident_of,
    is_consequence,
    is_explained,
    is_of_a_stall,
    is_well,
    observation_of,
)
from .messages import (
    STALLED,
    Beats,
    Begin,
    CodeRevision,
    End,
    Examine,
    Examined,
    Failed,
    FailedCode,
    Farewell,
    Finish,
    Finished,
    HeldProgram,
    Hello,
    Idle,
    Incident,
    Installed,
    Leave,
    Leaving,
    Located,
    Look,
    Looked,
    Message,
    Past,
    Start,
    Stop,
    UnreadableError,
)
from .ring import Ring, order_of
from .states import (
    Attempt,
    Done,
    Gathering,
    Holding,
    Member,
    MemberState,
    Phase,
    Preflight,
    RunEnd,
    Running,
    Stall,
    Stalled,
    State,
    Stopping,
)

SETTLING_SECONDS = 1.0
"""After ranks have lost a peer, how long to wait to find out whether a node is lost.

A rank notices immediately that its peer is gone, but the coordinator may notice a moment later that the peer's node
is gone."""

PARTING_SECONDS = 3.0
"""How long the other ranks may go on after a rank has ended because its node was told to stop.

When a job is suspended, all of its nodes are told to stop within this time, and can still save. When only one node is
drained, the wait costs nothing: its replacement pod takes longer to come up."""

ABANDONED = "the connection to the command that ran it was lost"

EXAMINING_SECONDS = 5.0
"""How long the examination of a stalled gang's ranks may take. A moment is usually enough, but a busy node may answer
late, and a rank whose answer comes too late is blamed for the stall."""


class Coordinator:
    """The gang as its coordinator sees it.

    Times are in seconds since the epoch, from a clock that neither goes back nor jumps.
    """

    def __init__(
        self,
        nodes: int,
        limits: Limits,
        now: float,
        *,
        processes: int = 1,
        check_first: bool = False,
        joining_seconds: float | None = None,
        idle_seconds: float | None = None,
        code: CodeRevision | None = None,
    ) -> None:
        """`joining_seconds` is how long to wait for missing nodes; None if an operator replaces them.

        `idle_seconds` is how long a held gang waits for the next program; None if the gang is not held. `code` is the
        code with which this pod was made.
        """
        self.nodes = nodes
        self.members: dict[int, Member] = {}
        self.state: State = Gathering(now)
        self.current = Attempt(0, Ring(range(nodes), processes), now)
        """The present attempt. While the gang gathers, the last one, whose number is 0 if there has been no
        attempt."""
        self.outbox: list[tuple[Sequence[int], Message]] = []
        self._processes = processes
        self._ledger = Ledger(limits)
        self._made_with = code or CodeRevision()
        self._have = {self._made_with.digest: self._made_with}
        """The codes that are on this node, by their digests. Members get what they lack from here."""
        self._know(self._made_with)
        self._check_first = check_first
        """Whether an attempt that only tests the machines must still run first."""
        self._reports_steps = False
        """Whether a rank has ever reported a step."""
        self._settled = ""
        """The digest of the last code that has finished a step, or has run long enough without reporting any."""
        self._joining_seconds = joining_seconds
        self.idle_seconds = idle_seconds
        self.program: HeldProgram | None = None
        """The program that runs, or that ran last, in a held gang."""
        self.outcome: RunEnd | None = None
        """How the last run has ended, if the gang is held."""
        self._idle_since: float | None = None
        """Since when a held gang has run nothing; None before the gang is complete, and during a run."""
        self._lowest = 1
        """The lowest number that the next attempt may have, because lower numbers may already have been used."""
        self._newest: dict[int, int] = {}
        """The highest incarnation of each node that has joined."""
        self._done: set[int] = set()
        """Nodes whose ranks have finished and whose supervisors have left."""

    @property
    def attempt(self) -> int:
        """The number of the present attempt or, while the gang gathers, of the last attempt."""
        return self.current.number

    @property
    def phase(self) -> Phase:
        """The name of the present state."""
        return self.state.phase

    @property
    def succeeded(self) -> bool:
        """Whether the program has finished: all ranks of node 0 are done."""
        return isinstance(self.state, Done) and self.state.succeeded

    @property
    def missing(self) -> tuple[int, ...]:
        """Nodes whose supervisors have not joined."""
        return tuple(node for node in range(self.nodes) if node not in self.members and node not in self._done)

    @property
    def past(self) -> Past:
        """What is known about former attempts."""
        return self._ledger.past

    # Events.

    def remember(self, attempt: int, past: Past) -> None:
        """Adopts the gang's history from a running supervisor, because this coordinator is new.

        `attempt` is the last attempt of which that supervisor has a record. `past` is empty if that supervisor is
        new, too.
        """
        assert isinstance(self.state, Gathering), "a coordinator asks before its first attempt"
        self.state = replace(self.state, inherited=True)
        self.current.number = max(self.attempt, attempt)
        self._lowest = max(self._lowest, attempt + 1)
        # These counts only grow, so the history with the highest counts is the newest.
        newest = max(past, self.past, key=attrgetter("restarts", "failures", "ran"))
        # Among codes of one revision that of the newest history counts: another one may have failed since then.
        code = max(newest.code, past.code, self.past.code, key=attrgetter("revision"))
        # The former code went with the former pod of this node, and nobody would tell that it is needed no more.
        self._ledger.past = structs.replace(newest, code=code, former=None)

    def is_outdated(self, hello: Hello) -> bool:
        """Whether a newer pod of the same node has already joined, so that this caller must not join again."""
        return hello.incarnation < self._newest.get(hello.node, 0)

    def joined(self, node: int, hello: Hello, address: str, now: float) -> None:
        """Records that a supervisor has joined. At this time it runs no ranks."""
        if node in self.members:  # The node's former connection broke, and nobody noticed.
            self.left(node, now)
        done = node in self._done and hello.incarnation == self._newest[node]
        self._newest[node] = max(hello.incarnation, self._newest.get(node, 0))
        self.members[node] = Member(hello.incarnation, address, hello.attempt, hello.domain)
        # The command that replaces the code may have died after it had written the code into the job.
        own = self._have.get(hello.code, CodeRevision(digest=hello.code))
        self._know(structs.replace(own, revision=hello.revision))
        if done:
            self._dismiss(node)  # The former connection broke before the Farewell arrived.
        self._advance(now)

    def left(self, node: int, now: float) -> None:
        """Records that the connection to a supervisor is lost."""
        member = self.members.pop(node, None)
        if member is None or isinstance(self.state, Done):
            return
        if member.state is MemberState.DONE:
            self._done.add(node)
        elif not isinstance(self.state, Gathering):  # While the gang gathers, no rank runs, so none is lost.
            self.current.left[node] = None if member.leaving else member.incarnation
            if member.state is MemberState.BUSY:
                self._stop(now)
        self._advance(now)

    def said(self, node: int, message: Message, now: float) -> None:
        """Handles a message from a member. A message about a former attempt is ignored.

        Raises:
            UnreadableError: The message is about ranks of another node.
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
                self._check_ranks(node, (beat["rank"] for beat in beats))
                member.beats, member.running = tuple({**beat, "node": node} for beat in beats), running
                if any(beat.get("step") is not None for beat in beats):
                    self.current.progressed, self.current.delay = True, None
                    self._note_step()
                return  # Skips `_advance`: beats end no state, and are by far the most frequent messages.
            case Installed(attempt) if attempt == self.attempt:
                self.current.installed.add(node)
                if not self.installs:
                    self._tell_busy(Begin(attempt))
            case Examined(attempt) | Looked(attempt) if attempt == self.attempt:
                self._check_ranks(node, (observation.rank for observation in message.observations))
                self._observed(node, message)
            case Failed(attempt) | Idle(attempt) | Finished(attempt) if (
                attempt == self.attempt and member.state is MemberState.BUSY
            ):
                if isinstance(message, Failed) and message.end is not None:
                    self._check_ranks(node, [message.end.rank])
                self.current.heard.setdefault(node, now)
                self._ended_some(node, member, message, now)
            case _:
                return
        self._advance(now)

    def _observed(self, node: int, message: Examined | Looked) -> None:
        """Records what the ranks of a node are doing."""
        if isinstance(message, Looked):
            self.current.looks[node] = message.observations
        elif isinstance(self.state, Stalled):
            self.state = replace(self.state, observations={**self.state.observations, node: message.observations})

    def _ended_some(self, node: int, member: Member, message: Failed | Idle | Finished, now: float) -> None:
        """Reacts to a report that some ranks of a node have failed, or that all of them have ended."""
        match self.state, message:
            case Running(), Failed() if self.current.interrupted:
                pass  # It has lost a peer that has ended before. Others may still save.
            case Running(), Failed(waited=True):
                self.found_stalled(now, now)  # The rank timed out in a collective that another rank did not enter.
            case Stalled(), Failed(end=End() as end):
                self._blame(node, end, now)
            case Stalled(), Failed(cause=cause, waited=waited) if waited or cause == PEER_LOST:
                pass  # A result of the stall, whose cause is still being investigated.
            case Running(), Failed(cause=cause) if cause == PEER_LOST and self._is_leaving:
                self._part(now)
            case _, Failed():
                self._stop(now)
            case state, Idle(_, ends, progressed):
                member.state, self.current.ends[node] = MemberState.IDLE, ends
                self.current.progressed |= progressed
                # Ranks that timed out in a collective, or lost a peer, add nothing to what is known about a stall.
                known = isinstance(state, Stalled) and all(is_of_a_stall(end) for end in ends)
                if isinstance(state, Running) and self._is_leaving and has_parted(ends):
                    self._part(now)
                # If all ranks of the node ended well, other nodes may still be saving.
                elif not is_well(ends) and not known and not self.current.interrupted:
                    self._stop(now)
            case Stopping(), Finished() if not member.leaving:
                member.state = MemberState.IDLE  # The node takes part in the next attempt, and finishes again.
            case Preflight() | Running() | Stalled(), Finished() if node == 0:
                # Node 0's supervisor leaves, and without it there can be no further attempt. Usually none is needed.
                member.state = MemberState.DONE
                self.state = Done(now, succeeded=True)
                self._tell_all(Farewell())
            case _, Finished():
                self._dismiss(node)

    def _check_ranks(self, node: int, ranks: Iterable[int]) -> None:
        first = self.current.ring.first_rank(node)
        for rank in ranks:
            if not first <= rank < first + self._processes:
                raise UnreadableError(f"{rank} is not a rank of node {node}")

    def found_stalled(self, since: float, now: float) -> None:
        """Records that no rank has made progress since `since`, and has all ranks examined before they end."""
        if isinstance(self.state, Running):
            self.state, self.current.stall = Stalled(now), Stall(since)
            self._tell_busy(Examine(self.attempt))

    def look(self) -> None:
        """Has every running rank report what it is doing."""
        self.current.looks = {}
        self._tell_busy(Look(self.attempt))

    @property
    def looked(self) -> bool:
        """Whether all ranks have reported since `look`."""
        return self.current.looks.keys() >= self._busy().keys()

    @property
    def examined(self) -> bool:
        """Whether each rank of a stalled gang has been examined."""
        return isinstance(self.state, Stalled) and self.state.observations.keys() >= self._busy().keys()

    def observations(self) -> dict[int, Observation]:
        """What each rank was doing, by rank, as far as known. On nodes that are not busy, all ranks have ended."""
        busy, ring, ends = self._busy(), self.current.ring, self.current.ends
        all_ranks = range(self.nodes * self._processes)
        found = {rank: observation_of(rank, None) for rank in all_ranks if ring.node_of(rank) not in busy}
        ended = (end for node in ends.keys() - busy.keys() for end in ends[node])
        found |= {end.rank: observation_of(end.rank, end) for end in ended}
        reported = self.state.observations if isinstance(self.state, Stalled) else {}
        return found | {
            observation.rank: observation for node in reported.keys() & busy.keys() for observation in reported[node]
        }

    def blamed(self, rank: int | None, message: str, step: int | None, now: float) -> None:
        """Ends a stalled attempt: `rank` stalled it, or None if no rank could be singled out."""
        if isinstance(self.state, Stalled):
            node = None if rank is None else self.current.ring.node_of(rank)
            end = End(rank or 0, ExitCode.STALLED, now, STALLED, message, None, step)
            self._blame(node, end, now)

    def _blame(self, node: int | None, end: End, now: float) -> None:
        """Ends a stalled attempt, for the reason in `end`. `node` is None if no particular rank is to blame."""
        assert self.current.stall is not None, "the gang has stalled"
        rank = None if node is None else end.rank
        self.current.stall = Stall(self.current.stall.since, node, rank, end.message)
        tied = node is None  # All ranks are equally likely to be the cause.
        self._stop(now, incident_of(self.attempt, node or 0, end, () if tied else self.members, tied=tied))

    def prepare(self, code: CodeRevision) -> None:
        """Records that a code has arrived here, which may soon take the place of the present one.

        Another code that was prepared before, and does not run, is not here any more.
        """
        stay = {self._made_with.digest, *self.needed}
        self._have = {digest: known for digest, known in self._have.items() if digest in stay}
        self._have[code.digest] = code

    def replace_code(self, code: CodeRevision, now: float) -> None:
        """Ends the present attempt, so that the next one runs this code, which has arrived here.

        The change is planned: it is no incident, and costs no restart.
        """
        assert isinstance(self.state, Running | Stalled), "ranks run the former code"
        self.current.replaced = True
        self._know(structs.replace(code, time=now, attempt=self.attempt + 1))
        self._stop(now)
        self._advance(now)

    def renumber(self, revision: int) -> None:
        """Records a later revision that is the same code as the present one."""
        self._know(structs.replace(self.past.code, revision=revision))

    def run(self, program: HeldProgram, now: float) -> None:
        """Begins an attempt that runs a program in a held gang."""
        assert isinstance(self.state, Holding), "one program runs at a time"
        self.program, self.outcome, self._idle_since = program, None, None
        self._begin(self.attempt, now)
        self._advance(now)

    @property
    def installs(self) -> bool:
        """Whether ranks of a held gang wait until all nodes have the packages of their program."""
        wanted = self.program is not None and self.program.installs and isinstance(self.state, Running)
        return wanted and not self.current.installed >= self._busy().keys()

    def wanted(self, now: float) -> None:
        """Records that somebody wants to run a program in a held gang.

        Otherwise the hold might end before its nodes are ready, or before the code has arrived.
        """
        if self._idle_since is not None:
            self._idle_since = now

    def interrupt(self, attempt: int, now: float, *, gone: bool = False) -> None:
        """Ends the ranks of an attempt, because the person who runs the program does not want it any more.

        `gone` means that nobody has said so, but the connection to their command was lost.
        """
        if attempt == self.attempt and isinstance(self.state, Running | Stalled):
            self.current.abandoned = gone and not self.current.interrupted
            self.current.interrupted = True
            self._stop(now)
            self._advance(now)

    def finish_run(self, attempt: int) -> None:
        """Lets the ranks of an attempt save and end, for the same reason. The caller limits the time for it."""
        if attempt == self.attempt and isinstance(self.state, Running | Stalled):
            self.current.interrupted = True
            self._tell_busy(Finish(attempt))

    @property
    def idle_until(self) -> float | None:
        """When a held gang ends unless a program is run; None if the gang is not complete, or runs a program."""
        return None if self._idle_since is None else self._idle_since + (self.idle_seconds or 0.0)

    def tick(self, now: float) -> None:
        """Leaves each state whose time limit has passed. To be called at `next_moment`."""
        self._advance(now)

    def next_moment(self) -> float | None:
        """When `tick` has to be called next, even if nothing else happens; None if no time limit applies now."""
        match self.state:
            case Gathering(since) if self._joining_seconds is not None:
                return since + self._joining_seconds
            case Stalled(since):
                return since + EXAMINING_SECONDS
            case Running(parting_since=float(since)):
                return since + PARTING_SECONDS
            case Stopping(since, _, None) if self._killed:
                return since + KILLED_SECONDS
            case Stopping(settling_since=float(since)):
                return since + SETTLING_SECONDS
        return self.idle_until if isinstance(self.state, Holding) else self._kept_from

    # Transitions.

    def _advance(self, now: float) -> None:
        """Leaves the present state if it has to end now, and repeats this with each new state."""
        if self._kept_from is not None and now >= self._kept_from:
            self._keep_code()
        state = None
        while state is not self.state:
            state, busy = self.state, self._busy()
            match state:
                case Gathering() if self._is_complete:
                    self._start(state, now)
                case Gathering(since) if self._joining_seconds is not None and now >= since + self._joining_seconds:
                    lost = self._lost(
                        (*self.missing, *self._gone(), 0)[0],
                        f"it has not joined within {self._joining_seconds:.0f} s",
                        now,
                    )
                    self._give_up(lost, now)
                case Holding() if not self._is_complete:
                    self.state = Gathering(now)
                case Holding() if self.idle_until is not None and now >= self.idle_until:
                    self.state = Done(now, succeeded=True)
                    self._tell_all(Farewell())
                case Preflight() | Running() | Stalled() if not busy:
                    self._stop(now)
                case Running(parting_since=float(since)) if now >= since + PARTING_SECONDS:
                    self._stop(now)
                case Stopping() if not busy:
                    self._judge(state, now)
                case Stopping(since, verdict) if self._killed and now >= since + KILLED_SECONDS:
                    self._give_up(self._stuck(self._killed, verdict, now), now)

    @property
    def _is_complete(self) -> bool:
        return len(self.members) == self.nodes and not any(member.leaving for member in self.members.values())

    def _start(self, state: Gathering, now: float) -> None:
        """Begins the next attempt, for which all nodes have joined. A held gang waits for a program first."""
        back = [node for node, incarnation in state.lost.items() if self.members[node].incarnation == incarnation]
        if back:  # To the operator nothing has changed (same pod), so only the coordinator can report this incident.
            self._answer(self._lost(back[0], "its supervisor was out of reach", now), now)
            if isinstance(self.state, Done):
                return
        if self.past.code.digest not in self._have:
            self._give_up(self._lost(0, "another node's pod has newer code, so all pods are replaced", now), now)
            return
        number = self._next_number(state)
        if self.idle_seconds is None or self._check_first:
            self._begin(number, now)
        else:
            self._idle_since = now if self._idle_since is None else self._idle_since
            self.current, self._lowest = Attempt(number, Ring(range(self.nodes), self._processes), now), number
            self.state = Holding(now)

    def _begin(self, number: int, now: float) -> None:
        # The preflight names nodes by their numbers, so its ranks are in the order of these numbers.
        check, domains = self._check_first, {node: member.domain for node, member in self.members.items()}
        order = None if check else order_of(domains)
        ring = Ring(range(self.nodes) if order is None else order, self._processes)
        self.current = Attempt(number, ring, now, code=self.past.code.digest)
        self._lowest = self.attempt + 1
        for member in self.members.values():
            member.state, member.beats, member.running = MemberState.BUSY, (), ()
        self.state = Preflight(now) if check else Running(now)
        program = None if check else self.program
        members = {str(node): member.address for node, member in self.members.items()}
        self._tell_all(
            Start(self.attempt, port=0, members=members, past=self.past, check=check, order=order, program=program)
        )

    def _know(self, code: CodeRevision) -> None:
        """Takes note of a code, unless a newer one is known. Code that has failed is not tried again."""
        known, former, failed = self.past.code, self.past.former, self.past.failed
        if code.revision <= known.revision and known.digest:
            return
        if failed is not None and failed.digest == code.digest:
            failed = structs.replace(failed, revision=code.revision)
            code = structs.replace(known, revision=code.revision)
        elif known.digest and known.digest != code.digest:
            former = former or known
        self._ledger.past = structs.replace(
            self.past, code=code, former=former if former and former.digest != code.digest else None, failed=failed
        )

    @property
    def needed(self) -> tuple[str, ...]:
        """The digests of the codes that members may have to get from this node."""
        return tuple(code.digest for code in (self.past.code, self.past.former) if code is not None)

    @property
    def tries_code(self) -> bool:
        """Whether the present attempt runs new code, which has not finished a step, and the former code is here."""
        past = self.past
        runs = self.current.code == past.code.digest and not self._check_first
        return runs and past.former is not None and past.former.digest in self._have

    @property
    def has_untried_code(self) -> bool:
        """Whether the code has taken the place of other code, and this coordinator has seen no step of it."""
        return self.past.code.revision > 0 and self._settled != self.past.code.digest

    def _note_step(self) -> None:
        """Records that ranks finish steps, so that new code stays."""
        self._reports_steps = True
        self._keep_code()

    def _keep_code(self) -> None:
        self._settled = self.current.code
        if self.tries_code:
            self._ledger.past = structs.replace(self.past, former=None)

    def _is_of_new_code(self, incident: Incident) -> bool:
        """Whether new code has failed before its first step, and the former code can run again.

        While a node is lost or leaves, ranks may fail in any way.
        """
        excused = incident.end.cause in NOT_OF_THE_CODE or self._gone()
        return self.tries_code and not excused and not self.someone_is_done

    @property
    def _kept_from(self) -> float | None:
        """When new code that may report no steps has run for so long that it stays; None if that does not apply."""
        if not isinstance(self.state, Running) or self.current.code != self.past.code.digest:
            return None
        return self.state.since + LONG_SECONDS if self.has_untried_code and not self._reports_steps else None

    def _go_back(self, incident: Incident) -> None:
        """Lets the next attempt run the former code, because the new code has failed before its first step.

        The former code gets the revision of the new one: pods that are made with the new code do not bring it back.
        """
        code, former = self.past.code, self.past.former
        assert former is not None, "new code is tried"
        failed = FailedCode(code.revision, code.digest, code.by, incident)
        again = structs.replace(former, revision=code.revision)
        self._ledger.past = structs.replace(self.past, code=again, former=None, failed=failed)

    def _next_number(self, state: Gathering) -> int:
        """Returns a number that no attempt has had, and that is at least the number that the operator expects."""
        # A former coordinator may have started an attempt that is unknown to the supervisors that answered.
        known = (member.attempt + (state.inherited and node > 0) for node, member in self.members.items())
        return max(self._lowest, *known)

    def _stop(self, now: float, verdict: Incident | None = None) -> None:
        """Ends the attempt. Its ranks are killed immediately, because they have nothing to save.

        `verdict` is the reason, if it is known.
        """
        if isinstance(self.state, Preflight | Running | Stalled):
            self.current.ran = now - self.current.began
            self.state = Stopping(now, verdict)
            self._tell_busy(Stop(self.attempt, also_told=self.current.interrupted))

    def _part(self, now: float) -> None:
        """Waits PARTING_SECONDS before it ends the other ranks, after some nodes were told to stop.

        The other nodes may be told to stop within that time, too, and their ranks can then still save.
        """
        if self.state == Running(self.state.since):
            self.state = Running(self.state.since, now)

    @property
    def _is_leaving(self) -> bool:
        """Whether a node was told to stop."""
        return any(member.leaving for member in self.members.values())

    @property
    def runs_untold(self) -> bool:
        """Whether ranks run on nodes that were not told to stop."""
        return bool(self._killed)

    @property
    def _killed(self) -> dict[int, Member]:
        """The busy members that are killing their ranks, by node.

        Members that were told to stop let their ranks save.
        """
        return {node: member for node, member in self._busy().items() if not member.leaving}

    def _judge(self, state: Stopping, now: float) -> None:
        """Decides, when all ranks have ended, why the attempt ended and who deals with that."""
        current, gone = self.current, self._gone()
        failure = first_of(self.attempt, current.ends, current.heard)
        # If a rank reported its failure and then hung, its report says more than the examination of the stall.
        incident = failure if failure is not None and is_explained(failure) else state.verdict or failure
        if incident is not None and is_consequence(incident) and not current.interrupted:
            if not gone and state.settling_since is None:
                self.state = replace(state, settling_since=now)
                return
            if not gone and now < (state.settling_since or now) + SETTLING_SECONDS:
                return
            incident = None if gone else incident
        if self.idle_seconds is not None and not self._check_first:
            self._end_program(self._outcome_of(incident, gone), now)
            return
        # Whatever else has happened meanwhile happened to the former code.
        if current.replaced and not self.someone_is_done:
            self._ledger.ran(current.ran, failed=False)
            self._ledger.got_somewhere()
            self.state = Gathering(now)
            return
        lost = {node: incarnation for node, incarnation in current.left.items() if incarnation is not None}
        self.state = Gathering(now, lost=lost)
        if current.progressed:
            self._note_step()
        failed = incident is not None or bool(lost)
        passed = self._check_first and all(map(is_well, current.ends.values()))
        if incident is None and not gone and not passed:
            incident = self._stopped(now)
        if incident is not None and self._is_of_new_code(incident):
            self._ledger.ran(current.ran, failed=False)
            self._go_back(incident)
            return
        if not self._check_first:
            self._ledger.ran(current.ran, failed=failed)
        if incident is not None:
            self._answer(incident, now)
        elif gone:
            self._go_on_without(gone[0], now)
        else:
            self._check_first, self._lowest = False, self.attempt

    def _end_program(self, outcome: RunEnd, now: float) -> None:
        self.outcome, self.state = outcome, Gathering(now)
        for member in self.members.values():
            member.beats = ()  # They would be taken for reports of ranks that run.

    def _outcome_of(self, incident: Incident | None, gone: Sequence[int]) -> RunEnd:
        """How a run in a held gang has ended. It is never restarted: the person who runs it decides what is next."""
        if self.current.interrupted and not (incident is not None and is_explained(incident)):
            saved = {end.exit_code for ends in self.current.ends.values() for end in ends} == {
                ExitCode.SAVED_AND_STOPPED
            }
            how = ABANDONED if self.current.abandoned else "it saved and stopped" if saved else "it was interrupted"
            return RunEnd(self.attempt, INTERRUPTED, how)
        if incident is not None:
            who = "all ranks" if incident.is_of_all_ranks else self.current.ring.in_words(incident.end.rank)
            step = "" if incident.end.step is None else f" at step {incident.end.step}"
            return RunEnd(self.attempt, incident.end.exit_code, f"{who} failed{step}: {incident.end.words}", incident)
        if gone:
            return RunEnd(self.attempt, ExitCode.PEER_LOST, f"node {gone[0]} is gone")
        return RunEnd(self.attempt, ExitCode.DONE)

    def _gone(self) -> list[int]:
        """The nodes that left during this attempt, and the nodes that were told to stop."""
        leaving = (node for node, member in self.members.items() if member.leaving)
        return [*self.current.left, *leaving]

    def _go_on_without(self, node: int, now: float) -> None:
        """Continues after a node left without any rank failing first.

        If there is an operator, waits for the node's return.
        """
        well = all(map(is_well, self.current.ends.values())) and not any(self.current.left.values())
        if self._joining_seconds is not None and well:  # All nodes stopped because they were told to.
            self.state = Done(now)
            self._tell_all(Farewell())
        elif self._joining_seconds is not None:
            self._give_up(self._lost(node, "it went away", now), now)
        elif self.someone_is_done:
            self._give_up(self._lost(node, "it left after others had finished", now), now)
        elif self._got_somewhere:
            self._ledger.got_somewhere()

    def _answer(self, incident: Incident, now: float) -> None:
        """Answers an incident with another attempt in place, or leaves the incident to the operator."""
        # Without an operator, nobody replaces a lost node.
        lost = self._joining_seconds is not None and self._gone()
        left = self.someone_is_done or self._check_first or lost or self._is_for_the_operator(incident)
        if left or not self._ledger.takes(incident, now, progressed=self._got_somewhere):
            self._give_up(incident, now)
        else:
            self.state = Gathering(self.state.since)

    def _is_for_the_operator(self, incident: Incident) -> bool:
        """Whether this may be a crash loop, which only the operator can end, or the rank needs a new pod.

        A rank that raised its own error before any progress needs a new pod, because in the same pod it would raise
        the error again. Without an operator the answer is always no: there are no new pods, and nobody else ends the
        job.
        """
        if self._joining_seconds is not None:
            return False
        raised = is_explained(incident) and not self._got_somewhere
        return raised or self._ledger.gets_no_further(incident)

    @property
    def _got_somewhere(self) -> bool:
        return self.current.progressed or self.current.ran >= LONG_SECONDS

    @property
    def someone_is_done(self) -> bool:
        """Whether a node has finished, which then takes part in no other attempt."""
        return bool(self._done) or any(member.state is MemberState.DONE for member in self.members.values())

    def _give_up(self, incident: Incident, now: float) -> None:
        self.state = Done(now)
        self._tell_all(Leave(incident))

    def _dismiss(self, node: int) -> None:
        self.members[node].state = MemberState.DONE
        self.outbox.append(([node], Farewell()))

    # Incidents that no rank reports.

    def _lost(self, node: int, message: str, now: float) -> Incident:
        first = self.current.ring.first_rank(node)
        return Incident(self.attempt, node, End(first, ExitCode.PEER_LOST, now, PeerLostError.cause, message))

    def _stuck(self, busy: dict[int, Member], verdict: Incident | None, now: float) -> Incident:
        """The incident of ranks that were killed but still exist, and so hold resources such as a GPU.

        `busy` are the members whose ranks have not ended; `verdict` is why the attempt was ended.
        """
        if verdict is not None and verdict.end.cause == DEVICE_FAILED:
            return verdict
        (node, member), *_ = busy.items()
        ring, ranks = self.current.ring, sorted(member.running)
        who = (
            f"rank {', '.join(map(str, ranks))}" if ranks else f"processes that the ranks of node {node} had started"
        )
        who = who if ring.is_plain or not ranks else f"{who} (node {node})"
        message = f"SIGKILL has not ended {who} within {KILLED_SECONDS:.0f} s: a process waits for a disk or a device"
        end = End(ranks[0] if ranks else ring.first_rank(node), ExitCode.STALLED, now, STALLED, message)
        return incident_of(self.attempt, node, end, busy)

    def _stopped(self, now: float) -> Incident:
        """The incident of an attempt that has ended although no rank failed and no node left."""
        ends = ((node, end) for node, ends in sorted(self.current.ends.items()) for end in ends)
        saved = (pair for pair in ends if pair[1].exit_code == ExitCode.SAVED_AND_STOPPED)
        node, rank = next(((node, end.rank) for node, end in saved), (0, 0))
        message = "it stopped, although its supervisor had not been told to"
        return Incident(self.attempt, node, End(rank, ExitCode.SAVED_AND_STOPPED, now, "Stopped", message))

    # Messages to the members.

    def _busy(self) -> dict[int, Member]:
        """The members whose ranks are running, by node."""
        return {node: member for node, member in sorted(self.members.items()) if member.state is MemberState.BUSY}

    def _tell_busy(self, message: Message) -> None:
        self.outbox.append(([*self._busy()], message))

    def _tell_all(self, message: Message) -> None:
        self.outbox.append((sorted(self.members), message))

    def drained(self) -> Iterator[tuple[Sequence[int], Message]]:
        """Empties the outbox. Yields each message together with the nodes to which it must be sent."""
        messages, self.outbox = self.outbox, []
        yield from messages
