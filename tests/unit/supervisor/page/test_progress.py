"""How far a gang is and how fast it goes, by what its processes say."""

import math
import random
from collections.abc import Iterable
from typing import Any

import pytest
from ddpjob_supervisor.page.progress import POINTS, GangProgress, Progress
from ddpjob_supervisor.watch.beat import BeatDocument

WALL = 1_790_000_000.0
"""Seconds of the epoch when the monotonic clock stands at 0."""


def beat(process: int, step: int | None, age: float | None = 0.0, **more: object) -> BeatDocument:
    return {"rank": process, "node": process, "step": step, "stepAge": age, **more}


def heard(pace: GangProgress, said: Iterable[tuple[float, list[BeatDocument]]], attempt: int = 1) -> Progress | None:
    """The progress after these beats, each with the time at which it came."""
    now = 0.0
    for now, beats in said:
        pace.add(attempt, beats, now)
    return pace.progress(now, WALL + now)


def running(seconds: Iterable[float], step_seconds: float, **more: object) -> list[tuple[float, list[BeatDocument]]]:
    """What two processes say each second that finish their steps together, one every `step_seconds`."""
    said = []
    for now in seconds:
        step = int(now / step_seconds)
        age = now - step * step_seconds
        said.append((now, [beat(0, step, age, **more), beat(1, step, age, **more)]))
    return said


@pytest.mark.parametrize("step_seconds", [0.02, 0.3, 1.0, 7.0])
def test_the_pace_is_found_however_long_a_step_takes(step_seconds: float) -> None:
    seconds = range(1, 2 + int(5 * max(1, step_seconds)))
    progress = heard(GangProgress(), running(seconds, step_seconds, samples=64, totalSteps=10_000))
    assert progress is not None
    assert progress.step_seconds == pytest.approx(step_seconds)
    assert progress.samples_per_second == pytest.approx(64 / step_seconds)
    assert progress.eta_seconds == pytest.approx((10_000 - progress.step) * step_seconds)


def test_beats_that_come_late_now_and_then_and_a_long_evaluation_do_not_move_the_pace() -> None:
    pace, noise = GangProgress(), random.Random(1)
    for second in range(40):
        step = second * 10 if second < 30 else 290 + (second - 30) * 10
        now = second + (20 if second >= 30 else 0)
        for process in (0, 1):
            late = noise.choice([0.0, 0.0, 0.0, 0.4])
            pace.add(1, [beat(process, step)], now + late)
    progress = pace.progress(70.0, WALL)
    assert progress is not None
    assert progress.step_seconds == pytest.approx(0.1, rel=0.05)


def test_the_step_is_that_of_the_slowest_process_and_its_time_when_that_finished_it() -> None:
    progress = heard(GangProgress(), [(5.0, [beat(0, 9, 0.1), beat(1, 8, 0.25), beat(2, 8, 0.5)])])
    assert progress is not None
    assert (progress.step, progress.last_step_time) == (8, WALL + 4.75)


def test_where_rank_0_alone_tells_its_steps_those_counted_for_the_others_do_not_matter() -> None:
    progress = heard(GangProgress(), [(5.0, [beat(0, 5000), beat(1, 20, counted=True)])])
    assert progress is not None
    assert progress.step == 5000
    progress = heard(GangProgress(), [(5.0, [beat(0, 21, counted=True), beat(1, 20, counted=True)])])
    assert progress is not None
    assert progress.step == 20


def test_a_beat_that_is_said_again_does_not_make_a_step_younger() -> None:
    same = [beat(0, 8, 0.25)]
    progress = heard(GangProgress(), [(1.0, same), (2.0, same), (9.0, same)])
    assert progress is not None
    assert progress.last_step_time == WALL + 0.75


@pytest.mark.parametrize(
    ("activities", "said"),
    [
        (["training", "training"], None),
        (["training", "evaluation"], "Evaluating"),
        (["saving", "training"], "Saving"),
        (["saving", "evaluation"], "Evaluating"),
        (["exporting", "training"], None),
    ],
)
def test_what_the_gang_does_between_two_steps_is_said_and_when_that_was_last_heard(
    activities: list[str], said: str | None
) -> None:
    beats = [
        beat(process, 7, 9.0, activity=activity, **({} if activity == "training" else {"activityAge": 2.0 + process}))
        for process, activity in enumerate(activities)
    ]
    youngest = min((told.get("activityAge", math.inf) for told in beats), default=math.inf)
    pace = GangProgress()
    progress = heard(pace, [(20.0, beats)])
    assert progress is not None
    assert progress.activity == said
    assert progress.activity_time == (None if youngest == math.inf else WALL + 20 - youngest)
    ended = heard(pace, [(21.0, [beat(process, 7, 10.0, activity="training") for process in (0, 1)])])
    assert ended is not None
    assert (ended.activity, ended.activity_time) == (None, progress.activity_time)
    pace.add(2, [], 21.0)
    after = pace.progress(21.0, WALL + 21)
    assert after is not None
    assert (after.activity, after.activity_time) == (None, None)


