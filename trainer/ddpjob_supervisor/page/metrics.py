"""GET /metrics: the document of GET /status in Prometheus' format.

The document contains only the last incidents. So each incident, identified by its attempt, is added to a counter when
it first appears.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ddpjob_supervisor.gang.states import Phase

from .document import Document

PREFIX = "ddpjob_trainer_"

PROGRESS = (
    ("step", "step", "Steps that all processes have finished"),
    ("totalSteps", "steps_planned", "Total number of steps that the program trains"),
    ("epoch", "epoch", "Present epoch"),
    ("stepSeconds", "step_seconds", "Median time of the recent steps"),
    ("loss", "loss", "Training loss, from the lowest rank that reports it"),
    ("samplesPerSecond", "samples_per_second", "Samples per second of all processes, over the recent steps"),
)


class Metrics(Collector):
    """Metrics of one supervisor."""

    def __init__(self) -> None:
        self._incidents: Counter[str] = Counter()
        self._counted = -1
        """The attempt of the last incident that has been counted."""
        self._document: Document = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def note(self, document: Document) -> None:
        """Counts the incidents that are new in a document."""
        for incident in document.get("incidents", ()):
            if incident["attempt"] > self._counted:
                self._counted = incident["attempt"]
                self._incidents[incident["cause"]] += 1

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
            yield from _processes(self._document)

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


def _processes(document: Document) -> Iterator[Metric]:
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
            metrics.add_metric([rank, name], float(value))
    yield from (steps, seconds, memory, metrics)


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", meaning, value)


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
