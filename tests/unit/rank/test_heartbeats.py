"""What a rank tells: as it is written, as it is read, and what becomes of it where somebody dies."""

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import ddpjob
import msgspec
import psutil
import pytest
from ddpjob_rank.reporting import heartbeat, steps_seen, teller
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting.heartbeat import EMPTY, SLOTS, Record, decode
from ddpjob_rank.reporting.pace import Pace
from ddpjob_rank.reporting.result import result_file
from ddpjob_supervisor.watch.beat import Beat, BeatFields, Checkpoint
from ddpjob_supervisor.watch.heartbeats import Heartbeats

from tests.support.heartbeats import slot_of
from tests.support.waiting import patience
from tests.unit.rank.told import a_rank, beat_of, told_at

DEADLINE_SECONDS = 30
CALL_BOUND = 3.0
"""Of the CPU time that what a call tells takes as JSON: seconds would depend on the machine and its neighbours."""


# The file.


def written(file: bytes, number: int, record: Record) -> bytes:
    slot, content = SLOTS[number % 2], slot_of(number, record)
    return file[:slot] + content + file[slot + len(content) :]


def test_a_new_file_tells_nothing_nor_does_a_short_one() -> None:
    assert decode(EMPTY) is None
    assert decode(b"") is None
    assert decode(written(EMPTY, 1, Record())[:100]) is None


def test_the_newest_record_counts() -> None:
    file = EMPTY
    for number in range(1, 6):
        file = written(file, number, Record(step=number))
        found = decode(file)
        assert found
        assert (found.step, heartbeat.newest_number(file)) == (number, number)


def test_a_writer_that_is_killed_anywhere_in_a_write_leaves_the_record_before() -> None:
    before = written(written(EMPTY, 6, Record(step=6)), 7, Record(step=7, activity="saving"))
    slot, content = SLOTS[0], slot_of(8, Record(step=8, loss=0.25, activity="training"), b'{"accuracy":0.5}')
    for cut in range(len(content)):
        torn = before[:slot] + content[:cut] + before[slot + cut :]
        found = decode(torn)
        assert found, cut
        assert (found.step, found.activity) == (7, "saving"), cut


def test_numbers_that_are_not_known_stay_so() -> None:
    found = decode(written(EMPTY, 1, Record()))
    assert found
    assert math.isnan(found.step)
    assert math.isnan(found.loss)


# The pace.


@pytest.mark.parametrize(
    ("moments", "mean"),
    [
        ([(1, 10.0)], None),
        ([(1, 10.0), (1, 10.2)], 0.2),
        ([(1, 10.0), (1, 10.2), (1, 10.6)], 0.3),
        ([(1, 10.0), (10, 11.0)], 0.1),
        ([(1, 10.0), (1, 11.0), (1, 14.0)], 3.0),
        ([(1, 10.0), (1, 11.0), (1, 11.2)], 1.0),
        ([(1, 10.0), ("pause", 10.1), ("resume", 60.1), (1, 60.3)], 0.3),
        ([(1, 10.0), (1, 10.2), (-5, 11.0), (1, 11.2)], 0.2),
        ([(1, 10.0), (math.nan, 20.0), (1, 20.2)], 0.2),
        ([("pause", 5.0), (1, 10.0), (1, 10.2)], 0.2),
    ],
    ids=[
        "a first step has no time of its own",
        "a step",
        "two steps",
        "not every step is reported",
        "only the last window counts",
        "until the next window is full the last one counts",
        "what is no training is not in it",
        "a count that began anew",
        "a count that was not known",
        "another activity comes first",
    ],
)
def test_the_recent_mean_of_a_step(moments: list[tuple[Any, float]], mean: float | None) -> None:
    pace = Pace()
    for what, now in moments:
        getattr(pace, what)(now) if isinstance(what, str) else pace.step(what, now)
    assert pace.mean == pytest.approx(mean) if mean else math.isnan(pace.mean)


# Within one process.


