"""When a gang counts as stalled: beats over time, by tables."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from ddpjob_rank.limits import Activity, Learned, StallLimits
from ddpjob_supervisor.watch.stalls import Stalls

Beats = dict[int, dict[str, Any]]


def beat(step: int | None, age: float | None, *, attempt: int = 1, activity: str = "training", **more: Any) -> Any:
    if step is None:
        return {"attempt": attempt, "activity": "starting", **more}
    return {"attempt": attempt, "activity": activity, "step": step, "stepAge": age, **more}


def both(*beats: Any) -> Beats:
    return dict(enumerate(beats * 2 if len(beats) == 1 else beats))


def hang(
    stalls: Stalls, beats: Callable[[float], Beats], begin: float, end: float, every: float = 0.5
) -> tuple[float, float] | None:
    """Looks again and again at what comes so long after the beginning: when a stall was found, and how long."""
    for turn in range(int((end - begin) / every) + 1):
        found = stalls.look(begin + turn * every, beats(turn * every))
        if found is not None:
            return turn * every, found
    return None


def trained(timeout: float | None, *, steps: int = 20, every: float = 1.0, announces: bool = True) -> Stalls:
    """One that has seen a gang train until the time 100, in attempt 1; the last step is finished then."""
    stalls = Stalls(timeout)
    begin = 100.0 - every * steps
    stalls.look(begin - 1, both(beat(None, None)))
    told = {"announces": True} if announces else {}
    for step in range(1, steps + 1):
        stalls.look(begin + step * every, both(beat(step, 0.0, **told)))
    return stalls


def test_a_stall_is_found_as_soon_as_the_set_time_has_passed_and_stays_found() -> None:
    stalls = trained(5.0)
    when, found = hang(stalls, lambda age: both(beat(20, age)), 100, 200) or (0.0, None)
    assert (when, found) == (5.5, 5.5)
    assert stalls.look(200, both(beat(21, 0.0))) == found


@pytest.mark.parametrize(
    ("activity", "timeout", "limit"), [("training", 5.0, 5.0), ("saving", 5.0, 600.0), ("training", None, 60.0)]
)
def test_the_limit_is_that_of_what_the_gang_does(activity: str, timeout: float | None, limit: float) -> None:
    stalls = trained(timeout)
    stalls.look(100.5, both(beat(20, 0.5, activity=activity, announces=True)))
    assert stalls.limit == limit


def test_before_the_first_look_there_is_no_limit() -> None:
    assert Stalls(5.0).limit is None


def test_one_process_that_goes_on_is_enough() -> None:
    assert hang(trained(5.0), lambda age: both(beat(20, age), beat(20 + int(age), 0.1)), 100, 200) is None


def test_each_attempt_begins_anew_and_late_words_of_the_last_one_mean_nothing() -> None:
    stalls = trained(5.0)
    assert hang(stalls, lambda age: both(beat(20, age)), 100, 110)
    assert stalls.look(111, {}) is None
    assert stalls.look(112, both(beat(None, None, attempt=2), beat(20, 12.0))) is None
    late = hang(stalls, lambda age: both(beat(20 + age, 0.5, attempt=2), beat(20, 12.0 + age)), 112, 130)
    assert late is None


@pytest.mark.parametrize(
    ("beats", "seconds"),
    [
        (lambda age: both(beat(20, age)), 5),
        (lambda age: both(beat(20, age), beat(20, age, activity="saving")), 600),
        (lambda age: both(beat(20, age, activity="evaluation")), 600),
        (lambda age: both(beat(20, age, activity="exporting")), 600),
        (lambda age: both(beat(20, age, totalSteps=20)), 600),
        (lambda age: both(beat(20, age, totalSteps=21)), 5),
        (lambda age: both(beat(20, age, activity="ending")), 600),
    ],
    ids=[
        "training",
        "one saves, the other waits",
        "evaluation",
        "a word of the program's own",
        "after the last step",
        "before the last step",
        "the program has ended, and not yet its process",
    ],
)
def test_what_the_gang_does_decides_how_long_it_may_take(beats: Callable[[float], Beats], seconds: float) -> None:
    when, _ = hang(trained(5.0), beats, 100, 1000) or (0.0, None)
    assert when == seconds + 0.5


def test_after_a_long_save_the_next_step_has_its_whole_time() -> None:
    def beats(age: float) -> Beats:
        return both(beat(20, age, activity="saving" if age < 300 else "training"))

    when, _ = hang(trained(5.0), beats, 100, 1000) or (0.0, None)
    assert when == 305.5


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        (lambda: trained(5.0), 600),
        (lambda: trained(100.0), 1000),
        (lambda: trained(None), 600),
        (lambda: Stalls(5.0), None),
    ],
    ids=["at least ten minutes", "ten times what is set", "learned", "nothing has ever reported a step"],
)
def test_the_first_step_of_an_attempt_may_take_longer(before: Callable[[], Stalls], seconds: float | None) -> None:
    found = hang(before(), lambda _: both(beat(None, None, attempt=2)), 101, 5000)
    assert (found and found[0]) == (seconds and seconds + 0.5)


@pytest.mark.parametrize(
    ("learned", "timeout", "seconds"),
    [
        (Learned(first_step=1.0), None, 600),
        (Learned(first_step=200.0), None, 1000),
        (Learned(first_step=3600.0), None, 18000),
        (Learned(first_step=1.0, stalls=1), None, 1200),
        (Learned(first_step=1.0, stalls=9), None, 3600),
        (Learned(first_step=200.0, stalls=1), None, 2000),
        (Learned(first_step=3600.0, stalls=1), None, 18000),
        (Learned(first_step=200.0), 5.0, 1000),
        (Learned(stalls=1, longest=3.0), None, None),
    ],
    ids=[
        *("at least ten minutes", "five times the first step", "however long that took", "doubled by a stall"),
        *("at most an hour", "both", "but never less than five times", "also if a time is set", "unknown"),
    ],
)
def test_pods_that_come_later_know_how_long_a_first_step_takes(
    learned: Learned, timeout: float | None, seconds: float | None
) -> None:
    found = hang(Stalls(timeout, learned), lambda _: both(beat(None, None, attempt=3)), 100, 20000, every=5)
    assert (found and found[0]) == (seconds and seconds + 5)


@pytest.mark.parametrize("learned", [None, Learned(first_step=1.0), Learned(first_step=3600.0, stalls=3)])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_time_that_is_set_for_the_first_step_applies_whatever_is_known(
    learned: Learned | None, timeout: float | None
) -> None:
    found = hang(Stalls(timeout, learned, 90.0), lambda _: both(beat(None, None)), 100, 5000)
    assert found == (90.5, 90.5)


def test_how_long_the_first_step_is_awaited_is_counted_in_each_attempt() -> None:
    stalls = Stalls(None)
    assert hang(stalls, lambda _: both(beat(None, None)), 100, 200) is None
    assert stalls.waited == 100
    stalls.look(200.5, both(beat(None, None), beat(1, 0.0)))
    assert stalls.waited is None
    stalls.look(201, both(beat(None, None, attempt=2)))
    assert stalls.waited == 0


def test_an_evaluation_before_the_first_step_has_the_time_of_an_evaluation() -> None:
    evaluates = both(beat(None, None), {"attempt": 1, "activity": "evaluation", "announces": True})
    found = hang(Stalls(None, Learned(first_step=1.0)), lambda _: evaluates, 100, 5000)
    assert found
    assert found[0] == 3600.5


def test_the_longest_first_step_of_all_attempts_is_learned() -> None:
    stalls = Stalls(None)
    for attempt, took in enumerate((30, 300, 3), 1):
        begin = 1000 * attempt
        assert (
            hang(stalls, lambda _, now=attempt: both(beat(None, None, attempt=now)), begin, begin + took - 1) is None
        )
        stalls.look(begin + took, both(beat(1, 0.0, attempt=attempt)))
    assert stalls.learned.first_step == 300


EVALUATES = {"activity": "evaluation", "announces": True}


def evaluating(age: float, *, every: float, until: float = math.inf) -> Any:
    """A beat of a rank that has reported its evaluation each `every` seconds, and not any more after `until`."""
    return beat(20, age, activityAge=max(age % every, age - until), **EVALUATES)


@pytest.mark.parametrize("timeout", [5.0, None])
def test_an_evaluation_that_goes_on_may_take_hours(timeout: float | None) -> None:
    assert hang(trained(timeout), lambda age: both(evaluating(age, every=500)), 100, 10000, every=5) is None


@pytest.mark.parametrize("timeout", [5.0, None])
def test_an_evaluation_that_stands_still_has_stalled(timeout: float | None) -> None:
    found = hang(trained(timeout), lambda age: both(evaluating(age, every=100, until=3000)), 100, 10000, every=5)
    assert found == (3605, 605)


def test_a_rank_that_evaluates_alone_is_waited_for() -> None:
    def alone(age: float) -> Beats:
        return both(beat(20, age), evaluating(age, every=100))

    assert hang(trained(None), alone, 100, 10000, every=5) is None


def test_an_evaluation_after_the_last_step_may_take_hours_too() -> None:
    def last(age: float) -> Beats:
        return both(evaluating(age, every=100) | {"totalSteps": 20})

    assert hang(trained(5.0), last, 100, 10000, every=5) is None


def test_after_such_an_evaluation_its_end_has_its_whole_time() -> None:
    def last(age: float) -> Beats:
        return both((evaluating(age, every=100) if age < 3000 else beat(20, age)) | {"totalSteps": 20})

    found = hang(trained(5.0), last, 100, 10000, every=5)
    assert found
    assert 3500 <= found[0] <= 3605


def test_an_evaluation_before_the_first_step_may_take_hours_too() -> None:
    def first(age: float) -> Beats:
        return both({"attempt": 1, "activityAge": age % 100, **EVALUATES})

    assert hang(Stalls(None, Learned(first_step=1.0)), first, 100, 10000, every=5) is None


def test_an_evaluation_whose_beats_do_not_come_any_more_is_no_longer_heard() -> None:
    """One node is silent, and its last beat is looked at again and again."""
    old = {"attempt": 1, "activityAge": 0.0, **EVALUATES}
    found = hang(trained(5.0), lambda age: both(beat(20, age), old), 100, 2000)
    assert found == (600.5, 600.5)


def test_a_program_that_announces_training_again_and_again_stalls_all_the_same() -> None:
    assert hang(trained(5.0), lambda age: both(beat(20, age, activityAge=0.1)), 100, 200) == (5.5, 5.5)


@pytest.mark.parametrize(("timeout", "limit"), [(None, 480), (5.0, 600)])
def test_an_evaluation_of_a_silent_program_stalls_before_nccl_gives_up(timeout: float | None, limit: float) -> None:
    def heard(age: float) -> Beats:
        return both(beat(20, age, activity="evaluation", activityAge=max(age % 10, age - 1000)))

    assert hang(trained(timeout, announces=False), heard, 100, 3000) == (1000.5 + limit, 0.5 + limit)


def test_a_program_that_reports_no_step_never_stalls_whatever_else_it_says() -> None:
    said = [{"attempt": 1, "activity": activity, "loss": 0.5} for activity in ("starting", "saving", "ending")]
    assert hang(Stalls(5.0), lambda _: both(*said), 0, 5000) is None


def test_a_program_that_has_promised_to_report_its_steps_may_stall_before_it_knows_how_many() -> None:
    found = hang(Stalls(5.0), lambda _: both(beat(None, None, reports=True)), 0, 1000)
    assert found
    assert found[0] == 600.5


@pytest.mark.parametrize("said", [{"reports": True}, {"totalSteps": 100}], ids=["reports steps", "knows how many"])
def test_a_first_start_has_no_limit_that_nobody_has_set(said: dict[str, Any]) -> None:
    assert hang(Stalls(None), lambda _: both(beat(None, None, **said)), 0, 20000, every=5) is None


def test_a_program_that_says_how_many_steps_it_will_do_may_stall_before_the_first() -> None:
    found = hang(Stalls(5.0), lambda _: both(beat(None, None, totalSteps=100)), 0, 1000)
    assert found
    assert found == (600.5, 600.5)


@pytest.mark.parametrize(
    ("every", "seconds"),
    [(0.5, 60), (1.0, 60), (20.0, 200), (400.0, 1800)],
    ids=["at least a minute", "just a minute", "ten times the longest pause", "at most half an hour"],
)
def test_without_a_set_time_it_is_learned_from_the_steps(every: float, seconds: float) -> None:
    def gang(age: float) -> Beats:
        return both(beat(20, age))

    # Looks that are further apart than a few seconds would be pauses; they only make what is learned later.
    stalls = StallLimits(None)
    stalls.note_announcements()
    for _ in range(20):
        stalls.note_pause(every)
    assert stalls.seconds(Activity.TRAINING) == seconds
    if every <= 1:
        when, _ = hang(trained(None, every=every), gang, 100, 1000) or (0.0, None)
        assert when == seconds + 0.5


def test_as_long_as_no_pace_is_known_half_an_hour_may_pass() -> None:
    when, _ = hang(trained(None, steps=5), lambda age: both(beat(20, 0.5 + age)), 100, 3000) or (0.0, None)
    assert 1799 < when < 1801


def test_a_program_that_does_not_say_when_it_evaluates_has_eight_minutes_for_that() -> None:
    stalls = trained(None, announces=False)
    stalls.look(100.5, both(beat(20, 0.5, activity="saving")))
    when, _ = hang(stalls, lambda age: both(beat(20, 1.0 + age)), 101, 3000) or (0.0, None)
    assert 478 < when < 481


@pytest.mark.parametrize(
    ("first", "seconds"),
    [(20.0, 480), (400.0, 800), (7200.0, 1800)],
    ids=["eight minutes", "twice as long as its first step took", "half an hour at most"],
)
def test_before_its_pace_is_known_such_a_program_has(first: float, seconds: float) -> None:
    """NCCL's ranks give up after ten minutes, and whoever does so looks like the one to blame."""
    stalls = Stalls(None)
    stalls.look(0.0, both(beat(None, None)))
    stalls.look(first, both(beat(1, 0.0, counted=True)))
    when, _ = hang(stalls, lambda age: both(beat(1, age, counted=True)), first, first + 3000) or (0.0, None)
    assert when == seconds + 0.5
    begin = first + when + 1
    again = hang(stalls, lambda age: both(beat(1, age, attempt=2, counted=True)), begin, begin + 3000)
    assert again is not None
    assert again[0] == min(2 * seconds, 1800) + 0.5, "it may only have been slow"


