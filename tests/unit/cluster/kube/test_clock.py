"""The operator's clock: the API servers', wherever this machine's differs from it, and how certain it is."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from ddpjob_operator.cluster.kube import clock as module
from ddpjob_operator.cluster.kube.clock import (
    KEPT_SECONDS,
    MANY_CONNECTIONS,
    MOST_CLOCKS,
    SLEW,
    TOLERANCE,
    VOTING_SECONDS,
    Clock,
)
from hypothesis import given
from hypothesis import strategies as st

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
CLOSE = timedelta(seconds=1)
SETTLING = 60.0
RIGHT, AHEAD, BEHIND = timedelta(0), HOUR, -HOUR


def dated(moment: datetime) -> str:
    """As a server writes it: without what is less than a second."""
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize("error", [HOUR, -HOUR, 3 * SECOND + TOLERANCE, -TOLERANCE - 2 * SECOND])
def test_it_goes_by_a_server_whose_clock_differs(error: timedelta) -> None:
    clock = Clock()
    asked = clock.now()
    clock.note_date(dated(asked + error), module.steady())
    assert abs(clock.now() - asked - error) <= CLOSE


@pytest.mark.parametrize("date", [None, "", "yesterday", "Tue, 01 Jan 2030 00:00:00 -0000"])
def test_an_answer_without_a_date_changes_nothing(date: str | None) -> None:
    clock = Clock()
    asked = clock.now()
    clock.note_date(date, module.steady())
    assert timedelta(0) <= clock.now() - asked <= CLOSE


def test_an_answer_that_was_long_on_its_way_changes_nothing() -> None:
    clock = Clock()
    now = clock.now()
    clock.note_date(dated(now - 20 * SECOND), asked=module.steady() - 30)
    assert timedelta(0) <= clock.now() - now <= CLOSE
    assert clock.read().earliest == pytest.approx(clock.now(), abs=CLOSE)


def test_whoever_sets_the_machine_s_clock_does_not_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before = clock.now()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert timedelta(0) <= clock.now() - before <= CLOSE
    assert before.tzinfo is UTC


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no clock goes on while a machine is suspended")
def test_it_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, clocks = Clock(), time.clock_gettime
    before = clock.now()
    monkeypatch.setattr("time.clock_gettime", lambda which: clocks(which) + 3600 * (which == time.CLOCK_BOOTTIME))
    assert HOUR <= clock.now() - before <= HOUR + CLOSE


WORDS = (
    "Tue",
    "Feb",
    "Jan",
    "GMT",
    "+0000",
    "-0000",
    "+9999999999",
    "AM",
    "1",
    "31",
    "99999",
    "24:60:60",
    "0:0",
    ",",
)
DATES = st.one_of(
    st.text(),
    st.datetimes(timezones=st.timezones()).map(
        lambda at: format_datetime(at.astimezone(UTC)) if 1 < at.year < 9999 else ""
    ),
    st.builds(
        "{}, {} {} {} {}:{}:{} {}".format,
        *[st.sampled_from(WORDS), st.integers(), st.sampled_from(WORDS), st.integers(-1, 10**12)],
        *[st.integers(-1, 99) for _ in range(3)],
        st.sampled_from(WORDS) | st.integers().map("{:+d}".format),
    ),
    st.lists(st.sampled_from(WORDS) | st.integers().map(str)).map(" ".join),
)


@given(DATES)
def test_no_date_can_stop_it(date: str) -> None:
    clock = Clock(SETTLING)
    clock.note_date(date, module.steady())
    said = clock.read()
    assert said.earliest <= said.now
    assert said.now + timedelta(days=36_500) > said.settles_at, "there is room to count on"


@pytest.mark.parametrize(
    "date",
    [
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Wed, 01 Jan 3000 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 -1400",
        "x" * 10_000,
    ],
)
def test_a_date_of_an_impossible_year_is_none(date: str) -> None:
    clock = Clock()
    now = clock.now()
    clock.note_date(date, module.steady())
    assert timedelta(0) <= clock.now() - now <= CLOSE


@dataclass
class Time:
    """A steady clock that the test winds, and an operator's clock that goes by it."""

    clock: Clock
    wind: Callable[[float], None]
    began: datetime

    def true(self) -> datetime:
        """What this machine's clock would show, which is right."""
        return self.began + timedelta(seconds=module.steady())

    def hear(self, error: timedelta, *connections: str) -> None:
        """These connections answer at once, from servers whose clocks are wrong by so much."""
        for connection in connections:
            self.clock.note_date(dated(self.true() + error), module.steady(), connection)

    def error(self) -> timedelta:
        """By how much the time is wrong."""
        return self.clock.now() - self.true()

    def doubt(self) -> timedelta:
        """By how much it may be earlier."""
        said = self.clock.read()
        return said.now - said.earliest

    def settled(self) -> bool:
        """Whether it is certain."""
        said = self.clock.read()
        return said.now >= said.settles_at


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Time:
    """A clock that has just started."""
    seconds = [1000.0]
    monkeypatch.setattr(module, "steady", lambda: seconds[0])

    def wind(more: float) -> None:
        seconds[0] += more

    clock = Clock(SETTLING)
    return Time(clock, wind, clock.now() - timedelta(seconds=seconds[0]))


def near(this: timedelta, that: timedelta) -> bool:
    """Dates are in whole seconds."""
    return abs(this - that) <= TOLERANCE + SECOND