@dataclass
class Here:
    """This process as a rank, with its supervisor beside it."""

    heartbeats: Heartbeats

    @property
    def beat(self) -> Beat:
        return beat_of(self.heartbeats)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Here]:
    with a_rank(monkeypatch, tmp_path, RANK="3", DDPJOB_ATTEMPT="2") as heartbeats:
        yield Here(heartbeats)
    assert heartbeats.read() == [None], "who asks while a supervisor ends gets an answer"


def test_without_a_supervisor_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    reporting._forget()
    ddpjob.report(step=1, loss="no number")  # type: ignore[arg-type]
    with ddpjob.activity("saving"):
        pass


REPORTS: dict[str, Callable[[int], object]] = {
    "report_step": lambda step: reporting.report_step(step, step // 3, float(step)),
    "a loss that is not a number": lambda step: reporting.report_step(step, 1, math.nan),
    "report": lambda step: ddpjob.report(
        step=step, total=9, samples=step, checkpoint=step, resumed=step, accuracy=step
    ),
    "activity": lambda step: ddpjob.report(activity=f"activity {step}"),
    "evaluation": lambda _: ddpjob.report(activity="evaluation"),
    "parts": lambda step: reporting.report_parts({"data": float(step)}),
    "announces_activities": lambda _: reporting.announces_activities(),
    "reports_steps": lambda _: reporting.reports_steps(),
    "starts_over": lambda _: reporting.starts_over(),
    "count_step": lambda _: reporting.count_step(),
    "see_bar": lambda step: reporting.see_bar(step, 3, 1, 0.5),
}


@pytest.mark.parametrize("first", REPORTS)
def test_in_any_order_of_reports_the_file_tells_all_that_was_reported(here: Here, first: str) -> None:
    reporting.report_step(1, 1, None)
    for step, name in enumerate([first, *random.choices(list(REPORTS), k=50)], start=2):
        REPORTS[name](step)
        reporting.report_step(step, 1, None)
        assert reporting._current
        told, reported = decode(here.heartbeats.path(0).read_bytes()), reporting._current.record
        assert told
        assert (slot_of(1, told), told.metrics) == (slot_of(1, reported), reported.metrics), f"after {name}"


def test_a_process_that_takes_over_after_its_training_has_begun_reports_its_steps(here: Here) -> None:
    reporting.report_step(119, 3, 0.5)
    reporting.count_step()  # As an optimizer does, in a step that the program reports itself.
    assert (here.beat.step, here.beat.first_step, here.beat.reports) == (119, 119, True)


def test_before_anything_is_told_there_is_no_beat(here: Here) -> None:
    assert here.heartbeats.read() == [None]


def test_what_is_told_is_read(here: Here) -> None:
    ddpjob.report(total=400, samples=64, epoch=2)
    assert (here.beat.activity, here.beat.step, here.beat.step_age) == ("starting", None, None)
    ddpjob.report(step=119)
    ddpjob.report(step=120, loss=0.25, accuracy=0.5, checkpoint=100)
    reporting.report_parts({"data": 0.125, "backward": 0.25})
    beat = here.beat
    assert (beat.rank, beat.attempt, beat.activity, beat.step, beat.epoch) == (3, 2, "training", 120, 2)
    assert (beat.total_steps, beat.loss, beat.samples, beat.metrics) == (400, 0.25, 64, {"accuracy": 0.5})
    assert beat.seconds == {"data": 0.125, "backward": 0.25}
    assert beat.step_age is not None
    assert beat.step_seconds is not None
    assert 0 <= beat.step_age < DEADLINE_SECONDS
    assert beat.memory_bytes
    assert beat.checkpoint
    assert beat.checkpoint.step == 100


def test_the_age_of_a_step_grows_while_no_other_is_finished(here: Here) -> None:
    ddpjob.report(step=1)
    first = here.beat.step_age
    ddpjob.report(loss=0.5)
    second = here.beat.step_age
    assert first is not None
    assert second is not None
    assert first < second


@pytest.mark.parametrize(
    ("told", "activities"),
    [
        ([{}], ["starting"]),
        ([{"activity": "training"}], ["starting"]),
        ([{"activity": "evaluation"}, {"activity": "training"}], ["evaluation", "starting"]),
        ([{"step": 1}, {"activity": "saving"}, {"step": 2}], ["training", "saving", "training"]),
        ([{"step": 1}, {"activity": "saving"}, {"loss": 0.5}], ["training", "saving", "saving"]),
        ([{"activity": "training", "step": 1}], ["training"]),
        ([{"activity": "packing " * 9}], ["packing packing packing packing "]),
        ([{"activity": "é" * 20}], ["é" * 16]),
    ],
    ids=[
        "a start",
        "training before the first step is a start",
        "something else before the first step",
        "a finished step is training",
        "anything else leaves it",
        "both at once",
        "a long name is cut",
        "between two characters",
    ],
)
def test_the_activity(here: Here, told: list[dict[str, Any]], activities: list[str]) -> None:
    seen = []
    for arguments in told:
        ddpjob.report(**arguments)
        seen.append(here.beat.activity)
    assert seen == activities


@pytest.mark.parametrize(
    ("tell", "announces"),
    [
        (lambda: ddpjob.report(step=1), False),
        (lambda: ddpjob.report(activity="saving"), False),
        (lambda: ddpjob.report(activity="evaluation"), True),
        (reporting.announces_activities, True),
    ],
    ids=["a step", "a save", "an evaluation", "it says so"],
)
def test_that_a_program_announces_what_takes_long_is_known_from_then_on(
    here: Here, tell: Callable[[], None], *, announces: bool
) -> None:
    tell()
    ddpjob.report(step=2)
    assert here.beat.announces is announces


def test_after_an_activity_comes_the_one_before_even_if_it_failed(here: Here) -> None:
    def evaluate() -> None:
        with ddpjob.activity("evaluation"):
            with ddpjob.activity("saving"):
                assert here.beat.activity == "saving"
            assert here.beat.activity == "evaluation"
            raise ZeroDivisionError

    ddpjob.report(step=1)
    with pytest.raises(ZeroDivisionError):
        evaluate()
    assert here.beat.activity == "training"


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ([{}], False),
        ([{"activity": "training", "step": 1}], False),
        ([{"activity": "evaluation"}], True),
        ([{"step": 1}, {"activity": "exporting"}], True),
        ([{"activity": "evaluation"}, {"step": 1}], False),
    ],
    ids=["a start", "training", "an evaluation", "a word of its own", "a step after an evaluation"],
)
def test_the_age_of_an_activity_is_told_while_it_goes_on(
    here: Here, told: list[dict[str, Any]], *, known: bool
) -> None:
    for arguments in told:
        ddpjob.report(**arguments)
    assert (here.beat.activity_age is not None) is known


