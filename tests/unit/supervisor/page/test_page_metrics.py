"""What Prometheus reads, as its own parser understands it."""

import dataclasses
import math
from typing import Any

import pytest
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.page.document import Document, Gang, document
from ddpjob_supervisor.page.metrics import PREFIX, Metrics
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from .gangs import AT, BEAT, GANG, KILLED, PROGRESS


def read(metrics: Metrics, said: Document) -> dict[str, Any]:
    """By name, the value; of what has labels, the values by their labels in order of the labels' names."""
    found: dict[str, Any] = {}
    metrics.note(said)
    for family in text_string_to_metric_families(metrics.exposition(said).decode()):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            if sample.labels:
                found.setdefault(name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
            else:
                found[name] = sample.value
    return found


def test_all_metrics() -> None:
    beat = {**BEAT, "seconds": {"data": 0.001, "backward": None}}
    assert read(Metrics(), document(dataclasses.replace(GANG, beats=(beat,)))) == {
        "attempt": 3,
        "phase": {(phase,): float(phase == "Running") for phase in Phase},
        "restarts_in_place_total": 1,
        "incidents_total": {("Application",): 1},
        "step": 120,
        "steps_planned": 400,
        "epoch": 1,
        "step_seconds": 0.02,
        "loss": 0.31,
        "samples_per_second": 3200.0,
        "last_step_timestamp_seconds": AT,
        "checkpoint_step": 100,
        "checkpoint_timestamp_seconds": AT,
        "rank_step": {("1", "3"): 120},
        "rank_seconds": {("data", "3"): 0.001},
        "memory_bytes": {("3",): 1 << 30},
        "rank_metric": {("learning_rate", "3"): 0.1},
    }


def test_what_counts_for_the_gang_is_told_by_one_supervisor_alone() -> None:
    other = read(Metrics(), document(dataclasses.replace(GANG, coordinator="job-0:29502")))
    assert other.keys() == {"attempt", "phase", "rank_step", "rank_seconds", "memory_bytes", "rank_metric"}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_loss_or_a_metric_that_has_gone_astray_is_told(number: float) -> None:
    gang = dataclasses.replace(
        GANG, progress=dataclasses.replace(PROGRESS, loss=number), beats=({**BEAT, "metrics": {"a": number}},)
    )
    found = read(Metrics(), document(gang))
    assert repr((found["loss"], found["rank_metric"])) == repr((number, {("a", "3"): number}))


def test_what_is_unknown_is_left_out() -> None:
    bare = read(Metrics(), document(Gang("u", 2, 1, 0, Phase.GATHERING, AT)))
    assert bare.keys() == {"attempt", "phase", "restarts_in_place_total"}


def test_incidents_are_counted_once_and_for_good() -> None:
    metrics = Metrics()
    stalled = structs.replace(KILLED.end, cause="Stalled")
    of = [structs.replace(KILLED, attempt=one, end=stalled if one % 2 else KILLED.end) for one in range(40)]
    for last in range(0, 40, 5):
        found = read(metrics, document(dataclasses.replace(GANG, incidents=tuple(of[: last + 5]))))
        assert sum(found["incidents_total"].values()) == last + 5
    assert found["incidents_total"] == {("Application",): 20, ("Stalled",): 20}