@pytest.mark.parametrize(
    ("every", "announces", "training", "saving"),
    [
        (0.5, True, 60, 600),
        (0.5, False, 480, 600),
        (20.0, True, 200, 2000),
        (20.0, False, 480, 2000),
        (60.0, False, 600, 3600),
    ],
)
def test_once_a_pace_is_known_a_stall_is_found_within_minutes(
    *, every: float, announces: bool, training: float, saving: float
) -> None:
    known = StallLimits(None)
    if announces:
        known.note_announcements()
    for _ in range(20):
        known.note_pause(every)
    assert (known.seconds(Activity.TRAINING), known.seconds(Activity.SAVING)) == (training, saving)


def test_what_is_learned_is_doubled_by_each_stall_up_to_half_an_hour() -> None:
    stalls, begin, found = trained(None), 100.0, []
    for attempt in range(1, 8):

        def hangs(age: float, attempt: int = attempt) -> Beats:
            return both(beat(20, age, attempt=attempt))

        when, _ = hang(stalls, hangs, begin, begin + 3000) or (0.0, None)
        found.append(when)
        begin += when + 1
    assert found == [60.5, 120.5, 240.5, 480.5, 960.5, 1800.5, 1800.5]


@pytest.mark.parametrize(
    ("every", "steps", "limits"),
    [
        (0.5, 20, [480, 960, 1800, 1800]),
        (0.5, 5, [480, 960, 1800, 1800]),
        (60.0, 20, [600, 1200, 1800, 1800]),
    ],
    ids=["its pace is known", "its pace is not known", "its steps are long"],
)
def test_a_silent_program_that_was_ended_too_early_has_twice_as_long_the_next_time(
    every: float, steps: int, limits: list[float]
) -> None:
    known, found = StallLimits(None), []
    for _ in range(steps):
        known.note_pause(every)
    for _ in limits:
        found.append(known.seconds(Activity.TRAINING))
        known.note_stall()
    assert found == limits