def test_an_activity_that_is_told_again_is_young_again(here: Here) -> None:
    ddpjob.report(activity="evaluation")
    first, at = here.beat.activity_age, told_at()
    ddpjob.report(loss=0.5)
    second = here.beat.activity_age
    assert first is not None
    assert second is not None
    assert 0 <= first < second
    assert told_at() == at
    ddpjob.report(activity="evaluation")
    assert told_at() > at
    msgspec.convert(here.beat.to_dict(), BeatFields)


class OnGpu:
    """A tensor there, as far as anybody looks who does not wait for it."""

    is_cpu = False

    def item(self) -> float:
        raise AssertionError("it was read")

    __float__ = __int__ = item


class Tensor:
    """One that has a graph, which a float must not have."""

    is_cpu = True

    def item(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("told", "seen", "warning"),
    [
        ({"loss": Tensor()}, ("loss", 0.5), ""),
        ({"loss": 3}, ("loss", 3.0), ""),
        ({"loss": math.inf}, ("loss", math.inf), ""),
        ({"loss": OnGpu()}, ("loss", None), "it is on a GPU: pass loss.item() where the value is read anyway"),
        ({"loss": "low"}, ("loss", None), "loss=…: left out of the report, because it is not a number"),
        (
            {"loss": "0.5"},
            ("loss", None),
            "loss=…: left out of the report, because it is not a number: it is a string",
        ),
        ({"loss": 10**400}, ("loss", None), "loss=…: left out of the report, because it is not a number"),
        ({"step": "x"}, ("step", None), "step=…: left out of the report, because it is not a whole number"),
        ({"step": OnGpu()}, ("step", None), "step=…: left out of the report"),
        ({"step": -1}, ("step", None), "step=…: left out of the report"),
        ({"step": 2**60}, ("step", None), "step=…: left out of the report"),
        ({"step": math.nan}, ("step", None), "step=…: left out of the report"),
        ({"epoch": 2.0}, ("epoch", 2), ""),
        ({"grades": [1, 2]}, ("metrics", {}), "grades=…: left out of the report, because it is not a number"),
        ({"x" * 3000: 1.0}, ("metrics", {}), "left out of the report, because all metrics must fit into"),
        ({"accuracy": -math.inf}, ("metrics", {"accuracy": -math.inf}), ""),
    ],
)
def test_what_cannot_be_told_is_left_out_and_that_is_said_once(
    here: Here, capsys: pytest.CaptureFixture[str], told: dict[str, Any], seen: tuple[str, object], warning: str
) -> None:
    field, value = seen
    for _ in range(3):
        ddpjob.report(**told)
    assert getattr(here.beat, field) == value
    said = capsys.readouterr().err.splitlines()
    assert len(said) == bool(warning), said
    assert warning in "".join(said)


