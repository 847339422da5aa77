"""How `ddpjob status --stacks` prints what ranks are doing."""

from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.rank_stacks import print_stacks
from ddpjob_operator.cli.screen import Screen

LONG = f"hang.py:11: {'x' * 80}"
HEAD = {"job": "ab", "attempt": 2, "phase": "Running"}
GROUPS = [
    {"ranks": [0, 2, 3, 4], "does": f"waits in gloo:all_reduce at {LONG}", "stack": ["all_reduce (c10d.py:9)"]},
    {"ranks": [1], "does": "is at \x1b[2J\nrank 9", "stack": [f"{'f' * 90} (a.py:3)", "hang.py:9"]},
]


def printed(document: Any, capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    print_stacks(Screen(**options), document)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("options", "long"),
    [({"force_terminal": True, "width": 80}, f"{'f' * 75}…"), ({}, f"{'f' * 90} (a.py:3)")],
    ids=["on a terminal of 80 columns", "into a pipe"],
)
def test_each_stack_is_printed_once_with_its_ranks(
    options: dict[str, Any], long: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(HEAD | {"ranks": GROUPS}, capsys, **options) == [
        "ranks 0,2-4: each waits in gloo:all_reduce at " + LONG,
        "    all_reduce (c10d.py:9)",
        "rank 1: is at \\x1b[2J\\nrank 9",
        f"    {long}",
        "    hang.py:9",
    ]


def test_where_no_rank_runs_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    gathers = HEAD | {"phase": "Gathering", "ranks": []}
    assert printed(gathers, capsys) == ["attempt 2: no rank runs; the gang's phase is Gathering"]


@pytest.mark.parametrize("document", [None, [], {}, {"ranks": [3]}, {"ranks": [{"ranks": ["x"]}]}])
def test_an_answer_of_another_form_is_one_line(document: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match="another version of DDPJob"):
        printed(document, capsys)
