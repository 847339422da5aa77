"""Jobs of this operator's class that another operator holds: finds out whether that operator still runs them.

To ask, an operator writes its name into the status of such a job. A running operator removes the name at once,
because each change of its jobs causes a round. If the name is still there after ANSWER_SECONDS, nobody runs the jobs
of that operator in this namespace any more, and they can be taken over. One question is enough for all of them. A
wrong conclusion does no harm: whoever writes a job's status first is its operator, and the other one finds out.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine import Claim, Event, Holder

from .kube.api_client import DDPJOBS, ApiClient, ApiError
from .recorder import EventRecorder
from .serve.log import about
from .serve.metrics import OVERLAPS
from .store import Key, Store, StoredJob
from .workqueue import WorkQueue

ANSWER_SECONDS = 20.0
"""How long the other operator may take to answer. A new leader of its replicas takes over within 8 s."""
KNOWN_SECONDS = 60.0
"""How long an answer, or its absence, counts. Then the other operator is asked again, if it still holds jobs. So
while two operators overlap, each writes once in this time, in each namespace."""

logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    operator: str
    namespace: str


@dataclass(slots=True)
class _Other:
    """What is known of another operator in one namespace."""

    question: tuple[Key, str] | None = None
    """The key and uid of the job in which this operator has asked, until there is an answer."""
    asked_at: float = 0.0
    runs: bool = False
    known_until: float = 0.0
    """Until when `runs` counts."""
    overlaps: bool = False
    """Whether it would run the same jobs as this operator, when last heard of."""


class Contention:
    """The other operators that hold jobs of this operator's class, or would run this operator's jobs."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        queue: WorkQueue,
        recorder: EventRecorder,
        *,
        me: Holder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._store = store
        self._queue = queue
        self._recorder = recorder
        self._me = me
        self._clock = clock
        self._others: defaultdict[_Place, _Other] = defaultdict(_Other)
        OVERLAPS.set_function(lambda: len(self._overlaps()))

    @property
    def problems(self) -> str:
        """A line for each operator and namespace where both would run the same jobs."""
        return "\n".join(_sentence(place, self._me) for place in sorted(self._overlaps()))

    def heard(self, key: Key, stored: StoredJob) -> None:
        """Notes that another operator has asked in one of this operator's jobs, which it would run too."""
        contender, same = stored.summary.bookkeeping.contender, stored.class_name == self._me.class_name
        if contender not in {"", self._me.name}:
            self._conclude(_Place(contender, key[0]), key, stored, runs=True, same=same)

    async def is_left(self, key: Key, stored: StoredJob) -> bool:
        """Whether a job of this operator's class is left to the operator that holds it. Asks if that is not known.

        Raises:
            ApiError: the question cannot be written now.
        """
        summary = stored.summary
        place = _Place(summary.operator, key[0])
        other, now = self._others[place], self._clock()
        if now < other.known_until:
            return other.runs
        if other.question != (key, stored.uid):
            if other.question is None or not self._is_open(other.question, place):
                await self._ask(key, stored, other)
            return True
        if not summary.bookkeeping.contender:
            same = summary.class_name == self._me.class_name
            self._conclude(place, key, stored, runs=True, same=same)
            self._queue.mark_in(key, KNOWN_SECONDS)
            return True
        wait = other.asked_at + ANSWER_SECONDS - now
        if wait > 0:
            self._queue.mark_in(key, wait)
            return True
        self._conclude(place, key, stored, runs=False, same=False)
        self._mark_all(place)
        return False

    def leave_namespace(self, namespace: str) -> None:
        """Forgets the other operators of a namespace whose jobs this operator no longer runs."""
        for place in [place for place in self._others if place.namespace == namespace]:
            del self._others[place]

    async def _ask(self, key: Key, stored: StoredJob, other: _Other) -> None:
        # If a question is there already, from another operator or from this one's former life, it is as good.
        if not stored.summary.bookkeeping.contender:
            question = {"op": "add", "path": "/status/bookkeeping/contender", "value": self._me.name}
            version = stored.metadata.resource_version
            try:
                answer = await self._api.patch(DDPJOBS, key[0], f"{key[1]}/status", version, [question])
            except ApiError as error:
                if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                    raise
                return  # The job has changed or is gone, and the watch will report that.
            self._store.jobs.update(answer)
        other.question, other.asked_at = (key, stored.uid), self._clock()
        self._queue.mark_in(key, ANSWER_SECONDS)

    def _is_open(self, question: tuple[Key, str], place: _Place) -> bool:
        """Whether the job of a question will still have rounds that look for an answer."""
        stored = self._store.jobs.get(question[0])
        return (
            stored is not None
            and (stored.uid, stored.summary.operator) == (question[1], place.operator)
            and not stored.deleting
            and stored.claimed_by(self._me) is Claim.CONTESTED
        )

    def _conclude(self, place: _Place, key: Key, stored: StoredJob, *, runs: bool, same: bool) -> None:
        """Notes whether an operator runs, and reports it when it is first known to run the `same` class of jobs."""
        other = self._others[place]
        before, other.overlaps = place in self._overlaps(), runs and same
        other.question, other.runs, other.known_until = None, runs, self._clock() + KNOWN_SECONDS
        if not runs:
            logger.warning("operator %s no longer runs the jobs of namespace %s; taking them over", *place)
        elif same and not before:
            message = _sentence(place, self._me)
            logger.warning("%s", message, extra=about(key, stored.uid))
            self._recorder.record(
                stored.metadata, Event(warning=True, reason=Reason.SEVERAL_OPERATORS, message=message)
            )

    def _overlaps(self) -> list[_Place]:
        # An operator asks again a little later than after KNOWN_SECONDS, so a place counts for twice as long. The
        # list is a copy, because the metrics are made in another thread.
        since = self._clock() - KNOWN_SECONDS
        return [place for place, other in [*self._others.items()] if other.overlaps and other.known_until > since]

    def _mark_all(self, place: _Place) -> None:
        for key in self._store.jobs.keys(place.namespace):
            stored = self._store.jobs.get(key)
            if stored is not None and stored.summary.operator == place.operator:
                self._queue.mark(key)


def _sentence(place: _Place, me: Holder) -> str:
    jobs = f"jobs of class {me.class_name}" if me.class_name else "jobs without a class"
    return (
        f"Operators {me.name} and {place.operator} both run {jobs} in namespace {place.namespace}: each job stays "
        "with the operator that took it first. Let only one of them run there, or give one of them a class of its own"
    )
