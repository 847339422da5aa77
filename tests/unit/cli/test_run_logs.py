"""The lines of a log as it grows, also of one that overwrites its lines."""

from itertools import product
from pathlib import Path

import pytest
from ddpjob_operator.cli.phrases import writer
from ddpjob_operator.cli.run_logs import RunLogs, shown_last
from ddpjob_operator.local import RunDirectory

UP = "\x1b[A"
BAR = "\r 10%\r 20%"


@pytest.mark.parametrize(
    ("writes", "lines", "unfinished"),
    [
        (["a\nb\n"], [["a", "b"]], []),
        (["a\nb", "c\n"], [["a"], ["bc"]], []),
        (["a\r\n"], [["a"]], []),
        (["\n"], [[""]], []),
        ([BAR], [[]], [" 20%"]),
        ([BAR, "\r 30%"], [[], []], [" 30%"]),
        ([BAR, "\r", "    "], [[], [], []], []),
        ([BAR, "\r", "\r 30%"], [[], [], []], [" 30%"]),
        ([f"{BAR}\r"], [[]], [" 20%"]),
        ([f"{BAR}\n", "done\n"], [[], [" 20%", "done"]], []),
        ([f"{BAR}\n"], [[]], [" 20%"]),
        ([f"{BAR}\r    \rloss 0.5\n\r 30%", "\r 40%"], [[], ["loss 0.5"]], [" 40%"]),
        ([f"{BAR}\r    \r\nnext\n"], [["next"]], []),
        (["bytes \xff\n"], [["bytes \ufffd"]], []),
        ([f"\r 1/2\n\r 10%{UP}", f"\n\r 20%{UP}\r 2/2\n", "done\n"], [[], [], [" 2/2", "done"]], []),
        (["\r 1/2\n\r 10%", f"{UP}\r 2/2"], [[], []], [" 2/2"]),
        ([f"\r 1/2\n\n\r 10%{UP}{UP}\r 2/2"], [[]], [" 2/2"]),
        (["\r\x1b[32m 10%\x1b[0m"], [[]], [" 10%"]),
    ],
    ids=[
        "lines",
        "in pieces",
        "as Windows ends them",
        "an empty one",
        "a bar",
        "that moves",
        "that wipes itself out",
        "that is about to be overwritten",
        "and is still shown until then",
        "that ends",
        "that may have a bar below it",
        "a line in its place, and it again",
        "nothing in its place",
        "no text",
        "a bar below a bar",
        "the same in pieces",
        "two bars below a bar",
        "with colours",
    ],
)
def test_of_a_line_that_overwrites_itself_the_last_state_counts(
    tmp_path: Path, writes: list[str], lines: list[list[str]], unfinished: list[str]
) -> None:
    log = tmp_path / "attempt-1" / "node-0.log"
    log.parent.mkdir()
    run_logs, read = RunLogs(tmp_path), []
    for text in writes:
        with log.open("ab") as file:
            file.write(text.encode("latin-1"))
        read.append([line.text for line in run_logs.lines()])
    assert read == lines
    assert [line.text for line in run_logs.unfinished()] == unfinished


def test_the_last_look_gives_what_has_no_end(tmp_path: Path) -> None:
    log = tmp_path / "attempt-1" / "node-0.log"
    log.parent.mkdir()
    log.write_text(f"a\n{BAR}")
    run_logs = RunLogs(tmp_path)
    assert [line.text for line in run_logs.lines()] == ["a"]
    assert [line.text for line in run_logs.lines(last=True)] == [" 20%"]
    assert list(run_logs.unfinished()) == []


def test_what_is_taken_late_ends_where_it_was_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "attempt-1" / "node-0.log"
    log.parent.mkdir()
    log.write_text("before\n")
    run_logs = RunLogs(tmp_path)
    before = run_logs.lines()
    log.write_text("before\nafter\n")
    assert [line.text for line in before] == ["before"]
    assert [line.text for line in run_logs.lines()] == ["after"]


def test_what_an_attempt_before_left_without_an_end_is_a_line(tmp_path: Path) -> None:
    run_logs = RunLogs(tmp_path)
    for attempt in (1, 2):
        log = tmp_path / f"attempt-{attempt}" / "node-0.log"
        log.parent.mkdir()
        log.write_text(BAR)
        list(run_logs.lines()) if attempt == 1 else None
    assert [(line.attempt, line.text) for line in run_logs.lines()] == [(1, " 20%")]
    assert [line.attempt for line in run_logs.unfinished()] == [2]


@pytest.mark.timeout(30)
def test_a_line_without_an_end_is_given_out_in_pieces(tmp_path: Path) -> None:
    (file := tmp_path / "attempt-1" / "node-0.log").parent.mkdir()
    file.write_bytes(b"x" * (size := 10 << 20))
    pieces = [line.text for line in RunLogs(tmp_path).lines(last=True)]
    assert (sum(map(len, pieces)), max(map(len, pieces))) == (size, 1 << 20)


def test_a_bar_of_hours_does_not_pile_up_in_memory(tmp_path: Path) -> None:
    log = tmp_path / "attempt-1" / "node-0.log"
    log.parent.mkdir()
    log.write_text(BAR * 10000)
    run_logs = RunLogs(tmp_path)
    assert list(run_logs.lines()) == []
    assert run_logs._open[log] == b"\r 20%"


@pytest.mark.parametrize(
    ("text", "shown"), [("a", "a"), ("", ""), ("a\rb", "b"), ("a\r   ", None), ("a\r", "a"), ("\r", "")]
)
def test_what_a_line_shows_in_the_end(text: str, shown: str | None) -> None:
    assert shown_last(text) == shown


def test_what_each_node_writes_in_each_attempt_is_told_apart_and_comes_in_order(tmp_path: Path) -> None:
    run, places = RunDirectory(tmp_path), list(product((1, 2, 3, 10), (0, 1, 2, 10)))
    for attempt, node in places:
        run.logs_of(attempt).mkdir(parents=True, exist_ok=True)
        (run.logs_of(attempt) / f"node-{node}.log").write_text(f"{attempt}/{node}\n")
    for stranger in ("attempt-1/node-1 (copy).log", "attempt-1 (copy)/node-0.log", "attempt-1/node-3.log/node-3.log"):
        (run.logs / stranger).parent.mkdir(exist_ok=True)
        (run.logs / stranger).write_text("of nobody\n")
    lines = [(line.attempt, line.node, line.text) for line in RunLogs(run.logs).lines()]
    assert lines == [(*place, f"{place[0]}/{place[1]}") for place in places]
    of_two = RunLogs(run.logs, from_attempt=2, to_attempt=3, nodes=frozenset({1, 2}), first=2)
    assert [line.text for line in of_two.lines()] == ["2/2", "2/1", "3/2", "3/1"]


def test_a_line_is_of_the_attempt_in_place_that_began_before_it(tmp_path: Path) -> None:
    log = tmp_path / "attempt-3" / "node-0.log"
    log.parent.mkdir()
    run_logs = RunLogs(tmp_path)
    log.write_text("a\nattempt 4 begins in place: rank 1 failed\nb\n")
    assert [line.attempt for line in run_logs.lines()] == [3, 4, 4]
    with log.open("a") as more:
        more.write("attempt 2 begins\nc\nattempt 5 begins\n")
    assert [line.attempt for line in run_logs.lines()] == [4, 4, 5]


@pytest.mark.parametrize(("processes", "noun"), [(None, "rank"), (1, "rank"), (2, "node"), (3, "node")])
def test_a_log_is_that_of_a_node_where_several_ranks_write_it(processes: int | None, noun: str) -> None:
    assert writer(processes) == noun