@pytest.mark.parametrize(
    ("step", "total", "percent", "eta"),
    [
        (120, 400, 30.0, 280.0),
        (1, 3, 33.3, 2.0),
        (9_999, 10_000, 99.9, 1.0),
        (400, 400, 100.0, 0.0),
        (401, 400, 100.0, 0.0),
        (0, 400, 0.0, 400.0),
        (3, None, None, None),
        (3, 0, None, 0.0),
    ],
)
def test_percent_and_what_is_left(step: int, total: int | None, percent: float | None, eta: float | None) -> None:
    progress = Progress(step=step, total_steps=total, step_seconds=1.0)
    assert (progress.percent, progress.eta_seconds) == (percent, eta)


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ([], None),
        ([(1.0, [])], None),
        ([(1.0, [beat(0, None, None), beat(1, None, None)])], None),
        ([(1.0, [beat(0, 3), beat(1, None, None)])], 3),
        ([(1.0, [beat(0, 0, None)])], 0),
    ],
    ids=["no beats", "no processes", "no steps yet", "one of two has a step", "a step of an earlier attempt"],
)
def test_no_end_is_foretold_before_there_is_a_pace(
    said: list[tuple[float, list[BeatDocument]]], step: int | None
) -> None:
    progress = heard(GangProgress(), said)
    assert (progress and progress.step) == step
    assert progress is None or (progress.eta_seconds, progress.samples_per_second) == (None, None)


def test_after_a_restart_the_step_goes_back_and_the_pace_is_found_anew() -> None:
    pace = GangProgress()
    before = heard(pace, running(range(1, 10), 0.1, totalSteps=400))
    assert before is not None
    assert (before.step, before.percent) == (90, 22.5)
    silent = heard(pace, [(11.0, [])], attempt=2)
    assert silent is not None
    assert (silent.step, silent.total_steps, silent.eta_seconds, silent.last_step_time) == (90, 400, None, WALL + 9)
    resumed = heard(pace, [(12.0, [beat(0, 50, None), beat(1, 50, None)])], attempt=2)
    assert resumed is not None
    assert (resumed.step, resumed.step_seconds) == (50, None)
    on = [(13.0, [beat(0, 51), beat(1, 51)]), (14.0, [beat(0, 53), beat(1, 53)])]
    after = heard(pace, on, attempt=2)
    assert after is not None
    assert (after.step, after.step_seconds, after.last_step_time) == (53, 0.5, WALL + 14)


def test_steps_that_are_counted_anew_after_a_restart_are_no_part_of_the_whole() -> None:
    pace = GangProgress()
    before = heard(pace, running(range(1, 10), 0.1, totalSteps=400, counted=True))
    after = heard(pace, running(range(1, 10), 0.5, totalSteps=400, counted=True, anew=True), attempt=2)
    assert before is not None
    assert after is not None
    assert (before.step, before.percent, before.anew) == (90, 22.5, False)
    assert (after.step, after.percent, after.eta_seconds, after.anew) == (18, None, None, True)


def test_a_script_that_counts_anew_has_the_pace_of_its_new_count() -> None:
    pace = GangProgress()
    heard(pace, [(float(second), [beat(0, second)]) for second in range(10)])
    anew = heard(pace, [(float(10 + 2 * step), [beat(0, step)]) for step in range(5)])
    assert anew is not None
    assert (anew.step, anew.step_seconds) == (4, 2.0)


def test_the_pace_is_that_of_the_last_minute() -> None:
    pace = GangProgress()
    heard(pace, [(float(second), [beat(0, second)]) for second in range(300)])
    faster = heard(pace, [(float(300 + second), [beat(0, 300 + second * 4)]) for second in range(POINTS)])
    assert faster is not None
    assert faster.step_seconds == 0.25


def test_what_one_process_alone_tells_is_told() -> None:
    told: dict[str, Any] = {"epoch": 2, "totalSteps": 40, "loss": 0.5}
    progress = heard(GangProgress(), [(1.0, [beat(3, 7, epoch=9), beat(0, 7), beat(1, 7, **told)])])
    assert progress is not None
    assert (progress.epoch, progress.total_steps, progress.loss) == (2, 40, 0.5)