@pytest.mark.parametrize("value", ["high", "0.5", [1, 2], None])
def test_a_metric_of_training_that_is_no_number_is_told_of_once_also_without_a_supervisor(
    value: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    reporting._forget()
    monkeypatch.setattr(teller, "_warned", set())
    for _ in range(3):
        reporting.measure({"accuracy": value, "far": OnGpu(), "f1": 0.5})
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("warning: accuracy=…: left out of the report, because it is not a number: ")


def test_a_loss_that_has_diverged_is_told_and_so_are_metrics(here: Here) -> None:
    ddpjob.report(loss=0.5, accuracy=0.5)
    ddpjob.report(loss=math.nan, accuracy=math.nan)
    assert here.beat.loss is not None
    assert math.isnan(here.beat.loss)
    assert math.isnan(here.beat.metrics["accuracy"])
    ddpjob.report(loss=OnGpu(), accuracy=OnGpu())
    assert (here.beat.loss, here.beat.metrics) == (None, {})
    ddpjob.report(loss=0.25)
    assert here.beat.loss == 0.25


def test_metrics_that_fit_stay_when_one_more_does_not(here: Here) -> None:
    for number in range(500):
        ddpjob.report(**{f"metric_{number}": number / 3})
    kept = here.beat.metrics
    assert 20 < len(kept) < 500
    assert kept["metric_7"] == 7 / 3


def test_steps_are_counted_only_until_they_are_reported(here: Here) -> None:
    reporting.count_step()
    reporting.count_step()
    assert (here.beat.step, here.beat.activity) == (2, "training")
    ddpjob.report(step=100)
    reporting.count_step()
    assert here.beat.step == 100


class OnAGpu:
    is_cpu = False

    def __int__(self) -> int:
        raise AssertionError("it waits for the GPU")


# What an optimizer keeps of a parameter after its first step in attempt 2 -> that step, and whether counted anew.
FIRST_STEPS: dict[str, tuple[dict[str, object], int, bool]] = {
    "Adam at its start": ({"step": 1.0}, 1, False),
    "Adam with the state of a checkpoint of step 100": ({"step": 101.0}, 101, False),
    "SGD, which does not count": ({"momentum_buffer": 0.5}, 1, True),
    "one on a GPU": ({"step": OnAGpu()}, 1, True),
    "one with a word of its own": ({"step": "two"}, 1, True),
}


# Whether weights were loaded, and what a new optimizer keeps after its first step -> the first step, if it is known.
BEGINNINGS: dict[str, tuple[bool, dict[str, object], int | None]] = {
    "Adam": (False, {"step": 1.0}, 1),
    "Adam on a GPU": (False, {"step": OnAGpu()}, 1),
    "Adam of a model that goes on from somewhere": (True, {"step": 1.0}, None),
    "the same on a GPU": (True, {"step": OnAGpu()}, None),
    "SGD, which does not count": (False, {"momentum_buffer": 0.5}, None),
}


@pytest.mark.parametrize(("loaded", "kept", "first"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_program_begins_at_the_beginning_where_its_optimizer_is_new_and_no_weights_were_loaded(
    here: Here, monkeypatch: pytest.MonkeyPatch, kept: dict[str, object], first: int | None, *, loaded: bool
) -> None:
    class Optimizer:
        state: dict[str, object]

    class Module:
        def load_state_dict(self, weights: str) -> str:
            return weights

    monkeypatch.setattr(steps_seen, "_has_loaded", False)
    steps_seen._watch_loading(SimpleNamespace(Module=Module))  # type: ignore[arg-type]
    if loaded:
        assert Module().load_state_dict(weights="w") == "w"
    optimizer, counter = Optimizer(), steps_seen._Counter()
    optimizer.state = {}
    forgotten: list[int] = []
    counter.forget_start = lambda: forgotten.append(len(optimizer.state))
    for _ in range(3):
        counter.note_start(optimizer, (), {})
        optimizer.state["a parameter"] = kept
        counter(optimizer, (), {})
    assert (here.beat.step, here.beat.first_step, here.beat.anew) == (3, first, first is None)
    assert forgotten == [1], "once, and not in the midst of what is called before a step"


@pytest.mark.parametrize(("kept", "step", "anew"), FIRST_STEPS.values(), ids=FIRST_STEPS)
def test_counting_begins_where_the_optimizer_says_that_it_is(
    here: Here, kept: dict[str, object], step: int, *, anew: bool
) -> None:
    class Optimizer:
        state = {"a parameter": kept}  # noqa: RUF012  as PyTorch's

    optimizer, counter = Optimizer(), steps_seen._Counter()
    for number in (step, step + 1):
        counter(optimizer, (), {})
        assert (here.beat.step, here.beat.counted, here.beat.anew) == (number, True, anew)
    msgspec.convert(here.beat.to_dict(), BeatFields)


class SGD:
    state: ClassVar[dict[str, object]] = {}


@pytest.mark.parametrize(
    ("rank", "together", "reports", "told"),
    [("0", None, False, 1), ("0", 2, False, 2), ("0", 4, False, 0), ("1", None, False, 0), ("0", None, True, 0)],
    ids=["without a group", "in a group of its node", "with all", "not rank 0", "as it says itself"],
)
def test_a_program_that_trains_without_the_others_of_its_job_is_told_once(
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    rank: str,
    together: int | None,
    reports: bool,
    told: int,
) -> None:
    group = {"is_available": lambda: True, "is_initialized": lambda: together, "get_world_size": lambda: together}
    monkeypatch.setitem(sys.modules, steps_seen.DISTRIBUTED, SimpleNamespace(**group))  # type: ignore[arg-type]
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", rank)
    if reports:
        reporting.reports_steps()
    optimizer, counter = SGD(), steps_seen._Counter()
    for _ in range(2):
        counter(optimizer, (), {})
    said = capsys.readouterr().err
    assert said.count(f"trains in a process group of {told} process") == bool(told)
    assert bool(said) is bool(told)
    assert (here.beat.step == 2) is not reports


def test_the_first_step_of_an_attempt_is_the_first_one_that_is_reported(here: Here) -> None:
    reporting.count_step(before=0)
    assert (here.beat.first_step, here.beat.begins) == (1, None)
    ddpjob.report(step=8001, resumed=8000)
    ddpjob.report(step=8002)
    assert (here.beat.first_step, here.beat.begins) == (8001, "FromCheckpoint")


def test_a_program_says_whether_there_was_a_checkpoint_or_that_it_wants_none(here: Here) -> None:
    ddpjob.report(resumed=0)
    assert here.beat.begins == "NothingSaved"
    reporting.starts_over()
    assert here.beat.begins == "AsAsked"


def test_in_the_first_attempt_nothing_is_counted_anew(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPJOB_ATTEMPT", "1")
    reporting.count_step()
    assert (here.beat.step, here.beat.anew) == (1, False)


def test_what_was_counted_anew_is_not_once_steps_are_reported(here: Here) -> None:
    reporting.count_step()
    ddpjob.report(step=100)
    assert (here.beat.step, here.beat.anew) == (100, False)


def test_a_program_that_is_going_to_report_its_steps_is_not_counted(here: Here) -> None:
    reporting.reports_steps()
    assert here.beat.reports, "before the first step, too"
    reporting.count_step()
    ddpjob.report(epoch=1)
    assert here.beat.step is None


def test_a_late_writer_of_an_earlier_attempt_is_not_heard(here: Here) -> None:
    ddpjob.report(step=7)
    here.heartbeats.reset(0)
    ddpjob.report(step=8)
    assert here.heartbeats.read() == [None]


def test_a_file_that_cannot_be_written_is_said_once(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\1" * len(EMPTY))
    for path in (tmp_path / "none", other):
        monkeypatch.setenv("DDPJOB_HEARTBEAT", str(path))
        monkeypatch.setattr(teller, "_warned", set())
        reporting._forget()
        for step in range(3):
            ddpjob.report(step=step)
        assert str(path) in capsys.readouterr().err
    other.unlink()
    assert here.heartbeats.read() == [None]


def _seconds(call: Callable[[int], object], calls: int) -> float:
    began = time.process_time()
    for step in range(calls):
        call(step)
    return time.process_time() - began


@pytest.mark.parametrize("metrics", [{}, {f"metric_{number}": 0.1 * number for number in range(20)}], ids=len)
def test_the_call_is_cheap(here: Here, metrics: dict[str, float]) -> None:
    calls = 2000
    told, written = [], []
    for _ in range(5):
        told.append(_seconds(lambda step: ddpjob.report(step=step, loss=0.5, epoch=1, **metrics), calls))
        written.append(_seconds(lambda step: json.dumps({"step": step, "loss": 0.5, "epoch": 1, **metrics}), calls))
    ratio = min(told) / min(written)
    print(f"CPU time of a report(): {min(told) / calls * 1e6:.1f} us, {ratio:.2f} times what its JSON takes")
    assert ratio <= CALL_BOUND
    assert here.beat.step == calls - 1


# As it is passed on.


def test_what_is_sent_is_a_beat() -> None:
    full = Beat(
        rank=1,
        attempt=3,
        activity="training",
        step=120,
        step_age=0.02,
        counted=True,
        reports=True,
        announces=True,
        epoch=1,
        total_steps=400,
        loss=0.31,
        samples=64,
        step_seconds=0.02,
        seconds={"data": 0.001, "communication": 0.004},
        memory_bytes=1 << 30,
        checkpoint=Checkpoint(100, "2026-11-21T12:00:00.000Z"),
        metrics={"accuracy": 0.5},
        first_step=101,
        begins="FromCheckpoint",
    )
    for one in (full, Beat(rank=0, attempt=1, activity="starting")):
        msgspec.json.decode(msgspec.json.encode(one.to_dict()), type=BeatFields)


def test_a_beat_is_sent_by_these_names() -> None:
    told = Beat(
        *(1, 3, "exporting", 2.5, 9, 0.5, True, True, True, True, 1, 20, 0.3, 64, 0.02, {"data": 0.1}, 5),
        *(Checkpoint(8, "t"), {"a": 1.0}, "P2P", "hot", 3, "AsAsked", "T"),
    )
    assert set(told.to_dict()) == {
        "rank", "attempt", "activity", "activityAge", "step", "stepAge", "counted", "anew", "reports", "announces",
        "epoch", "totalSteps", "loss", "samples", "stepSeconds", "seconds", "memoryBytes", "checkpoint", "metrics",
        "transport", "slowed", "firstStep", "begins", "stopped",
    }  # fmt: skip
    assert set(Beat(1, 3, "starting").to_dict()) == {"rank", "attempt", "activity"}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"rank": "x", "attempt": 1, "activity": "training"},
        {"rank": 1, "attempt": 1, "activity": "training", "checkpoint": {"step": 1}},
        {"rank": 1, "attempt": 1, "activity": "training", "seconds": 3},
        {"rank": 1, "attempt": 1, "activity": "training", "seconds": {"data": "1"}},
        {"rank": 1, "attempt": 1, "activity": "training", "metrics": {"a": None}},
        {"rank": 1, "attempt": 1, "activity": "training", "step": True},
        {"rank": 1, "attempt": 1, "activity": "training", "stepAge": None},
        {"rank": 1, "attempt": 1, "activity": None},
        {"rank": 1, "activity": "training"},
    ],
    ids=str,
)
def test_what_is_no_beat_is_said_to_be_none(told: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(told, BeatFields)


# Processes that come and go.


def start(code: str, path: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from ddpjob import report\n{code}"],
        env={**os.environ, "DDPJOB_HEARTBEAT": str(path), "RANK": "0", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(code: str, path: Path, **env: str) -> str:
    process = start(code, path, **env)
    output, _ = process.communicate(timeout=patience(DEADLINE_SECONDS))
    assert process.returncode == 0
    return output


@pytest.fixture
def heartbeats(tmp_path: Path) -> Iterator[Heartbeats]:
    made = Heartbeats(tmp_path, 2)
    yield made
    made.close()


def test_results_of_former_attempts_are_deleted(heartbeats: Heartbeats) -> None:
    for local_rank, attempt in ((0, 1), (0, 2), (1, 1)):
        result_file(heartbeats.path(local_rank), attempt).write_text("1")
    heartbeats.reset(0)
    assert [file.name for file in heartbeats.path(0).parent.glob("*result*")] == ["1.result-1"]


FAST = """
step = 0
print("writes", flush=True)
while True:
    step += 1
    report(step=step, epoch=step, loss=step, total=step, x=step)
"""


def test_whatever_is_read_was_told_at_one_time_also_of_a_writer_that_is_killed(heartbeats: Heartbeats) -> None:
    for _ in range(5):
        heartbeats.reset(0)
        writer = start(FAST, heartbeats.path(0))
        assert writer.stdout
        assert writer.stdout.readline() == "writes\n"
        seen = set()
        begun = time.monotonic()
        while len(seen) < 100:
            assert time.monotonic() < begun + patience(DEADLINE_SECONDS), f"only {len(seen)} steps were seen"
            if beat := heartbeats.read()[0]:
                assert beat.step == beat.epoch == beat.loss == beat.total_steps == beat.metrics["x"]
                seen.add(beat.step)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        last = heartbeats.read()[0]
        assert last
        assert last.step == last.epoch == last.loss == last.total_steps == last.metrics["x"] >= max(seen)


FORKS = """
import os
if WHO_TELLS_FIRST == "parent": report(step=1, epoch=1)
child = os.fork()
if not child:
    report(step=2, epoch=2)
    os._exit(0)
os.waitpid(child, 0)
if WHO_TELLS_FIRST == "child": report(step=3, epoch=3)
"""


@pytest.mark.parametrize(("who", "epoch"), [("parent", 1), ("child", 3), ("only the child", 2)])
def test_of_several_processes_the_first_one_tells_while_it_lives(
    heartbeats: Heartbeats, who: str, epoch: int
) -> None:
    run(f"WHO_TELLS_FIRST = {who!r}{FORKS}", heartbeats.path(0))
    beat = heartbeats.read()[0]
    assert beat
    assert beat.epoch == epoch


HOLDS = "report(step=1); print('tells', flush=True); input()"
TAKES_OVER = """
import os, time
from ddpjob_rank.reporting import report as reporting
reporting.TAKE_OVER_SECONDS = 0.01
report(step=50)
opened = os.listdir("/proc/self/fd")
for _ in range(5):
    time.sleep(0.02)
    report(step=50)
print(reporting._current, os.listdir("/proc/self/fd") == opened, flush=True)
input()
time.sleep(0.02)
report(step=51)
print(bool(reporting._current))
"""


def test_who_tells_may_be_followed_by_another_process(heartbeats: Heartbeats) -> None:
    first, second = start(HOLDS, heartbeats.path(1)), None
    try:
        assert first.stdout
        assert first.stdout.readline() == "tells\n"
        second = start(TAKES_OVER, heartbeats.path(1))
        assert second.stdout
        assert second.stdout.readline() == "None True\n"
        first.kill()
        first.communicate()
        output, _ = second.communicate("\n", timeout=patience(DEADLINE_SECONDS))
        assert output == "True\n"
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()
    beat = heartbeats.read()[1]
    assert beat
    assert beat.step == 51


def test_to_import_it_takes_no_pytorch() -> None:
    code = "import sys, ddpjob_trainer; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=patience(DEADLINE_SECONDS), check=False).returncode == 0
    )


def test_numbers_and_parts_of_a_step_are_told_as_soon_as_they_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with a_rank(monkeypatch, tmp_path) as heartbeats:
        reporting.measure({"accuracy": 0.5})
        assert beat_of(heartbeats).metrics == {"accuracy": 0.5}
        reporting.report_parts({"data": 0.25, "forward": 1.0})
        seconds = beat_of(heartbeats).seconds
        assert (seconds["data"], seconds["forward"]) == (0.25, 1.0)


def test_the_memory_of_a_process_without_a_gpu_is_what_it_has_in_memory() -> None:
    touched = bytearray(64 << 20)
    touched[::4096] = b"x" * len(touched[::4096])
    assert teller._memory_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert teller._memory_bytes() > len(touched)


def test_the_memory_of_a_process_with_a_gpu_is_the_gpus_and_may_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, memory_allocated=lambda: 4711)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert teller._memory_bytes() == 4711
    cuda.is_initialized = lambda: False

    def refuse(_: object) -> bytes:
        raise OSError

    assert teller._memory_bytes() > 1 << 20
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert math.isnan(teller._memory_bytes())


def test_memory_is_measured_now_and_then_and_not_whenever_something_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = itertools.count(1)
    monkeypatch.setattr(teller, "_memory_bytes", lambda: next(looks))
    with a_rank(monkeypatch, tmp_path) as heartbeats:
        reporting.report(step=1)
        assert reporting._current
        now = time.monotonic() + teller.MEMORY_SECONDS
        measured = []
        for later in (0.0, 0.1, teller.MEMORY_SECONDS - 0.1, teller.MEMORY_SECONDS):
            reporting._current.write(now + later)
            measured.append(beat_of(heartbeats).memory_bytes)
    assert measured == [measured[0]] * 3 + [measured[0] + 1]


def test_steps_that_were_counted_count_no_more_once_the_program_says_that_it_reports_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, written = SimpleNamespace(counted=7), []
    monkeypatch.setattr(reporting, "_current", SimpleNamespace(record=record, write=written.append))
    monkeypatch.setattr(reporting, "_look_at", math.inf)  # It has looked.
    reporting.reports_steps()
    assert record.counted == 0
    assert len(written) == 1
