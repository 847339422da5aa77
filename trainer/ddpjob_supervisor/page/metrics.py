"""GET /metrics: the document of GET /status as Prometheus reads it.

An incident is counted when it is first seen, by its attempt: the document has the last ones only.
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
    ("totalSteps", "steps_planned", "Steps that the program intends to train"),
    ("epoch", "epoch", "Present epoch"),
    ("stepSeconds", "step_seconds", "Time of a step, the median of the recent ones"),
    ("loss", "loss", "Training loss, from the lowest rank that reports it"),
    ("samplesPerSecond", "samples_per_second", "Samples of all processes at the pace of the recent steps"),
)


class Metrics(Collector):
    """Metrics of one supervisor."""

    def __init__(self) -> None:
        self._incidents: Counter[str] = Counter()
        self._counted = -1
        """Attempt of the last incident that has been counted."""
        self._document: Document = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def note(self, document: Document) -> None:
        """Counts what is new in a document."""
        for incident in document.get("incidents", ()):
            if incident["attempt"] > self._counted:
                self._counted = incident["attempt"]
                self._incidents[incident["cause"]] += 1

    def exposition(self, document: Document) -> bytes:
        """The metrics, in Prometheus' text format."""
        self._document = document
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metric families, as the registry asks for them."""
        if self._document:
            yield from _state(self._document)
            if "coordinator" not in self._document:  # Every supervisor would count the same.
                yield from self._restarts(self._document)
                yield from _progress(self._document)
            yield from _processes(self._document)

    def _restarts(self, document: Document) -> Iterator[Metric]:
        yield CounterMetricFamily(
            f"{PREFIX}restarts_in_place", "Restarts by the supervisors alone", document["inPlaceRestarts"]
        )
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
            yield _gauge(name, meaning, float(progress[field]))  # It may be a word, such as NaN.
    if progress.get("lastStepTime"):
        yield _gauge(
            "last_step_timestamp_seconds", "When the last step was finished", _epoch(progress["lastStepTime"])
        )
    if checkpoint:
        yield _gauge("checkpoint_step", "Steps in the last checkpoint", checkpoint["step"])
        yield _gauge("checkpoint_timestamp_seconds", "When it was written", _epoch(checkpoint["time"]))


def _processes(document: Document) -> Iterator[Metric]:
    steps = GaugeMetricFamily(f"{PREFIX}rank_step", "Steps that a process has finished", labels=["rank", "node"])
    seconds = GaugeMetricFamily(
        f"{PREFIX}rank_seconds", "Time in the parts of a step, recent means", labels=["rank", "part"]
    )
    memory = GaugeMetricFamily(f"{PREFIX}memory_bytes", "Memory of a process, as it reports it", labels=["rank"])
    metrics = GaugeMetricFamily(
        f"{PREFIX}rank_metric", "A number of the program's own, as a process reports it", labels=["rank", "name"]
    )
    for one in document.get("ranks", ()):
        rank = str(one["rank"])
        if one["step"] is not None:
            steps.add_metric([rank, str(one["node"])], one["step"])
        for part, value in one["seconds"].items():
            if value is not None:
                seconds.add_metric([rank, part], value)
        if one["memoryBytes"] is not None:
            memory.add_metric([rank], one["memoryBytes"])
        for name, value in one["metrics"].items():
            metrics.add_metric([rank, name], float(value))
    yield from (steps, seconds, memory, metrics)


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", meaning, value)


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