def test_this_machine_s_clock_is_no_server_s(at: Time, caplog: pytest.LogCaptureFixture) -> None:
    at.hear(AHEAD, "one")
    assert near(at.doubt(), timedelta(0))
    assert [message[:28] for message in caplog.messages] == ["the time was changed by +360"], "no servers disagree"


def test_that_servers_disagree_is_told_once_in_a_while(at: Time, caplog: pytest.LogCaptureFixture) -> None:
    for error, seconds, told in (
        (TOLERANCE + 2 * SECOND, 0, 0),
        (AHEAD, 0, 1),
        (BEHIND, KEPT_SECONDS - 1, 1),
        (2 * AHEAD, 1, 2),
    ):
        at.wind(seconds)
        at.hear(RIGHT, "one")
        at.hear(error, "two")
        assert len(caplog.messages) == told, f"by {error}"
    assert all(message.startswith("the clocks of the API servers differ by") for message in caplog.messages)


def test_nothing_is_certain_for_a_while_after_a_start(at: Time) -> None:
    at.hear(RIGHT, "one")
    at.wind(SETTLING - 1)
    assert not at.settled()
    at.wind(1)
    assert at.settled()


def test_nor_after_a_step(at: Time) -> None:
    at.hear(RIGHT, "one")
    at.wind(1000)
    at.hear(AHEAD, "one")
    assert near(at.error(), AHEAD)
    assert not at.settled()
    at.wind(SETTLING)
    assert at.settled()


@pytest.mark.parametrize("wrong", [AHEAD, BEHIND])
@pytest.mark.parametrize("first", ["right", "wrong"])
def test_of_two_servers_that_disagree_the_right_one_is_believed_and_the_earlier_one_counts(
    at: Time, wrong: timedelta, first: str
) -> None:
    """At the start this machine's clock, which neither of them has set, decides between them."""
    errors = (RIGHT, wrong) if first == "right" else (wrong, RIGHT)
    for _ in range(20):
        for error, connection in zip(errors, ("one", "two"), strict=True):
            at.hear(error, connection)
            at.wind(5)
    assert near(at.error(), RIGHT)
    assert at.settled(), "to disagree for long is no step"
    assert near(at.doubt(), max(timedelta(0), -wrong))


@pytest.mark.parametrize("wrong", [AHEAD, BEHIND])
def test_one_connection_that_leads_to_two_servers_is_heard_as_two(at: Time, wrong: timedelta) -> None:
    for _ in range(60):
        at.hear(RIGHT, "proxy")
        at.hear(wrong, "proxy")
        at.wind(1)
    assert near(at.error(), RIGHT)
    assert at.settled()


def test_most_connections_are_believed_and_not_most_answers(at: Time) -> None:
    at.hear(RIGHT, "one", "two")
    at.hear(AHEAD, *["three"] * 50)
    assert near(at.error(), RIGHT)


def test_most_connections_are_believed_even_against_this_machine_s_clock(at: Time) -> None:
    at.hear(RIGHT, "one")
    at.hear(AHEAD, "two", "three")
    assert near(at.error(), RIGHT), "which counts as one of them"
    at.hear(AHEAD, "four")
    assert near(at.error(), AHEAD)
    assert near(at.doubt(), AHEAD)


def test_a_server_that_is_set_right_is_followed_within_a_minute(at: Time) -> None:
    at.hear(BEHIND, "one", "two")
    for _ in range(int(VOTING_SECONDS) + 1):
        at.wind(1)
        at.hear(RIGHT, "one", "two")
    assert near(at.error(), RIGHT)
    assert near(at.doubt(), HOUR), "what it said is taken into account for some minutes"
    for _ in range(int(KEPT_SECONDS)):
        at.wind(1)
        at.hear(RIGHT, "one", "two")
    assert near(at.doubt(), timedelta(0))
    assert at.settled()


def test_what_was_believed_counts_although_nothing_is_heard_for_long(at: Time) -> None:
    """Else one wrong answer after a quiet hour would be all there is."""
    at.hear(RIGHT, "one")
    at.wind(10 * KEPT_SECONDS)
    at.hear(AHEAD, "two")
    assert not at.settled()
    at.hear(RIGHT, "one")
    assert near(at.error(), RIGHT)
    assert at.settled()


def test_servers_that_answer_by_turns_and_seldom_do_not_keep_it_from_settling(at: Time) -> None:
    for _ in range(10):
        at.hear(RIGHT, "one")
        at.wind(VOTING_SECONDS + 10)
        at.hear(AHEAD, "two")
        at.wind(VOTING_SECONDS + 10)
    assert at.settled()


def test_a_clock_that_drifts_is_followed_and_stays_certain(at: Time) -> None:
    at.hear(RIGHT, "one")
    at.wind(1000)
    drift = timedelta(0)
    while drift < HOUR:
        drift += TOLERANCE + 2 * SECOND
        at.wind(1000)
        at.hear(drift, "one")
        assert near(at.error(), drift)
        assert at.settled(), f"{TOLERANCE} is no step, {SLEW} would be one"


def test_it_remembers_only_so_much(at: Time) -> None:
    """A server that says something else each time, by another connection."""
    for number in range(2000):
        at.hear(timedelta(minutes=number % 977), f"port {number}")
        at.hear(RIGHT, f"another port {number}")
        at.wind(0.1)
    assert len(at.clock._others) <= MOST_CLOCKS
    assert len(at.clock._believed.connections) <= MANY_CONNECTIONS + 10 * VOTING_SECONDS
    assert near(at.error(), RIGHT)
