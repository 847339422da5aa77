"""What the operator's log says, and what of kopf's own words reaches it."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest
from ddpjob_operator.cluster.serve.log import about, set_up
from kopf._cogs.clients.watching import WatchingError


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """The tests' own log is as it was."""
    root = logging.getLogger()
    before, level = [*root.handlers], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize(
    ("error", "traced"),
    [
        (json.JSONDecodeError("Unterminated string", '{"ty', 1), False),
        (WatchingError("Error in the watch-stream: 500"), False),
        (KeyError("a bug of kopf's"), True),
    ],
    ids=["half a line", "an error of the server's", "a bug"],
)
def test_what_the_server_said_to_kopf_is_one_line_and_a_bug_is_traced(
    error: Exception, *, traced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up("text", "info")
    logging.getLogger("kopf.aiotasks").error("Watcher has failed", exc_info=error)
    said = capsys.readouterr().err.strip().splitlines()
    assert (len(said) > 1) == traced, said
    assert str(error) in said[-1]


def test_a_line_of_json_says_when_who_and_about_which_job(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("json", "info")
    logging.getLogger("any").warning("%s pods", 2, extra=about(("team", "digits"), "uid-1"))
    said = json.loads(capsys.readouterr().err)
    assert datetime.fromisoformat(said.pop("time")).tzinfo
    job = {"namespace": "team", "job": "digits", "uid": "uid-1"}
    assert said == {"level": "WARNING", "logger": "any", "message": "2 pods", **job}


FORGED = "denied: no\n12:00:00 INFO    all is well  (team/digits)\x1b[2K\r\u2028\x85"


def test_words_of_others_do_not_make_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("text", "info")
    logging.getLogger("any").warning("%s; again in 1 s", FORGED, extra=about(("team", "digits")))
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(
        r"denied: no\n12:00:00 INFO    all is well  (team/digits)\x1b[2K\r\u2028\x85; again in 1 s  (team/digits)"
    )


def test_nor_do_they_in_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("text", "info")
    logging.getLogger("any").error("this is a bug", exc_info=ValueError(FORGED), extra=about(("team", "digits")))
    first, *traced = capsys.readouterr().err.rstrip("\n").split("\n")
    assert first.endswith("this is a bug  (team/digits)")
    assert traced
    assert all(line.startswith("  ") for line in traced)
    assert not any({"\x1b", "\r"} & {*line} for line in traced)
