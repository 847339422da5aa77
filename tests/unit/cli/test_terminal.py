"""What comes to a terminal of that which others have written, and what it looks like under a real one."""

import io
import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.terminal import Filter, Terminal, guard
from ddpjob_operator.text import one_line, visible
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.waiting import patience

PASSES = {
    "a line, a tab and its end": "a\tb\n",
    "letters of any script": "loss → 0 é שלום ✓",
    "a bar that draws itself again": "\r 50%|█████     | 1/2\r100%|██████████| 2/2\n",
    "a bar below another one": "\n\r 10%\x1b[A\x1b[1A\x1b[K\x1b[2K",
    "a colour and its end": "\x1b[1;38;5;208mwarning\x1b[0m\n",
    "a colour by its parts": "\x1b[38:2::255:0:0mred\x1b[m\n",
}


@pytest.mark.parametrize("text", PASSES.values(), ids=PASSES)
def test_to_a_terminal_pass(text: str) -> None:
    assert Filter().passed(text) == text


WRITTEN_OUT = {
    "the clipboard": ("\x1b]52;c;cm0gLXJmIC8=\x07", r"\x1b]52;c;cm0gLXJmIC8=\x07"),
    "a title": ("\x1b]0;root\x1b\\", r"\x1b]0;root\x1b" + "\\"),
    "a title by one code": ("\x9d0;root\x9c", r"\x9d0;root\x9c"),
    "a link": ("\x1b]8;;https://host\x07here\x1b]8;;\x07", r"\x1b]8;;https://host\x07here\x1b]8;;\x07"),
    "another screen": ("\x1b[?1049h\x1b[2J\x1b[H", r"\x1b[?1049h\x1b[2J\x1b[H"),
    "a cursor that hides": ("\x1b[?25l", r"\x1b[?25l"),
    "a cursor that goes elsewhere": ("\x1b[5;5H\x1b[3B\x1b[2D", r"\x1b[5;5H\x1b[3B\x1b[2D"),
    "a question that the terminal types an answer to": ("\x1b[6n\x1bP$qm\x1b\\", r"\x1b[6n\x1bP$qm\x1b" + "\\"),
    "a reset": ("\x1bc\x0e", r"\x1bc\x0e"),
    "a bell and steps back": ("rm -rf /\b\b\bls\a", r"rm -rf /\x08\x08\x08ls\x07"),
    "a sequence by one code": ("\x9b2J", r"\x9b2J"),
    "a sequence that a line's end breaks off": ("\x1b[3\n1m", "\\x1b[3\n1m"),
    "more parameters than any colour has": ("\x1b[" + "1;" * 40 + "m", r"\x1b[" + "1;" * 40 + "m"),
    "an order of letters": ("a\u202eb\u2066c\u2069", r"a\u202eb\u2066c\u2069"),
}


@pytest.mark.parametrize(("text", "shown"), WRITTEN_OUT.values(), ids=WRITTEN_OUT)
def test_a_terminal_is_shown_and_does_not_obey(text: str, shown: str) -> None:
    assert Filter().passed(text) == shown


def test_a_colour_ends_with_its_line() -> None:
    assert Filter().passed("\x1b[8mhidden\nrank 1\n") == "\x1b[8mhidden\x1b[0m\nrank 1\n"


PARTS = st.sampled_from(
    ["\x1b", "[", "]", "0", "1;", "3", "m", "A", "K", "J", "?25l", "\r", "\n", "x", "\x07", "\u202e"]
)


@given(st.lists(PARTS, max_size=40).map("".join), st.lists(st.integers(0, 60), max_size=6))
@example("\x1b[" + "1;" * 32 + "m", [66])
def test_it_is_the_same_however_the_stream_is_cut(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(text)]
    cut = Filter()
    pieces = [cut.passed(text[begin:end]) for begin, end in itertools.pairwise(edges)]
    assert "".join([*pieces, cut.passed("|")]) == Filter().passed(f"{text}|")


@given(st.text())
def test_nothing_comes_through_that_a_terminal_would_obey_but_what_may(text: str) -> None:
    for colour in ("\x1b[31m", "\x1b[0m", "\x1b[A", "\x1b[K", "\r", "\n", "\t"):
        text = text.replace(colour, "")
    assert not set(map(ord, Filter().passed(text))) & {*range(9), *range(14, 32), *range(0x7F, 0xA0), 0x202E}


