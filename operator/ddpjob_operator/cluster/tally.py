"""Counts what happens to jobs, for the metrics.

Only who has written a job's status counts the change. So each replica reports what it has counted itself, from 0 on,
and sums over the replicas are right whoever leads. A standby has the same series as the leader, at 0: otherwise
Prometheus would not see what a new leader counts before its first scrape.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ddpjob_operator.engine import Counts, Standing, StartPart

from .serve.job_metrics import (
    BUDGET_USED,
    CHECKPOINT_AGE,
    COUNTERS,
    DISRUPTIONS,
    DIVERGED,
    FINISHED,
    GAUGES,
    GPU_TIME,
    JOBS,
    OF_CAUSES,
    REPEATED_STEPS,
    RESTARTS,
    STALLED,
    STEP_AGE,
    STEPS,
    TIME,
    WAIT_AGE,
    Family,
    JobMetrics,
    Series,
    StartTimes,
)
from .store import Key, StoredJob

NOTHING = Standing()
"""Of a job of which the metrics tell no more than its state."""

KEPT_SECONDS = 900.0
"""How long a namespace keeps its series after its last job is gone. Prometheus has to read the last counts once more.
The operator may not watch namespaces, so it does not know whether the namespace is gone too."""

FAILED_SECONDS = 3600.0
"""How long a job that has failed because it diverged or stalled is counted. The job itself may exist for weeks."""


@dataclass(slots=True)
class _Noted:
    """What the metrics tell of a job besides its state."""

    standing: Standing
    since: float
    """Up to when the job's time is counted."""


