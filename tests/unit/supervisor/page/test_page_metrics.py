"""What Prometheus reads, as its own parser understands it."""

import dataclasses
import math
from typing import Any

import pytest
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.page.document import METRICS, Document, Gang, document
from ddpjob_supervisor.page.metrics import CAUSES, NAME_LENGTH, OTHER, PREFIX, Metrics
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
        "stall_limit_seconds": 480.0,
        "steps_total": 20,
        "repeated_steps_total": 0,
        "last_step_timestamp_seconds": AT,
        "checkpoint_step": 100,
        "checkpoint_timestamp_seconds": AT,
        "straggler_slowdown": {("1", "3"): 1.8},
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


def test_only_so_many_causes_are_told_apart() -> None:
    metrics = Metrics()
    for attempt in range(3 * CAUSES):
        incident = structs.replace(KILLED, attempt=attempt, end=structs.replace(KILLED.end, cause=f"Mine{attempt}"))
        found = read(metrics, document(dataclasses.replace(GANG, incidents=(incident,))))
    assert len(found["incidents_total"]) == CAUSES + 1
    assert found["incidents_total"][(OTHER,)] == 2 * CAUSES


def test_names_of_the_program_are_bounded_for_as_long_as_the_supervisor_runs() -> None:
    metrics, names = Metrics(), set[str]()
    for epoch in range(40):
        said = {
            **BEAT,
            "metrics": {"learning_rate": 0.1, f"loss_of_epoch_{epoch}": 1.0, "x" * (NAME_LENGTH + 1): 2.0},
        }
        found = read(metrics, document(dataclasses.replace(GANG, beats=(said,))))
        names |= {name for name, _ in found["rank_metric"]}
    assert names == {"learning_rate", *(f"loss_of_epoch_{epoch}" for epoch in range(METRICS - 1))}
    assert found["rank_metric"] == {("learning_rate", "3"): 0.1}, "names that are shown stay"


@pytest.mark.parametrize(
    ("reports", "steps", "repeated"),
    [
        ([(1, 5, 1), (1, 5, 1), (1, 9, 1)], 9, 0),
        ([(1, 105, 101), (1, 109, 101)], 9, 0),
        ([(1, 9, 1), (2, 7, 5), (2, 12, 5)], 9 + 8, 5),
        ([(1, 9, 1), (2, 12, 10)], 12, 0),
        ([(1, 9, 1), (2, 3, 1), (3, 11, 1)], 9 + 3 + 11, 3 + 9),
        ([(1, 9, None), (1, 12, None)], 3, 0),
    ],
)
def test_steps_are_counted_and_those_again_that_were_lost(
    reports: list[tuple[int, int, int | None]], steps: int, repeated: int
) -> None:
    metrics = Metrics()
    for attempt, step, first in reports:
        progress = dataclasses.replace(PROGRESS, attempt=attempt, step=step, first=first)
        found = read(metrics, document(dataclasses.replace(GANG, progress=progress)))
    assert (found["steps_total"], found["repeated_steps_total"]) == (steps, repeated)


def test_steps_without_numbers_are_counted_and_those_of_recounting_programs_are_not_called_repeated() -> None:
    metrics = Metrics()
    for attempt, step, anew, recounts in [
        *((1, 7, True, False), (1, 9, True, False), (2, 3, True, False)),
        *((3, 4, False, True), (3, 2, False, True), (3, 6, False, True)),
    ]:
        progress = dataclasses.replace(PROGRESS, attempt=attempt, step=step, first=1, anew=anew, recounts=recounts)
        found = read(metrics, document(dataclasses.replace(GANG, progress=progress)))
    assert (found["steps_total"], found["repeated_steps_total"]) == (9 + 3 + 4 + 4, 0)