def test_what_was_learned_is_kept_for_the_pods_that_come_later() -> None:
    first = trained(None, announces=False)
    assert hang(first, lambda age: both(beat(20, age)), 100, 700) == (480.5, 480.5)
    later = Stalls(None, first.learned)
    assert later.learned == first.learned
    later.look(0.0, both(beat(1, 0.0)))
    assert hang(later, lambda age: both(beat(1, age)), 0, 2000) == (960.5, 960.5)


def test_what_is_set_stays_as_it_is_after_a_stall() -> None:
    stalls = trained(5.0)
    assert hang(stalls, lambda age: both(beat(20, age)), 100, 200)
    stalls.look(200, both(beat(20, 0.0, attempt=2)))
    when, _ = hang(stalls, lambda age: both(beat(20, age, attempt=2)), 200, 300) or (0.0, None)
    assert when == 5.5


@pytest.mark.parametrize("activity", ["saving", "evaluation", "exporting"])
def test_a_pause_for_what_was_announced_is_not_taken_for_a_steps(activity: str) -> None:
    stalls = trained(None)
    for second in range(100):
        stalls.look(100.5 + second, both(beat(20, 0.5 + second, activity=activity)))
    when, _ = hang(stalls, lambda age: both(beat(21, age)), 200, 1000) or (0.0, None)
    assert when == 60.5