class Tally:
    """The counts of one replica of the operator."""

    def __init__(self, now: Callable[[], datetime], clock: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clock = clock
        self._series: dict[Family, Series] = {family: {} for family in (*COUNTERS, *OF_CAUSES)}
        self._starts = {part: StartTimes() for part in StartPart}
        self._namespace_starts: dict[tuple[str, str], tuple[int, float]] = {}
        self._seen: dict[str, float] = {}
        """For each namespace, when it last had a job."""
        self._noted: dict[Key, _Noted] = {}

    def note(self, key: Key, standing: Standing) -> None:
        """Records how a job spends its time from now on, and what the gauges tell of it."""
        self._settle(key)
        if standing == NOTHING:
            self._noted.pop(key, None)
        else:
            self._noted[key] = _Noted(standing, self._clock())

    def forget(self, key: Key) -> None:
        """Records that a job spends no more time."""
        self._settle(key)
        self._noted.pop(key, None)

    def add(self, namespace: str, counts: Counts) -> None:
        """Adds what a change of a job's status counts."""
        self._begin(namespace)
        for family, value in ((RESTARTS, counts.restart), (DISRUPTIONS, counts.disruption)):
            if value:
                self._begin_causes(namespace)
                self._increase(family, namespace, value)
        if counts.finished:
            self._increase(FINISHED, namespace, counts.finished)
        if counts.steps:
            self._increase(STEPS, namespace, amount=counts.steps)
            self._increase(REPEATED_STEPS, namespace, amount=counts.repeated_steps)
        for part, seconds in counts.starts:
            self._starts[part].observe(seconds)
            number, total = self._namespace_starts[namespace, part]
            self._namespace_starts[namespace, part] = number + 1, total + seconds

    def look(self, jobs: Collection[StoredJob]) -> None:
        """Begins the series of each namespace that has jobs, and ends those of namespaces that have none any more."""
        now = self._clock()
        for namespace in {job.metadata.namespace for job in jobs}:
            self._begin(namespace)
            self._seen[namespace] = now
        for namespace in {job.metadata.namespace for job in jobs if job.summary.restarts or job.summary.disruptions}:
            self._begin_causes(namespace)
        if gone := [name for name, seen in self._seen.items() if now - seen > KEPT_SECONDS]:
            self.end(*gone)

    def end(self, *namespaces: str) -> None:
        """Ends the series of namespaces, whose jobs are no longer counted."""
        gone = set(namespaces)
        for namespace in gone:
            self._seen.pop(namespace, None)
        everything: tuple[dict[Any, Any], ...] = (*self._series.values(), self._namespace_starts, self._noted)
        for known in everything:
            for labels in [labels for labels in known if labels[0] in gone]:
                del known[labels]

    def metrics(self, jobs: Collection[StoredJob], *, leads: bool) -> JobMetrics:
        """Returns a copy of all counts, with the time that running jobs have spent up to now."""
        self.look(jobs)
        self._settle(*self._noted)
        series = {family: dict(counted) for family, counted in self._series.items()}
        if leads:
            series = {**self._gauges(jobs), **series}
        starts = {part: replace(times, buckets=[*times.buckets]) for part, times in self._starts.items()}
        return JobMetrics(series, starts, dict(self._namespace_starts))

    def _gauges(self, jobs: Collection[StoredJob]) -> dict[Family, Series]:
        states: Series = {JOBS.labels(name, state): 0.0 for name in self._seen for state in JOBS.values}
        for job in jobs:
            labels = JOBS.labels(job.metadata.namespace, job.summary.state)
            states[labels] = states.get(labels, 0.0) + 1
        now, families = self._now(), [family for family in GAUGES if family is not JOBS]
        levels: dict[Family, Series] = {
            family: {family.labels(name): 0.0 for name in self._seen} for family in families
        }
        for (namespace, _), noted in self._noted.items():
            for family, level in _levels(noted.standing, now) if namespace in self._seen else ():
                labels = family.labels(namespace)
                known = levels[family][labels]
                levels[family][labels] = known + level if family in (DIVERGED, STALLED) else max(known, level)
        return {JOBS: states, **levels}

    def _settle(self, *keys: Key) -> None:
        """Counts the time of these jobs up to now."""
        now, spent = self._clock(), defaultdict[tuple[Family, str, str], float](float)
        for key in keys:
            noted = self._noted.get(key)
            if noted is not None and noted.standing.kind is not None:
                seconds, noted.since = now - noted.since, now
                spent[TIME, key[0], noted.standing.kind] += seconds
                spent[GPU_TIME, key[0], noted.standing.kind] += seconds * noted.standing.gpus
        for (family, namespace, kind), seconds in spent.items():
            self._begin(namespace)
            self._increase(family, namespace, kind, seconds)

    def _increase(self, family: Family, namespace: str, value: str = "", amount: float = 1.0) -> None:
        self._series[family][family.labels(namespace, value)] += amount

    def _begin(self, namespace: str) -> None:
        if namespace in self._seen:
            return
        self._seen[namespace] = self._clock()
        self._begin_all(namespace, COUNTERS)
        self._namespace_starts |= {(namespace, part): (0, 0.0) for part in StartPart}

    def _begin_causes(self, namespace: str) -> None:
        if RESTARTS.labels(namespace, RESTARTS.values[0]) not in self._series[RESTARTS]:
            self._begin_all(namespace, OF_CAUSES)

    def _begin_all(self, namespace: str, families: Collection[Family]) -> None:
        for family in families:
            self._series[family] |= {family.labels(namespace, value): 0.0 for value in family.values}


def _levels(standing: Standing, now: datetime) -> Iterator[tuple[Family, float]]:
    """What a job contributes to the gauges of its namespace."""
    for family, since in (
        (STEP_AGE, standing.step_since),
        (CHECKPOINT_AGE, standing.saved_since),
        (WAIT_AGE, standing.waits_since),
    ):
        if since is not None:
            yield family, (now - since).total_seconds()
    if standing.budget_used and (standing.budget_restored is None or now < standing.budget_restored):
        yield BUDGET_USED, standing.budget_used
    if standing.ended is None or (now - standing.ended).total_seconds() < FAILED_SECONDS:
        yield DIVERGED, float(standing.diverged)
        yield STALLED, float(standing.stalled)