def test_where_an_attempt_began_is_told_with_its_number_and_since_when() -> None:
    pace = GangProgress()
    first = heard(pace, [(1.0, [beat(0, 7, 0.5, firstStep=3), beat(1, 6, 0.25, firstStep=3)]), (9.0, [beat(0, 9)])])
    assert first is not None
    assert (first.attempt, first.first, first.since) == (1, 3, WALL + 0.75)
    pace.add(2, [beat(0, None, None)], 10.0)
    between = pace.progress(11.0, WALL)
    assert between is not None
    assert (between.attempt, between.first) == (1, 3), "no step of the second one is known yet"
    second = heard(
        pace, [(12.0, [beat(0, 8, begins="FromCheckpoint"), beat(1, 7, counted=True, firstStep=1)])], attempt=2
    )
    assert second is not None
    assert (second.attempt, second.first, second.begins, second.since) == (2, 8, "FromCheckpoint", WALL + 12)


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ({}, 5),
        ({"firstStep": 2}, 2),
        ({"counted": True, "firstStep": 2}, 2),
        ({"counted": True}, None),
        ({"counted": True, "anew": True}, None),
    ],
    ids=["a script of posts", "one that reports", "one that is counted", "by a bar over the rest", "counted anew"],
)
def test_the_first_step_is_what_the_rank_says_or_the_first_one_seen(told: dict[str, Any], first: int | None) -> None:
    progress = heard(GangProgress(), [(1.0, [beat(0, 5, **told)]), (3.0, [beat(0, 8, **told)])])
    assert progress is not None
    assert progress.first == first


def test_a_script_that_counts_the_steps_of_each_epoch_anew_is_known_from_then_on() -> None:
    pace = GangProgress()
    told = [(1, [beat(0, 8), beat(1, 9)]), (1, [beat(0, 9), beat(1, 8)]), (2, [beat(0, 3)]), (2, [beat(0, 4)])]
    recounts = []
    for now, (attempt, beats) in enumerate(told):
        progress = heard(pace, [(2.0 * now, beats)], attempt)
        assert progress is not None
        recounts.append(progress.recounts)
    assert recounts == [False, True, True, True]
    reported = heard(GangProgress(), [(1.0, [beat(0, 8, counted=True)]), (3.0, [beat(0, 5)])])
    assert reported is not None
    assert not reported.recounts, "its own numbers are others than those that were counted"


def test_a_loss_is_not_told_to_be_not_finite_before_a_process_could_have_seen_it() -> None:
    progress = heard(GangProgress(), [(1.0, [beat(0, 301, loss="NaN"), beat(1, 277)])])
    assert progress is not None
    assert (progress.step, progress.not_finite_since) == (277, 301)


def test_since_when_the_loss_is_not_finite_is_told_until_it_is_one_again_or_another_attempt_begins() -> None:
    pace = GangProgress()
    told = [(1.0, 1, 7, 0.5), (2.0, 1, 8, "NaN"), (3.0, 1, 9, "-Infinity"), (4.0, 1, 10, None), (5.0, 1, 11, 0.4)]
    told += [(6.0, 1, 12, "NaN"), (7.0, 2, 5, "NaN")]
    since = []
    for now, attempt, step, loss in told:
        progress = heard(pace, [(now, [beat(0, step, loss=loss)])], attempt)
        assert progress is not None
        since.append(progress.not_finite_since)
    assert since == [None, 8, 8, None, None, 12, 5]


def test_the_newest_checkpoint_is_remembered_over_attempts() -> None:
    pace = GangProgress()
    first, second = ({"step": step, "time": f"2026-01-01T00:0{step}:00.000Z"} for step in (1, 2))
    pace.add(1, [beat(0, 2, checkpoint=second), beat(1, 2, checkpoint=first)], 1.0)
    pace.add(2, [beat(0, None, None)], 2.0)
    assert pace.checkpoint == second


def test_a_checkpoint_tells_that_all_have_finished_its_step_however_late_their_own_words_are() -> None:
    pace, saved = GangProgress(), {"step": 816, "time": WALL}
    pace.add(1, [beat(0, 810), beat(1, 809)], 1.0)
    pace.add(1, [beat(0, 816, checkpoint=saved)], 1.2)
    pace.look()
    stopped = pace.progress(1.3, WALL)
    assert stopped is not None
    assert stopped.step == 816
    again = heard(pace, [(5.0, [beat(0, 12, checkpoint=saved), beat(1, 12)])], attempt=2)
    assert again is not None
    assert again.step == 12, "a script may go on from where it likes"
    own = heard(pace, [(9.0, [beat(0, 3, anew=True, checkpoint={"step": 820, "time": WALL + 1})])], attempt=3)
    assert own is not None
    assert own.step == 3, "counted since a restart, and not the checkpoint's count"


def test_once_rank_0_is_done_so_are_all_steps_though_not_all_have_told() -> None:
    pace = GangProgress()
    pace.add(1, [beat(0, 97, totalSteps=100), beat(1, 97, totalSteps=100)], 5.0)
    pace.add(1, [beat(0, 100, totalSteps=100)], 5.1)
    before, over = pace.progress(5.2, WALL), pace.progress(5.2, WALL, over=True)
    assert before is not None
    assert over is not None
    assert (before.step, over.step, over.percent) == (97, 100, 100)