@pytest.mark.parametrize("flood", ["\x1b[", "\x1b[1;", "\x1b", "\x1b[1;1m", "\x1b]0;", "1;"])
def test_a_flood_takes_time_by_its_length_alone(flood: str) -> None:
    long, begun = Filter(), time.process_time()
    long.passed(flood * (1 << 16))
    assert time.process_time() - begun < patience(2)


def test_a_text_of_others_is_one_line_where_lines_are_ours() -> None:
    assert one_line("lost\nState: Succeeded\r\x1b[2K\u2028x") == r"lost\nState: Succeeded\r\x1b[2K\u2028x"
    assert visible("two\nlines\r\u202e") == "two\nlines" + r"\r\u202e"


def test_a_file_or_a_pipe_gets_all_as_it_was_written() -> None:
    file = io.StringIO()
    Terminal(file).write("\x1b]0;x\x07")
    assert file.getvalue() == "\x1b]0;x\x07"


def test_the_cursor_that_we_hide_is_hidden() -> None:
    terminal = io.StringIO()
    screen = Screen(file=Terminal(terminal), force_terminal=True)
    assert [screen.show_cursor(show) for show in (False, True)] == [True, True]
    assert terminal.getvalue() == "\x1b[?25l\x1b[?25h"


def test_only_terminals_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = io.StringIO()
    monkeypatch.setattr(sys, "stdout", before)
    monkeypatch.setattr(sys, "stderr", None)
    guard()
    assert (sys.stdout, sys.stderr) == (before, None)


HOSTILE = "\x1b]52;c;eHh4\x07\x1b]0;owned\x07\x1b[?1049h\u202eevil\u202c"
SHOWN = r"\x1b]52;c;eHh4\x07\x1b]0;owned\x07\x1b[?1049h\u202eevil\u202c"


COMMANDS = (["logs", "--raw"], ["logs"], ["status"], ["validate"])
PROGRAM = """
import contextlib, json, sys
from ddpjob_operator.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = [*words, "job.yaml"] if words == ["validate"] else [words[0], "train", "--local", *words[1:]]
    with contextlib.suppress(SystemExit):
        main()
    print("-" * 9, flush=True)
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each of these commands writes to a terminal of its own, of a run and of a file that are hostile."""
    directory = tmp_path_factory.mktemp("hostile")
    logs = directory / "ddpjob-runs" / "train" / "logs" / "attempt-1"
    logs.mkdir(parents=True)
    (logs / "node-0.log").write_text(f"\x1b[32mgood\x1b[0m\n{HOSTILE}\n1%\r\x1b[K2%\n")
    status = {"state": "Running", "message": f"[red]{HOSTILE}[/red]\nState: Succeeded"}
    template = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["x"]}]}}
    job = {"metadata": {"name": "train", "uid": "u"}, "spec": {"template": template}, "status": status}
    (logs.parents[1] / "job.json").write_text(json.dumps(job))
    (directory / "job.yaml").write_text(json.dumps({"kind": "DDPJob", "metadata": {"name": HOSTILE}, HOSTILE: 1}))
    written = on_a_terminal(directory, sys.executable, "-c", PROGRAM, json.dumps(COMMANDS))
    return dict(zip(map(" ".join, COMMANDS), written.split("-" * 9 + "\n"), strict=False))


def on_a_terminal(directory: Path, *words: str) -> str:
    ours, theirs = os.openpty()
    env = {**os.environ, "XDG_STATE_HOME": str(directory), "TERM": "xterm-256color", "COLUMNS": "400"}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, cwd=directory, env=env):
        os.close(theirs)
        written = b""
        with suppress(OSError):  # As the end of a terminal is told on Linux.
            while piece := os.read(ours, 65536):
                written += piece
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def test_logs_on_a_terminal_are_coloured_and_do_nothing_to_it(shown: dict[str, str]) -> None:
    lines = shown["logs"].splitlines()
    assert lines == ["[rank 0] \x1b[32mgood\x1b[0m", f"[rank 0] {SHOWN}", "[rank 0] \x1b[K2%"]


def test_logs_are_raw_where_that_is_asked_for(shown: dict[str, str]) -> None:
    assert f"[rank 0] {HOSTILE}\n" in shown["logs --raw"]


def test_a_message_of_others_does_nothing_to_the_terminal_and_looks_like_no_line_of_ours(
    shown: dict[str, str],
) -> None:
    assert f"Message:      [red]{SHOWN}[/red]\\nState: Succeeded\n" in shown["status"]


def test_a_mistake_in_a_file_of_others_does_nothing_to_the_terminal(shown: dict[str, str]) -> None:
    assert SHOWN in shown["validate"]
    assert not set("\x1b\x07\u202e") & set(shown["validate"])