@pytest.mark.parametrize(
    "silence",
    [lambda _: {}, lambda _: both(beat(20, 0.5)), lambda age: both(beat(20, 0.5 + min(age, 4.5)))],
    ids=["no beats", "always the same beats", "no more beats after some"],
)
def test_who_is_silent_has_not_stalled(silence: Callable[[float], Beats]) -> None:
    assert hang(trained(5.0), silence, 100.5, 1000) is None


def test_a_node_that_is_silent_does_not_hide_that_the_others_wait() -> None:
    last = beat(20, 0.0)
    when, _ = hang(trained(5.0), lambda age: both(beat(20, age), last), 100, 200) or (0.0, None)
    assert when == 5.5


def test_who_has_not_looked_for_long_gives_everybody_time_again() -> None:
    stalls = trained(5.0)
    when, _ = hang(stalls, lambda age: both(beat(20, age + 60)), 160, 200) or (0.0, None)
    assert when == 5.5


def test_beats_that_come_late_by_turns_change_nothing() -> None:
    late = (0.0, 1.2, 0.3, 0.9)

    def beats(age: float) -> Beats:
        return both(beat(20, max(0.0, age - late[int(2 * age) % 4])))

    when, _ = hang(trained(5.0), beats, 100, 200) or (0.0, None)
    assert 5 < when <= 6.5


def test_a_program_that_reports_one_step_again_and_again_goes_on() -> None:
    assert hang(trained(5.0), lambda age: both(beat(20, age % 4)), 100, 200) is None


def test_steps_that_are_counted_anew_in_each_epoch_are_steps() -> None:
    assert hang(trained(5.0), lambda age: both(beat(1 + int(age) % 7, age % 1)), 100, 200) is None


class Counted(int):
    """A rank that counts how often ranks are compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) > other

    __hash__ = int.__hash__


def test_a_look_at_a_large_gang_takes_its_processes_one_by_one() -> None:
    stalls, ranks = Stalls(None), [Counted(rank) for rank in range(500)]
    for step in range(1, 4):
        Counted.comparisons = 0
        stalls.look(float(step), {rank: beat(step, 0.0) for rank in ranks})
        assert Counted.comparisons <= 4 * len(ranks)
