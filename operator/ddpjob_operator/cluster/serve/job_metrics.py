"""The metrics of jobs, by namespace. No label has a job's name, so that the number of series is bounded."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from ddpjob_operator.api import Cause, State
from ddpjob_operator.engine import COUNTED_CAUSES, FREE_CAUSES, StartPart, TimeKind

OTHER = "Other"
"""Replaces a label's value that is not in the list of values, such as a cause that only a newer version knows."""

BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with one series per namespace, or one for each value of a second label."""

    name: str
    meaning: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    """All values of the second label: any other is replaced by OTHER."""
    gauge: bool = False

    def labels(self, namespace: str, value: str = "") -> tuple[str, ...]:
        """Returns the labels of a series."""
        return (namespace, value if value in self.values else OTHER) if self.label else (namespace,)

    def metric(self, series: Mapping[tuple[str, ...], float]) -> Metric:
        """Returns the metric with these series."""
        family = GaugeMetricFamily if self.gauge else CounterMetricFamily
        metric = family(self.name, self.meaning, labels=["namespace", *filter(None, (self.label,))])
        for labels, value in series.items():
            metric.add_metric(labels, value)
        return metric


JOBS = Family("ddpjob_jobs", "Jobs by state; only the leader reports them", "state", tuple(State), gauge=True)
STEP_AGE = Family(
    "ddpjob_step_age_seconds",
    "Longest time that a running job has been without finishing a step, if it ever reported any; only the leader "
    "reports it",
    gauge=True,
)
CHECKPOINT_AGE = Family(
    "ddpjob_checkpoint_age_seconds",
    "Longest time since the last checkpoint of a running job that saves any, or since its start; only the leader "
    "reports it",
    gauge=True,
)
WAIT_AGE = Family(
    "ddpjob_pending_age_seconds",
    "Longest time that a job has waited until it runs, since it was created or resumed, or last ran; only the leader "
    "reports it",
    gauge=True,
)
BUDGET_USED = Family(
    "ddpjob_restart_budget_used_ratio",
    "Largest share of `restart.maxRestarts` that an unfinished job has used; only the leader reports it",
    gauge=True,
)
DIVERGED = Family(
    "ddpjob_diverged_jobs",
    "Jobs whose loss is not a finite number, and jobs that failed for that reason in the last hour; only the leader "
    "reports them",
    gauge=True,
)
STALLED = Family(
    "ddpjob_stalled_jobs",
    "Jobs of which no step finishes any more, and jobs that failed for that reason in the last hour; only the leader "
    "reports them",
    gauge=True,
)
FINISHED = Family(
    "ddpjob_jobs_finished", "Jobs that have ended, by final state", "state", (State.SUCCEEDED, State.FAILED)
)
RESTARTS = Family(
    "ddpjob_restarts",
    "Restarts that count against their job's budget, by cause; `Other` if they do so only by a rule of the user",
    "cause",
    (*COUNTED_CAUSES, Cause.DIVERGED, OTHER),  # An alert asks for `Diverged`.
)
DISRUPTIONS = Family(
    "ddpjob_disruptions",
    "Restarts that do not count against the budget, by cause; `Other` if they are free only by a rule of the user",
    "cause",
    (*FREE_CAUSES, OTHER),
)
TIME = Family("ddpjob_time_seconds", "Time in which jobs had their Kubernetes nodes, by use", "kind", tuple(TimeKind))
GPU_TIME = Family("ddpjob_gpu_seconds", "The same time, for each GPU that the jobs held", "kind", tuple(TimeKind))
STEPS = Family("ddpjob_steps", "Steps that jobs have finished, the repeated ones included")
REPEATED_STEPS = Family(
    "ddpjob_repeated_steps", "Steps that jobs have finished once more, because they were not saved before a restart"
)

GAUGES = (JOBS, STEP_AGE, CHECKPOINT_AGE, WAIT_AGE, BUDGET_USED, DIVERGED, STALLED)
COUNTERS = (FINISHED, TIME, GPU_TIME, STEPS, REPEATED_STEPS)
"""The counters whose series begin with a namespace's first job."""
OF_CAUSES = (RESTARTS, DISRUPTIONS)
"""The counters whose series begin with a namespace's first restart."""

Series = dict[tuple[str, ...], float]


@dataclass(slots=True)
class StartTimes:
    """How long one part of jobs' starts took."""

    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def observe(self, seconds: float) -> None:
        """Adds a start."""
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS, seconds)] += 1


@dataclass(frozen=True, slots=True, eq=False)
class JobMetrics(Collector):
    """The metrics of jobs at one moment."""

    series: Mapping[Family, Series]
    starts: Mapping[StartPart, StartTimes]
    """By part, for all namespaces together: a histogram for each namespace would be too many series."""
    namespace_starts: Mapping[tuple[str, str], tuple[int, float]]
    """By namespace and part, the number of starts and their seconds."""

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        for family, series in self.series.items():
            yield family.metric(series)
        histogram = HistogramMetricFamily(
            "ddpjob_start_seconds", "Time that each part of a job's start took, in all namespaces", labels=["part"]
        )
        for part, times in self.starts.items():
            totals = accumulate(times.buckets)
            limits = (*map(str, BUCKETS), "+Inf")
            histogram.add_metric([part], list(zip(limits, totals, strict=True)), times.seconds)
        yield histogram
        summary = SummaryMetricFamily(
            "ddpjob_namespace_start_seconds",
            "Time that each part of a job's start took",
            labels=["namespace", "part"],
        )
        for labels, (number, seconds) in self.namespace_starts.items():
            summary.add_metric(labels, number, seconds)
        yield summary
