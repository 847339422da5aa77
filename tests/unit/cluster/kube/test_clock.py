"""The operator's clock: the API server's, wherever this machine's differs from it."""

import sys
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from ddpjob_operator.cluster.kube.clock import TOLERANCE, Clock

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
CLOSE = timedelta(seconds=1)


def dated(moment: datetime) -> str:
    """As a server writes it: without what is less than a second."""
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize("error", [HOUR, -HOUR, 3 * SECOND + TOLERANCE, -TOLERANCE - 2 * SECOND])
def test_it_goes_by_a_server_whose_clock_differs(error: timedelta) -> None:
    clock = Clock()
    asked = clock.now()
    clock.hears(dated(asked + error), asked)
    assert abs(clock.now() - asked - error) <= CLOSE


@pytest.mark.parametrize("date", [None, "", "yesterday", "Tue, 01 Jan 2030 00:00:00 -0000"])
def test_an_answer_without_a_date_changes_nothing(date: str | None) -> None:
    clock = Clock()
    asked = clock.now()
    clock.hears(date, asked)
    assert timedelta(0) <= clock.now() - asked <= CLOSE


def test_an_answer_that_was_long_on_its_way_changes_nothing() -> None:
    clock = Clock()
    now = clock.now()
    clock.hears(dated(now - 20 * SECOND), asked=now - 30 * SECOND)
    assert timedelta(0) <= clock.now() - now <= CLOSE


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
