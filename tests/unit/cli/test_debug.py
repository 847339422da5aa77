"""A shell beside a rank: what becomes of the user's terminal."""

import json
import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import websocket
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster import debug as module
from ddpjob_operator.cli.cluster import there
from ddpjob_operator.client import Jobs, TerminalSession
from ddpjob_operator.client.pod_exec import CLOSED, OUTCOME, SIZE

from tests.support.waiting import wait_for
from tests.unit.client.api import A_POD, a_cluster, jobs_with
from tests.unit.client.api import a_job as a_document
from tests.unit.view_model.jobs import job_with

STATUS = {
    "state": "Running",
    "nodes": 2,
    "procsPerNode": 2,
    "message": "2 nodes are running",
    "bookkeeping": {"incarnations": {"default": 1}},
}
SILENT, ENDED = (
    websocket.WebSocketTimeoutException(),
    (2, bytes([OUTCOME]) + json.dumps({"status": "Success"}).encode()),
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (30, 100))
    monkeypatch.setattr(module, "STDIN", slave)
    monkeypatch.setattr(module, "STDOUT", slave)
    yield slave
    os.close(master)
    os.close(slave)


def jobs(tunnel: Mock) -> Any:
    @contextmanager
    def attach_to_pod(*_: object, terminal: bool) -> Iterator[TerminalSession]:
        assert terminal
        with closing(TerminalSession(tunnel)) as session:
            yield session

    document = job_with(STATUS).to_document() | {"metadata": a_document()["metadata"]}
    found = jobs_with(get=lambda _: document, pods=lambda _: [A_POD])
    object.__setattr__(found.cluster, "attach_to_pod", attach_to_pod)
    object.__setattr__(found, "node_of_rank", partial(Jobs.node_of_rank, found))
    return found


def silent_until(happens: Callable[[], object]) -> Mock:
    """A program that prints nothing. While the pod is asked whether it is there, something happens."""
    return Mock(**{
        "recv_data.side_effect": [SILENT, ENDED, (CLOSED, b"")], "ping.side_effect": happens,
    })  # fmt: skip


def test_a_window_may_change_at_any_moment(terminal: int) -> None:
    def changed() -> None:
        termios.tcsetwinsize(terminal, (10, 20))
        signal.raise_signal(signal.SIGWINCH)

    tunnel, before = silent_until(changed), signal.getsignal(signal.SIGWINCH)
    assert module.debug(jobs(tunnel), "digits", 1, None) == 0
    size = bytes([SIZE]) + json.dumps({"Width": 20, "Height": 10}).encode()
    wait_for("the new size", lambda: size in [call.args[0] for call in tunnel.send_binary.call_args_list])
    assert signal.getsignal(signal.SIGWINCH) is before


def test_the_terminal_is_as_before_when_the_command_is_terminated(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    with pytest.raises(SystemExit) as ended:
        module.debug(jobs(silent_until(lambda: signal.raise_signal(signal.SIGTERM))), "digits", 0, ["top"])
    assert (ended.value.code, termios.tcgetattr(terminal)) == (143, before)


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        (4, "--rank 4: digits has 4 ranks: ranks 0 to 3"),
        (-1, "--rank -1: digits has 4 ranks: ranks 0 to 3"),
        (2, "--rank 2: the pod of its node 1 does not run: 2 nodes are running"),
    ],
)
def test_a_rank_that_cannot_be_debugged_is_said_to_be_missing(terminal: int, rank: int, said: str) -> None:
    assert terminal
    with pytest.raises(BadInputError) as refused:
        module.debug(jobs(Mock()), "digits", rank, None)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (2, "digits has no node 2: its nodes are numbered 0 to 1"),
        (-1, "digits has no node -1: its nodes are numbered 0 to 1"),
        (1, "--node 1: its pod does not run: 2 nodes are running"),
    ],
)
def test_a_node_that_cannot_be_debugged_is_said_to_be_missing(terminal: int, node: int, said: str) -> None:
    assert terminal
    with pytest.raises(BadInputError) as refused:
        module.debug(jobs(Mock()), "digits", None, None, node=node)
    assert str(refused.value) == said


