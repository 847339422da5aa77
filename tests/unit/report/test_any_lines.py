"""Whatever stands in a file of metrics, the page is made, and shows the lines that are entries."""

import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.local.record_files import NAME
from ddpjob_operator.report import find, render
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seed import examples

from .lines import ZERO, line

DEEP = "[" * 100_000 + "]" * 100_000
NESTED = json.loads('{"x":' * 900 + "1" + "}" * 900)
HUGE, INFINITE = 10**400, 1e400
VALUES: list[Any] = [0, 1, -1, 2.5, 5e-324, 1e308, -1e308, HUGE, -HUGE, 2**63, INFINITE, -INFINITE, float("nan")]
VALUES += [None, True, "", "x", "\ud800", "\0", "<b>", "x" * 5000, [], [[]], {}, NESTED, {"x": HUGE}, {"\ud800": 1}]
TIMES = ["2026-01-01T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31", ""]
EVENTS = ["started", "progress", "evaluated", "saved", "timed", "ended", "finished"]
FIELDS = ["loss", "total_steps", "samples_per_second", "accuracy", "error", "message", "world_size", "seen"]
FIELDS += ["metrics", "seconds", "rank_seconds", "versions", "options", "environment", "host", "epoch", "bytes"]
JUNK = [DEEP, DEEP[: 1 << 20], "1" * 5000, "{", '{"time":', "null", "[]", "\0", "\ud800"]

values = st.sampled_from(VALUES)
inner = st.dictionaries(st.sampled_from(["0", "1", "data", "backward", "x", "9" * 5000]), values, max_size=3)
parts: dict[str, st.SearchStrategy[Any]] = {name: st.one_of(values, inner) for name in FIELDS}
parts |= {"step": st.one_of(st.integers(0, 50), values), "attempt": st.one_of(st.integers(1, 3), values)}
parts |= {"time": st.sampled_from([*TIMES, *VALUES]), "event": st.one_of(st.sampled_from(EVENTS), values)}
entries = st.builds(
    lambda event, at, said: json.dumps(
        {"time": (ZERO + timedelta(seconds=at)).isoformat(), "event": event, "attempt": 1, "step": at, **said}
    ),
    st.sampled_from(EVENTS),
    st.integers(0, 50),
    st.fixed_dictionaries({}, optional=parts),
)


def page_of(lines: list[str]) -> str:
    with tempfile.TemporaryDirectory() as directory:
        # A start at the end, beyond the steps of all others: nothing can have undone what comes after it.
        good = (line("started", 4, 51, at=60), line("progress", 4, 60, at=61, loss=0.125))
        content = "\n".join([line("started", 1, 0), *lines, *good])
        (Path(directory) / NAME).write_bytes(content.encode(errors="surrogatepass"))
        page = render(find(Path(directory)), ZERO)
        page.encode()
        return page


@examples(0.12)
@given(st.lists(st.one_of(entries, entries, st.sampled_from(JUNK)), min_size=15, max_size=30))
def test_a_page_is_made_of_any_lines(lines: list[str]) -> None:
    assert "loss" in page_of(lines)


@pytest.mark.parametrize("field", ["step", "attempt", "time", "event"])
def test_a_line_that_does_not_say_where_it_belongs_is_passed_over(field: str) -> None:
    good = json.loads(line("progress", 1, 30, at=30, loss=7.25))
    wrong = [HUGE, INFINITE, -1, None, [], {}, "x"] + (TIMES if field == "time" else [])
    page = page_of([json.dumps(good | {field: value}) for value in wrong])
    assert "7.25" not in page
    assert "0.125" in page


def test_all_that_may_be_wrong_with_values_leaves_those_that_are_right() -> None:
    lines = [
        line("progress", 1, step, at=step, **{name: value}) for name in FIELDS for step, value in enumerate(VALUES)
    ]
    lines += [line("evaluated", 1, step, accuracy=value) for step, value in enumerate(VALUES)]
    lines += [
        line("timed", 1, step, rank_seconds={"0": value, "x": 1}, seconds={"data": value})
        for step, value in enumerate(VALUES)
    ]
    lines += [line("started", 1, 0, **dict.fromkeys(FIELDS, value)) for value in VALUES]
    assert "0.125" in page_of([*JUNK, *lines])
