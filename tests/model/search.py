"""Every history of a job within bounds: all orders of events, and a crash of the operator between any two steps.

A moment consists of a world, the operator's position in its round, and the faults that have happened so far. The
search visits each moment once. Two moments that differ only in texts for people count as the same.
"""

import copy
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from functools import cache
from typing import Any

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.cluster.writer import OF_PODS, describe
from ddpjob_operator.engine import Action, CreatePod, Decision, DeletePod, StopPod

from tests.support.exit_codes import among

from .kueue import Kueue
from .operator import Operator
from .pods import RealPod
from .world import TEMPLATE, World

WORDS = frozenset(
    {"message", "display", "readyNodes", "time", "lastTransitionTime", "lastCompletedTime", "consequenceNodes"}
)
"""Fields of the status that are for people, or contain times on which the decisions in these searches do not
depend."""
SOON = timedelta(hours=1)
"""Time jumps to the engine's next alarm, if that is no later than this."""
NEVER = {"scheduleTimeoutSeconds": 10_000_000, "finishTimeoutSeconds": 10_000_000}


class By(IntEnum):
    """Who makes a move."""

    WORLD = 0
    FAULT = 1
    OPERATOR = 2
    CRASH = 3
    CHANCE = 4
    """Something that may happen, but that nobody may wait for: a pod that is no longer wanted finishes on its own."""


@dataclass
class Moment:
    """Everything that exists at one moment."""

    world: World
    operator: Operator
    faults: tuple[str, ...] = ()

    def copy(self) -> "Moment":
        """A copy that changes independently from now on."""
        world = self.world.copy()
        operator = copy.copy(self.operator)
        operator.world, operator.to_do = world, list(operator.to_do)
        return Moment(world, operator, self.faults)

    @property
    def idle(self) -> bool:
        """Whether the operator is between two rounds."""
        return self.operator.decision.status is None and not self.operator.to_do


Change = Callable[[Moment], None]
Move = tuple[By, str, Change]


@dataclass
class Graph:
    """Moments by number, and the moves between them."""

    moments: list[Moment] = field(default_factory=list)
    moves: list[list[tuple[By, int]]] = field(default_factory=list)
    came_from: list[tuple[int, str]] = field(default_factory=list)
    """For each moment, the moment before it and the move that led to it."""

    def history(self, number: int) -> str:
        """One of the shortest sequences of moves that lead to a moment."""
        steps: list[str] = []
        while number:
            number, step = self.came_from[number]
            steps.append(step)
        return ", ".join(reversed(steps))

    def ends(self) -> list[int]:
        """Moments after which nothing happens unless there is a fault, a crash or chance."""
        by_itself = {By.WORLD, By.OPERATOR}
        return [number for number, moves in enumerate(self.moves) if not any(by in by_itself for by, _ in moves)]

    def crashes(self) -> Iterator[tuple[int, int]]:
        """Moments at which authorised actions are not all carried out, each with the moment after a crash."""
        for number, moment in enumerate(self.moments):
            if not moment.idle and moment.operator.decision.status is None:
                yield from ((number, target) for by, target in self.moves[number] if by is By.CRASH)

    def reached(self, ends: dict[int, int], without: frozenset[By] = frozenset()) -> list[int]:
        """The outcomes that each moment can lead to, as bits. `ends` has the outcomes of the last moments."""
        before: list[list[int]] = [[] for _ in self.moments]
        for number, moves in enumerate(self.moves):
            for by, target in moves:
                if by not in without:
                    before[target].append(number)
        found = [ends.get(number, 0) for number in range(len(self.moments))]
        todo = deque(ends)
        while todo:
            target = todo.popleft()
            for number in before[target]:
                if found[target] & ~found[number]:
                    found[number] |= found[target]
                    todo.append(number)
        return found