def test_a_node_is_reached_by_its_number_without_a_question_to_the_supervisor(
    terminal: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal
    found = jobs(silent_until(lambda: None))
    object.__setattr__(found, "node_of_rank", Mock(side_effect=AssertionError))
    assert module.debug(found, "digits", None, ["top"], node=0) == 0
    assert "node 0 runs in pod digits-0, container trainer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "rank", "node"), [([], None, None), (["--rank", "3"], 3, None), (["--node", "1"], None, 1)]
)
def test_a_rank_or_a_node_is_named(
    words: list[str], rank: int | None, node: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(there, "debug", debug := Mock(return_value=0))
    assert there.COMMANDS["debug"](a_cluster(), parse(["debug", "digits", *words, "--", "top"])) == 0
    assert (debug.call_args.args[1:], debug.call_args.kwargs) == (("digits", rank, ["top"]), {"node": node})


def test_a_rank_and_a_node_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["debug", "digits", "--rank", "0", "--node", "1"])
    assert "not allowed with argument --rank" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ["nosuch", "a"],
            'unable to start container process: exec: "nosuch": executable file not found in $PATH',
        ),
        (["/nosuch"], 'unable to start container process: exec: "/nosuch": stat /nosuch: no such file or directory'),
        (None, "stat /bin/sh: no such file or directory"),
    ],
)
def test_a_program_that_the_image_lacks_is_named(terminal: int, command: list[str] | None, said: str) -> None:
    assert terminal
    outcome = {"status": "Failure", "reason": "InternalError", "message": f"error executing command: {said}: unknown"}
    ended = (2, bytes([OUTCOME]) + json.dumps(outcome).encode())
    tunnel = Mock(**{"recv_data.side_effect": [ended, (CLOSED, b"")]})
    name = command[0] if command else "/bin/sh"
    with pytest.raises(BadInputError, match=f"^there is no program {name} in the image of rank 1; name another one"):
        module.debug(jobs(tunnel), "digits", 1, command)


@pytest.mark.parametrize("command", [None, []])
def test_a_shell_needs_a_terminal(command: list[str] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with (tmp_path / "none").open("w") as none:
        monkeypatch.setattr(module, "STDOUT", none.fileno())
        with pytest.raises(BadInputError, match=r"ddpjob debug digits --rank 3 -- COMMAND$"):
            module.debug(jobs(Mock()), "digits", 3, command)
        with pytest.raises(BadInputError, match=r"ddpjob debug digits --node 1 -- COMMAND$"):
            module.debug(jobs(Mock()), "digits", None, command, node=1)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ({"order": [1, 0]}, ""),
        ({}, "the pod of its node 1 does not run"),
        (
            None,
            "the ranks of digits follow placement, and rank 0's supervisor, which knows",
        ),
        ({"order": [0]}, "does not say so now"),
        ({"order": ["x", "y"]}, "does not say so now"),
    ],
)
def test_the_pod_of_a_rank_that_follows_placement_is_that_of_its_true_node(
    terminal: int, page: dict[str, Any] | None, said: str
) -> None:
    assert terminal
    found = jobs(silent_until(lambda: None))
    document = found.get("digits")
    document["spec"]["scheduling"] = {"topology": {"preferred": "example.com/rack"}}
    document["spec"]["template"]["spec"]["containers"][0]["command"] = ["ddpjob-supervise", "train.py"]
    object.__setattr__(found, "get", lambda _: document)
    object.__setattr__(found, "status_page", lambda *_: page)
    with pytest.raises(BadInputError, match=said) if said else nullcontext():
        assert module.debug(found, "digits", 2, ["top"]) == 0
