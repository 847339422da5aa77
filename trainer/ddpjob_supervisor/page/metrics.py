"""GET /metrics: the document of GET /status in Prometheus' format.

The document contains only the last incidents. So each incident, identified by its attempt, is added to a counter when
it first appears. Steps are counted here, too, because their number goes back at a restart.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ddpjob_supervisor.gang.states import Phase

from .document import METRICS, Document

PREFIX = "ddpjob_trainer_"

NAME_LENGTH = 64
"""The longest name of a metric of the program that is shown."""
CAUSES = 32
"""How many causes are distinguished. A program's own failure report may contain any word as its cause."""
OTHER = "Other"
"""The cause of all further incidents."""

PROGRESS = (
    ("step", "step", "Steps that all processes have finished"),
    ("totalSteps", "steps_planned", "Total number of steps that the program trains"),
    ("epoch", "epoch", "Present epoch"),
    ("stepSeconds", "step_seconds", "Median time of the recent steps"),
    ("loss", "loss", "Training loss, from the lowest rank that reports it"),
    ("samplesPerSecond", "samples_per_second", "Samples per second of all processes, over the recent steps"),
    (
        "stallLimitSeconds",
        "stall_limit_seconds",
        "How long the present activity may go without finishing a step before the gang counts as stalled",
    ),
)


class Metrics(Collector):
    """Metrics of one supervisor."""

    def __init__(self) -> None:
        self._incidents: Counter[str] = Counter()
        self._counted = -1
        """The attempt of the last incident that has been counted."""
        self._progress: Document = {}
        """The last progress that has been counted."""
        self._steps = self._repeated = self._furthest = 0
        self._names = set[str]()
        """The names of the program's metrics that are shown: the first ones, for as long as this supervisor runs.
        Otherwise a program whose names contain a number, such as an epoch's, would create series without end."""
        self._document: Document = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def note(self, document: Document) -> None:
        """Counts the incidents and the steps that are new in a document."""
        for incident in document.get("incidents", ()):
            if incident["attempt"] > self._counted:
                self._counted, cause = incident["attempt"], incident["cause"]
                known = cause in self._incidents or len(self._incidents) < CAUSES
                self._incidents[cause if known else OTHER] += 1
        if progress := document.get("progress"):
            self._count_steps(progress)
        for name in (name for process in document.get("ranks", ()) for name in process["metrics"]):
            if len(self._names) < METRICS and len(name) <= NAME_LENGTH:
                self._names.add(name)

    def exposition(self, document: Document) -> bytes:
        """The metrics, in Prometheus' text format."""
        self._document = document
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metric families, which the registry requests."""
        if self._document:
            yield from _state(self._document)
            if "coordinator" not in self._document:  # Only rank 0's supervisor reports on the whole gang.
                yield from self._restarts(self._document)
                yield from _progress(self._document)
                if self._progress:
                    yield CounterMetricFamily(f"{PREFIX}steps", "Finished steps, repeated ones included", self._steps)
                    yield CounterMetricFamily(
                        f"{PREFIX}repeated_steps", "Steps that an earlier attempt had finished too", self._repeated
                    )
                yield _stragglers(self._document)
            yield from _processes(self._document, self._names)

    def _count_steps(self, progress: Document) -> None:
        """Counts the steps since the last progress. The operator's engine has the same rule, in `accounting.py`."""
        step, since_restart, last = progress["step"], progress["stepsSinceRestart"], self._progress
        self._progress = progress
        same = last.get("attempt") == progress["attempt"]
        if step is None:
            self._steps += max(0, (since_restart or 0) - (last["stepsSinceRestart"] or 0 if same else 0))
            return
        first = progress["firstStep"]
        begin = last["step"] if same else None if first is None else first - 1
        if begin is not None:
            self._steps += max(0, step - begin)
            if not progress["recounts"]:
                self._repeated += max(0, min(step, self._furthest) - begin)
        self._furthest = max(self._furthest, step)

    def _restarts(self, document: Document) -> Iterator[Metric]:
        yield CounterMetricFamily(f"{PREFIX}restarts_in_place", "Restarts in place", document["inPlaceRestarts"])
        incidents = CounterMetricFamily(
            f"{PREFIX}incidents", "Failures that were answered by a restart in place, by cause", labels=["cause"]
        )
        for cause, count in self._incidents.items():
            incidents.add_metric([cause], count)
        yield incidents


def _state(document: Document) -> Iterator[Metric]:
    yield _gauge("attempt", "Starts of the gang", document["attempt"])
    phases = GaugeMetricFamily(f"{PREFIX}phase", "1 for the gang's present state, else 0", labels=["phase"])
    for phase in Phase:
        phases.add_metric([phase], float(phase == document["phase"]))
    yield phases


def _progress(document: Document) -> Iterator[Metric]:
    progress, checkpoint = document["progress"] or {}, document["checkpoint"]
    for field, name, meaning in PROGRESS:
        if progress.get(field) is not None:
            yield _gauge(name, meaning, float(progress[field]))  # The value may be a string, such as "NaN".
    if progress.get("lastStepTime"):
        yield _gauge(
            "last_step_timestamp_seconds", "When the last step was finished", _epoch(progress["lastStepTime"])
        )
    if checkpoint:
        yield _gauge("checkpoint_step", "Steps in the last checkpoint", checkpoint["step"])
        yield _gauge(
            "checkpoint_timestamp_seconds", "When the last checkpoint was written", _epoch(checkpoint["time"])
        )


def _stragglers(document: Document) -> Metric:
    family = GaugeMetricFamily(
        f"{PREFIX}straggler_slowdown",
        "Own part of a step of a process that holds up the others, as a multiple of the usual time",
        labels=["rank", "node"],
    )
    for straggler in document["stragglers"]:
        family.add_metric([str(straggler["rank"]), str(straggler["node"])], straggler["slowdown"])
    return family


def _processes(document: Document, names: Collection[str]) -> Iterator[Metric]:
    steps = GaugeMetricFamily(f"{PREFIX}rank_step", "Steps that a process has finished", labels=["rank", "node"])
    seconds = GaugeMetricFamily(
        f"{PREFIX}rank_seconds", "Mean time of each part of the recent steps", labels=["rank", "part"]
    )
    memory = GaugeMetricFamily(f"{PREFIX}memory_bytes", "Memory of a process, as it reports it", labels=["rank"])
    metrics = GaugeMetricFamily(
        f"{PREFIX}rank_metric", "A metric of the program, as a process reports it", labels=["rank", "name"]
    )
    for process in document.get("ranks", ()):
        rank = str(process["rank"])
        if process["step"] is not None:
            steps.add_metric([rank, str(process["node"])], process["step"])
        for part, value in process["seconds"].items():
            if value is not None:
                seconds.add_metric([rank, part], value)
        if process["memoryBytes"] is not None:
            memory.add_metric([rank], process["memoryBytes"])
        for name, value in process["metrics"].items():
            if name in names:
                metrics.add_metric([rank, name], float(value))
    yield from (steps, seconds, memory, metrics)


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", meaning, value)


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