class Search:
    """The histories of one job with at most a given number of these faults."""

    def __init__(self, spec: dict[str, Any], faults: tuple[str, ...], at_most: int, **there: Any) -> None:
        """`there` is what else the world contains."""
        self._start = World({**NEVER, **spec, "template": TEMPLATE}, **there)
        self._start.services = frozenset({name_beside(self._start.job.ref)})
        self._faults = faults
        self._at_most = at_most
        self._decisions: dict[Any, Decision] = {}
        self._said: dict[int, str] = {}

    def explore(self) -> Graph:
        """Finds all moments and moves."""
        first = Moment(self._start, Operator(self._start))
        graph, numbers = Graph([first], [[]], [(0, "")]), {self._key(first): 0}
        todo = deque([0])
        while todo:
            number = todo.popleft()
            for by, step, change in self._moves(graph.moments[number]):
                following = graph.moments[number].copy()
                try:
                    change(following)
                except AssertionError as error:
                    raise AssertionError(f"{error}; after: {graph.history(number)}, {step}") from error
                target = numbers.setdefault(self._key(following), len(numbers))
                if target == len(graph.moments):
                    graph.moments.append(following)
                    graph.moves.append([])
                    graph.came_from.append((number, step))
                    todo.append(target)
                graph.moves[number].append((by, target))
        return graph

    # What may happen next.

    def _moves(self, moment: Moment) -> Iterator[Move]:
        yield from self._operator(moment)
        if not moment.world.deleted:
            yield from self._time(moment)
            yield from self._user(moment)
            if moment.world.kueue.unreserved:
                yield By.WORLD, "admit", _change_queue(Kueue.admits)
            for name, pod in moment.world.pods.items():
                for by, step, change in self._pod(moment, pod):
                    to = _to_pod(name, change)
                    where = f"{step} {pod.incarnation}.{pod.rank}"
                    yield by, where, _counted(to, step) if by is By.FAULT else to

    def _operator(self, moment: Moment) -> Iterator[Move]:
        operator = moment.operator
        if operator.decision.status is not None:
            yield By.OPERATOR, "write", lambda then: then.operator.write()
        others = [index for index, action in enumerate(operator.to_do) if not isinstance(action, OF_PODS)]
        for index in others[:1] or range(len(operator.to_do)):
            yield By.OPERATOR, describe(operator.to_do[index]), _act(index)
        if not moment.idle:
            yield By.CRASH, "crash", lambda then: then.operator.die()
        elif not moment.world.deleted and not self._settled(moment.world):
            yield By.OPERATOR, "look", self._look

    def _time(self, moment: Moment) -> Iterator[Move]:
        """Yields the passing of time, but only while nobody is at work: kubelets and the operator take no time."""
        wake_at = self._decision(moment.world).wake_at
        at_work = not moment.idle or not self._settled(moment.world) or moment.world.going
        if wake_at is not None and not at_work and wake_at - moment.world.now <= SOON:
            seconds = (wake_at - moment.world.now).total_seconds()
            yield By.WORLD, "time passes", lambda then: then.world.pass_time(seconds)

    def _user(self, moment: Moment) -> Iterator[Move]:
        suspended = moment.world.spec.get("suspend", False)
        if suspended:
            yield By.WORLD, "resume", lambda then: then.world.ask(suspend=False)
        edits = [edit for edit in EDITS if edit in self._faults and len(moment.faults) < self._at_most]
        for fault in edits:
            if fault is not SUSPEND or not suspended:
                yield By.FAULT, fault, _counted(EDITS[fault], fault)

    def _pod(self, moment: Moment, pod: RealPod) -> Iterator[tuple[By, str, Callable[[World, RealPod], None]]]:
        if pod.waits and not pod.reserve:
            yield By.WORLD, "start", World.start
        if pod.running and not pod.dead:
            unwanted = not pod.deleting and not pod.stop_by and _is_over(moment.world, pod)
            yield By.CHANCE if unwanted else By.WORLD, "exit 0", lambda world, pod: world.end(pod, 0, "Completed")
        if pod.running and not pod.dead and (pod.deleting or pod.stop_by or pod.sandbox_lost):
            yield By.WORLD, "exit 1, as it was told to", _exit(1)
        if pod.deleting and not pod.dead:
            yield By.WORLD, "gone", World.remove
        if pod.dead and not pod.deleting and pod.node is not None:
            yield By.WORLD, "taken from its lost node", lambda world, pod: world.notice(str(pod.node), deletes=True)
        if len(moment.faults) < self._at_most:
            for fault in FAULTS.keys() & set(self._faults):
                if change := FAULTS[fault](pod):
                    yield By.FAULT, fault, change

    # Decisions, each of which is computed only once.

    def _look(self, moment: Moment) -> None:
        decision, operator = self._decision(moment.world), moment.operator
        operator.seen, operator.decision = moment.world.version, decision
        operator.to_do = [] if decision.status else list(decision.actions)
        moment.world.books.looks(moment.world)

    def _decision(self, world: World) -> Decision:
        key = _world_key(world)
        if key not in self._decisions:
            # Only computes what an operator would decide: the operator of this moment reads the state in `_look`.
            operator = Operator(world.copy())
            operator.look()
            self._decisions[key] = operator.decision
        return self._decisions[key]

    def _settled(self, world: World) -> bool:
        """Whether the operator has nothing to do, and would change nothing in the status that programs read."""
        decision = self._decision(world)
        silent = decision.status is None or self._status_key(decision) == _said(world.written)
        return silent and not decision.actions

    def _key(self, moment: Moment) -> Any:
        """A key for the moment that does not depend on the numbering of ranks.

        Ranks are distinguished by what they do.
        """
        operator, world = moment.operator, moment.world
        waits_for_status = operator.decision.status is not None
        to_do = operator.decision.actions if waits_for_status else operator.to_do
        acts = sorted(map(_action_key, to_do))
        text = _said(world.written) + (self._status_key(operator.decision) if waits_for_status else "")
        ranks = [_of_rank(rank, world, acts) for rank in range(world.spec["nodes"])]
        order = sorted(range(len(ranks)), key=lambda rank: (ranks[rank], text.find(f"<{rank}>")))
        renamed = MARK.sub(lambda mark: f"<{order.index(int(mark[1]))}>", text)
        others = [act for act in acts if "<" not in act]
        round_ = waits_for_status, waits_for_status and operator.seen == world.version
        rest = round_, _asked(world), world.now, moment.faults, _beside(world)
        return renamed, tuple(sorted(ranks)), tuple(others), *rest

    def _status_key(self, decision: Decision) -> str:
        if id(decision) not in self._said:
            assert decision.status is not None
            self._said[id(decision)] = _marked(decision.status.to_dict())
        return self._said[id(decision)]


