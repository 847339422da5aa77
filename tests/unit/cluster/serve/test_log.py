"""What of kopf's own words reaches the operator's log."""

import json
import logging
from collections.abc import Iterator

import pytest
from ddpjob_operator.cluster.serve.log import set_up
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
