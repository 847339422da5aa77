"""What a supervisor that no operator started says of an attempt that starts over."""

import pytest
from ddpjob_supervisor.page.progress import Progress
from ddpjob_supervisor.page.starting_over import (
    KNOWS_WHERE,
    NOTHING_SAVED,
    Beginnings,
    Former,
    Interval,
    steps_lost,
)

SAID = (
    "attempt 2 started over: its first step is 1, although step 1000 had finished before. That loses 1000 steps "
    "(about 1001 s), and new checkpoints may overwrite older ones. Make the program load its last checkpoint when it "
    'starts, as the tutorial "Make your script resume" shows'
)


def notes(*told: tuple[int, int | None, int], saved: int | None = None) -> list[str]:
    """What is said of these attempts, their first steps and their present ones, each second a step."""
    beginnings = Beginnings(Interval())
    progress = (
        Progress(step=step, last_step_time=float(step), attempt=attempt, since=0.0, first=first)
        for attempt, first, step in told
    )
    return [beginnings.note(one, saved) for one in progress]


def test_it_is_said_once_of_each_attempt_that_starts_over() -> None:
    said = notes((1, 1, 1), (1, 1, 1000), (2, 1, 2), (2, 1, 30), (3, 1, 1))
    assert said[:4] == ["", "", SAID, ""]
    assert said[4].startswith("attempt 3 started over: its first step is 1, although step 1000 had finished before")


def test_nothing_is_said_of_one_that_goes_on_or_of_which_nobody_knows() -> None:
    assert notes((1, 1, 1000), (2, 901, 902), (3, None, 5), (3, None, 6)) == [""] * 4


def test_it_is_said_once_it_is_known() -> None:
    assert [bool(one) for one in notes((1, 1, 1000), (2, None, 4), (2, 1, 5))] == [False, False, True]


def test_a_checkpoint_that_is_not_loaded_is_worth_a_word_after_any_step() -> None:
    assert [bool(one) for one in notes((1, 1, 5), (2, 1, 1))] == [False, False]
    assert [bool(one) for one in notes((1, 1, 5), (2, 1, 1), saved=4)] == [False, True]


def test_what_a_rank_told_as_it_failed_counts_too() -> None:
    beginnings = Beginnings(Interval())
    assert beginnings.note(Progress(90, attempt=1, first=1), None) == ""
    said = beginnings.note(Progress(1, attempt=2, first=1), None, told=120)
    assert "step 120 had finished before. That loses 120 steps" in said


@pytest.mark.parametrize(
    ("since", "last", "time"),
    [(0.0, 900.0, " (about 1802 s)"), (0.0, 0.0, ""), (5.0, 4.0, ""), (None, 900.0, ""), (0.0, None, "")],
    ids=[
        "known",
        "no time has passed",
        "the clock was set back",
        "nobody knows since when",
        "nobody knows until when",
    ],
)
def test_the_time_that_is_lost_is_told_if_it_is_known(since: float | None, last: float | None, time: str) -> None:
    beginnings = Beginnings(Interval())
    assert beginnings.note(Progress(500, attempt=1, first=50, since=since, last_step_time=last), None) == ""
    said = beginnings.note(Progress(1, attempt=2, first=1), None, told=901)
    assert f"That loses 901 steps{time}, and" in said


def test_numbers_that_begin_again_in_each_epoch_say_nothing() -> None:
    beginnings = Beginnings(Interval())
    told = (Progress(1000, attempt=1, first=1, recounts=True), Progress(1, attempt=2, first=1, recounts=True))
    assert [beginnings.note(one, None) for one in told] == ["", ""]


@pytest.mark.parametrize(
    ("former", "first", "begins", "every", "lost"),
    [
        (Former(1, 100), 1, None, Interval(), 100),
        (Former(1, 99), 1, None, Interval(), 0),
        (Former(1, 99, step_seconds=1.0), 1, None, Interval(), 99),
        (Former(1, 60, step_seconds=1.0), 1, None, Interval(), 60),
        (Former(1, 59, step_seconds=1.0), 1, None, Interval(), 0),
        (Former(1, 100), 2, None, Interval(), 0),
        (Former(5, 104), 5, None, Interval(), 100),
        (Former(0, 100), 0, None, Interval(), 100),
        (Former(1, 0), 1, None, Interval(), 0),
        (Former(1, 51), 1, None, Interval(steps=50), 51),
        (Former(1, 50), 1, None, Interval(steps=50), 0),
        (Former(1, 500, step_seconds=1.0), 1, None, Interval(seconds=500), 0),
        (Former(1, 501, step_seconds=1.0), 1, None, Interval(seconds=500), 501),
        (Former(1, 501), 1, None, Interval(seconds=500), 0),
        (Former(1, 5, saved=1), 1, None, Interval(), 5),
        (Former(1, 500, saved=0), 1, None, Interval(), 0),
        (Former(1, 500), 1, NOTHING_SAVED, Interval(), 0),
        (Former(1, 500, saved=400), 1, NOTHING_SAVED, Interval(), 500),
    ],
)
def test_a_loss_counts_from_one_interval_on_or_if_the_program_could_have_loaded_more(
    former: Former, first: int, begins: str | None, every: Interval, lost: int
) -> None:
    assert steps_lost(former, first, begins, every) == lost


@pytest.mark.parametrize("begins", sorted(KNOWS_WHERE))
def test_a_program_that_knows_where_it_begins_has_not_started_over(begins: str) -> None:
    assert steps_lost(Former(1, 500, saved=400), 1, begins, Interval()) == 0