def _of_rank(rank: int, world: World, acts: list[str]) -> str:
    """The pods of a rank and the pending actions on them, without the rank's number."""
    pods = sorted(_state_of(pod, world) for pod in world.pods.values() if pod.rank == rank)
    mark = f"job-<{rank}>-"
    # If rank 0 alone decides about success, the other ranks are not equivalent to it.
    apart = rank == 0 and "successPolicy" in world.spec
    return str([apart, *pods, *(act.replace(mark, "job-") for act in acts if mark in act)])


def _state_of(pod: RealPod, world: World) -> str:
    ended = pod.exit and (pod.exit.code, pod.seen().succeeded)
    lost = world.lost.get(pod.node or "")
    made = pod.uid.rpartition("-")[2]
    going = f"{pod.gone_by} {pod.stop_by} {pod.sandbox_lost}"
    where = pod.node if world.machines else pod.node is None
    return f"{pod.incarnation} {made} {pod.running} {where} {pod.waiting} {lost} {going} {ended}"


def _exit(code: int, reason: str = "Error", message: str = "") -> Callable[[World, RealPod], None]:
    return lambda world, pod: world.end(pod, code, reason, message)


def _change_queue(change: Callable[[Kueue], Kueue]) -> Change:
    def to(then: Moment) -> None:
        then.world.kueue = change(then.world.kueue)

    return to


SUSPEND, CANCEL = "suspended", "cancelled"
NO_ERROR, DELETE_ALL = "a rule against errors", "all deleted by hand"
DELETE_GROUP = "its PodGroup deleted by hand"
EVICT, DELETE_PLACE = "evicted", "its place in the queue deleted by hand"
EDITS: dict[str, Change] = {
    SUSPEND: lambda then: then.world.ask(suspend=True),
    CANCEL: lambda then: then.world.ask(cancel=True),
    NO_ERROR: lambda then: then.world.ask(restart={**then.world.spec["restart"], "rules": [FAIL_ON_ERROR]}),
    DELETE_ALL: lambda then: [then.world.delete(pod) for pod in [*then.world.pods.values()]],
    DELETE_GROUP: lambda then: [then.world.groups.delete(name) for name in then.world.groups.there],
    EVICT: _change_queue(lambda kueue: kueue.evicts("Preempted")),
    DELETE_PLACE: _change_queue(lambda kueue: kueue.deletes(at_once=True)),
}
"""What people and a queue do to a job."""

