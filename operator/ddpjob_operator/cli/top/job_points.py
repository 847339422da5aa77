"""The points of a cluster job's curves: from its supervisor while it runs, and from its history if that has a URL."""

import json
import threading
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.cli.cluster.claim_place import claim_of, why_no_history
from ddpjob_operator.cli.cluster.pod_view import GangSeen
from ddpjob_operator.client import ClusterError, Document, Jobs
from ddpjob_operator.engine import history_of
from ddpjob_operator.history import find_history, open_place
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import Records, collected

MOST_POINTS = 5000
LONGEST_POINT = 4096
"""How many records of a job are held, and how many characters each may have as JSON."""
AGAIN_SECONDS = 30.0
"""How often the history of a job is read whose supervisor shows no curve."""
POINTS = frozenset({"started", "progress", "evaluated", "finished"})


class JobPoints:
    """The recorded training of one job, which is asked only for what is new."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._pod = ""
        self._last = 0
        self._live: list[Any] = []
        self._history = _KeptPoints()
        self._collected: tuple[int, int, Records] = (0, 0, Records())

    def read(self, document: Document, job: DDPJob, gang: GangSeen) -> tuple[Records, str]:
        """The records that can be had now, and why some cannot."""
        problem = gang.problem or self._ask(document, gang)
        first = min((attempt for one in self._live if (attempt := _attempt(one)) is not None), default=None)
        place, kept = history_of(job), list[Any]()
        if first != 1 and job.status.attempt and place is not None and is_url(place):
            kept = self._history.read(place, job)
        earlier = [one for one in kept if first is None or (_attempt(one) or 0) < first]
        if (len(earlier), self._last) != self._collected[:2] or not self._live:
            self._collected = len(earlier), self._last, collected([*earlier, *self._live])
        records = self._collected[2]
        if first == 1 or not job.status.attempt or (earlier and not self._history.problem):
            return records, ""
        return records, _why_not(job, gang.page, problem, first, self._history.problem)

    def _ask(self, document: Document, gang: GangSeen) -> str:
        """Takes what the supervisor of rank 0 has recorded since the last time; why not, if it does not tell."""
        last = _count((gang.page or {}).get("progress"), "lastPoint")
        rank_0 = next((pod for pod in gang.pods if pod.node == 0), None)
        if last is None or rank_0 is None:
            return ""
        if rank_0.uid != self._pod or last < self._last or len(self._live) > MOST_POINTS:
            # Another supervisor counts anew. What its predecessor has told stays, unless it is too much.
            self._live = [] if rank_0.uid == self._pod else self._live[-MOST_POINTS:]
            self._pod, self._last = rank_0.uid, 0
        if last == self._last:
            return ""
        try:
            answer = self._jobs.curve(document, gang.pods, self._last)
        except ClusterError as error:
            return str(error)
        records, told = (answer or {}).get("records"), _count(answer, "last")
        if isinstance(records, list) and told is not None:
            self._live += [one for one in records[:MOST_POINTS] if _is_short(one)]
            self._last = told
        return ""


class _KeptPoints:
    """The records in a job's history, which a thread reads, because an object store may take long."""

    def __init__(self) -> None:
        self.problem = ""
        """Why the history cannot be read; empty if it can be, or is not read yet."""
        self._points: list[Any] = []
        self._read: tuple[int, bool, float] = (0, False, 0.0)
        self._reading: threading.Thread | None = None

    def read(self, place: str, job: DDPJob) -> list[Any]:
        """What is known by now. Reads again if the job has begun an attempt, has ended, or may have gone on."""
        attempt, finished, time_read = self._read
        status = job.status
        old = not status.finished and time.monotonic() > time_read + AGAIN_SECONDS
        is_reading = self._reading is not None and self._reading.is_alive()
        if not is_reading and (old or (attempt, finished) != (status.attempt, status.finished)):
            self._read = status.attempt, status.finished, time.monotonic()
            self._reading = threading.Thread(target=self._look, args=(place, job), daemon=True)
            self._reading.start()
        return self._points

    def _look(self, place: str, job: DDPJob) -> None:
        identity = job.metadata
        try:
            history = find_history(open_place(place), identity.namespace, identity.name, identity.uid)
            found = (one for one in history.events(0) if one.get("event") in POINTS and _is_short(one))
            self._points, self.problem = [*islice(found, 4 * MOST_POINTS)], ""
        except BadInputError as error:
            self.problem = one_line(str(error))


def _why_not(job: DDPJob, page: Document | None, problem: str, first: int | None, unreadable: str) -> str:
    """Why there is no curve, or only one that begins with the attempt `first`."""
    supervised, place = job.status.bookkeeping.supervised, history_of(job)
    if first is not None:
        live = f"the points before attempt {first} went with their pods"
    elif problem:
        live = problem
    elif job.status.finished:
        live = "the pods that had the points have ended"
    elif not supervised:
        live = "the image has no supervisor that records steps"
    elif page is not None and page.get("progress") and _count(page["progress"], "lastPoint") is None:
        live = "the supervisor in the image is of an older release, which keeps no points"
    else:
        live = "no step has been recorded yet"
    if place is None:
        kept = f"there is no history: {why_no_history(job)}" if supervised else ""
    elif unreadable:
        kept = unreadable
    elif is_url(place):
        kept = f"its history in {place} is being read, or has no step"
    elif claim := claim_of(job, place):
        kept = f"its history is read only by a pod, with --history {claim}"
    else:
        kept = f"its history is in {place}, in the pods"
    return one_line("; ".join(filter(None, (live, kept))))


def _attempt(record: Any) -> int | None:
    return _count(record, "attempt")


def _count(document: Any, name: str) -> int | None:
    """A number that a program has told; None if it is none."""
    found = document.get(name) if isinstance(document, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _is_short(record: Any) -> bool:
    return isinstance(record, dict) and len(json.dumps(record)) <= LONGEST_POINT