FAIL_ON_ERROR = {"exitCodes": among(1), "action": "Fail"}
SANDBOX_LOST, DEVICE_FAILED = "sandbox lost", "device failed"
REPORT = json.dumps({"version": 2, "cause": "DeviceFailed"})
FAULTS: dict[str, Callable[[RealPod], Callable[[World, RealPod], None] | None]] = {
    "exit 1": lambda pod: _exit(1) if pod.running and not pod.dead else None,
    "deleted by hand": lambda pod: None if pod.deleting else World.delete,
    "node lost": lambda pod: (lambda world, pod: world.lose(str(pod.node))) if pod.node and pod.live else None,
    SANDBOX_LOST: lambda pod: World.lose_sandbox if pod.running and not pod.dead and not pod.told else None,
    DEVICE_FAILED: lambda pod: _exit(1, message=REPORT) if pod.running and not pod.dead and not pod.told else None,
}
"""What can go wrong with a pod, if the pod is in the right state for it."""
ANY = tuple(name for name in FAULTS if name not in {SANDBOX_LOST, DEVICE_FAILED})
"""The faults that most searches use. The effects of the other two do not depend on these, and a search with all of
them takes long."""


def _is_over(world: World, pod: RealPod) -> bool:
    """Whether a pod is no longer wanted, whatever it does."""
    status = world.status
    former = pod.incarnation < status.bookkeeping.incarnations.default
    return (
        former
        or status.is_true(ConditionType.FAILURE_TARGET)
        or bool({"suspend", "cancel"} & {field for field, value in world.spec.items() if value is True})
    )


def _to_pod(name: str, change: Callable[[World, RealPod], None]) -> Change:
    return lambda moment: change(moment.world, moment.world.pods[name])


def _counted(change: Change, fault: str) -> Change:
    def counted(moment: Moment) -> None:
        change(moment)
        moment.faults = tuple(sorted((*moment.faults, fault)))

    return counted


def _act(index: int) -> Change:
    """Carries out one action.

    Writes of pods are sent at the same time, after all others, so any may be the last before a crash.
    """

    def act(moment: Moment) -> None:
        to_do = moment.operator.to_do
        to_do.insert(0, to_do.pop(index))
        moment.operator.act()

    return act


def _world_key(world: World) -> Any:
    """A key of everything that a decision depends on."""
    pods = frozenset(
        (
            *(pod.uid, pod.running, pod.node, pod.dead, pod.gone_by, pod.stop_by, pod.sandbox_lost),
            *(pod.exit and pod.exit.code, pod.done, pod.waiting),
        )
        for pod in world.pods.values()
    )
    return _said(world.written), _asked(world), world.now, pods, frozenset(world.lost.items()), _beside(world)


def _beside(world: World) -> Any:
    """A key of the objects beside the pods."""
    return world.groups.key([*world.pods.values()]), world.kueue.key()


def _asked(world: World) -> Any:
    return (
        world.generation,
        world.spec.get("suspend"),
        world.spec.get("cancel"),
        "rules" in world.spec["restart"],
        world.deleted,
    )


MARK = re.compile("<([0-9])>")
NUMBERED = re.compile(r'(job-(?=.-)|"(?:node|rank)": )([0-9])')


@cache
def _said(written: str) -> str:
    return _marked(json.loads(written))


def _marked(said: dict[str, Any]) -> str:
    """The part of a status that is for programs, with marks where it names nodes."""
    status = DDPJobStatus(nodes=said.get("nodes"), completed_indexes=said.get("completedIndexes", ""))
    finished = {"completedIndexes": [{"node": node} for node in sorted(status.completed())]}
    return NUMBERED.sub(r"\1<\2>", json.dumps({**_stripped(said), **finished}, sort_keys=True))


def _stripped(said: Any) -> Any:
    if isinstance(said, dict):
        return {name: _stripped(value) for name, value in said.items() if name not in WORDS}
    return [_stripped(item) for item in said] if isinstance(said, list) else said


def _action_key(action: Action) -> str:
    match action:
        case CreatePod():
            return NUMBERED.sub(r"\1<\2>", f"create {action.name}")
        case DeletePod() | StopPod():
            return NUMBERED.sub(r"\1<\2>", str(action))
        case _:
            return type(action).__name__
