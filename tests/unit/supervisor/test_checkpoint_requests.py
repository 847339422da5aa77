"""What a supervisor does with requests for a checkpoint, from the file that the kubelet writes to the answer."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.moments import rfc3339
from ddpjob_supervisor.watch.checkpoint_requests import CheckpointRequests

DURING, BEFORE = 60, -60
"""Seconds from now, for the time of a checkpoint."""


@dataclass
class Node:
    """Rank 0's node, as its supervisor sees it."""

    directory: Path
    attempt: int = 1
    running: bool = True
    pipe: int | None = None
    beat: dict[str, Any] | None = field(default_factory=lambda: {"activity": "training", "step": 7, "reports": True})

    def __post_init__(self) -> None:
        self.requests = CheckpointRequests(self.directory / "request", self.directory / "0")

    def listens(self) -> None:
        """The program saves on request."""
        os.mkfifo(self.directory / "0.save")
        self.pipe = os.open(self.directory / "0.save", os.O_RDWR | os.O_NONBLOCK)

    def request(self, request: str) -> bool:
        """A request comes; returns whether the supervisor has news."""
        (self.directory / "request").write_text(request)
        return self.look()

    def look(self) -> bool:
        beats: Any = [{"rank": 1}, {"rank": 0, "attempt": self.attempt, **self.beat}] if self.beat else []
        return self.requests.look(self.attempt, running=self.running, beats=lambda: beats)

    def saves(self, step: int, when: float = DURING, **beat: Any) -> bool:
        """The program reports that its checkpoint of a step is complete."""
        self.beat = {**(self.beat or {}), **beat, "checkpoint": {"step": step, "time": rfc3339(time.time() + when)}}
        return self.look()

    @property
    def asked(self) -> int:
        """How often the program was asked since the last look."""
        assert self.pipe is not None
        try:
            return len(os.read(self.pipe, 100))
        except BlockingIOError:
            return 0

    @property
    def answer(self) -> str:
        last = self.requests.last
        return " ".join(filter(None, (last.request, last.state, last.message or str(last.step or ""))))


@pytest.fixture
def silent(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def node(silent: Node) -> Iterator[Node]:
    silent.listens()
    yield silent
    if silent.pipe is not None:
        os.close(silent.pipe)


def test_a_request_is_passed_on_once(node: Node) -> None:
    assert not node.look()
    assert node.request("a\n")
    assert (node.asked, node.answer) == (1, "a Requested")
    for _ in range(3):
        assert not node.look()
    assert not node.request("a")
    assert node.asked == 0


def test_it_is_answered_by_a_checkpoint_that_is_not_older_than_the_last_step_then(node: Node) -> None:
    node.request("a")
    assert not node.saves(6)
    assert node.saves(7)
    assert node.answer == "a Saved 7"
    assert not node.saves(8)
    assert not node.request("a")
    assert (node.asked, node.answer) == (1, "a Saved 7")


def test_a_checkpoint_of_the_last_step_that_is_complete_already_is_the_answer(node: Node) -> None:
    node.saves(7, BEFORE)
    assert node.request("a")
    assert node.answer == "a Saved 7"


@pytest.mark.parametrize(("when", "answer"), [(BEFORE, "a Requested"), (DURING, "a Saved 3")])
def test_where_steps_are_only_counted_a_checkpoint_must_be_newer_than_the_request(
    node: Node, when: float, answer: str
) -> None:
    node.beat = {"activity": "training", "step": 7, "counted": True}
    node.request("a")
    node.saves(3, when)
    assert node.answer == answer


def test_before_the_first_step_a_program_that_saves_is_asked(node: Node) -> None:
    node.beat = {"activity": "starting"}
    node.request("a")
    assert (node.asked, node.answer) == (1, "a Requested")
    node.saves(1, reports=True)
    assert node.answer == "a Saved 1"


def test_the_next_request_takes_the_place_of_one_that_is_not_answered(node: Node) -> None:
    node.request("a")
    node.beat = {"activity": "training", "step": 9, "reports": True}
    node.request("b")
    assert (node.asked, node.answer) == (2, "b Requested")
    node.saves(8)
    assert node.answer == "b Requested"
    node.saves(9)
    assert node.answer == "b Saved 9"


NO_STEP = "a NotSaved no step has finished yet, so there is nothing to save"
UNABLE = (
    "a NotSaved the program does not save on request: ddpjob-train with --checkpoint-dir does, and so does a script"
    " with ddpjob.Training or ddpjob.on_save_request"
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "the program has no such function": ({}, UNABLE),
    "it has not begun": ({"beat": {"activity": "starting"}}, NO_STEP),
    "it has said nothing": ({"beat": None}, NO_STEP),
    "it has not been started": ({"attempt": 0, "running": False}, "a NotSaved no rank is running"),
    "it has ended": ({"running": False}, "a NotSaved no rank is running"),
}


@pytest.mark.parametrize(("state", "answer"), REFUSED.values(), ids=REFUSED)
def test_a_request_is_refused_at_once_if(silent: Node, state: dict[str, Any], answer: str) -> None:
    for name, value in state.items():
        setattr(silent, name, value)
    assert silent.request("a")
    assert silent.answer == answer
    assert not silent.look()


def test_an_attempt_that_ends_before_it_has_saved_takes_the_request_with_it(node: Node) -> None:
    node.request("a")
    node.attempt, node.beat = 2, {"activity": "training", "step": 7, "reports": True}
    assert node.saves(7)
    assert node.answer == "a NotSaved attempt 1 ended before the program had saved"
    node.look()
    assert node.asked == 1


@pytest.mark.parametrize(
    ("step", "answer"), [(7, "a Saved 7"), (6, "a NotSaved attempt 1 ended before the program had saved")]
)
def test_the_last_report_of_an_attempt_that_has_ended_counts(node: Node, step: int, answer: str) -> None:
    node.request("a")
    node.running = False
    node.saves(step)
    assert node.answer == answer


@pytest.mark.parametrize("content", [b"", b" \n", None], ids=["empty", "blank", "absent"])
def test_without_a_request_nothing_is_said(node: Node, content: bytes | None) -> None:
    if content is not None:
        (node.directory / "request").write_bytes(content)
    assert not node.look()
    assert node.answer == ""


def test_a_file_that_disappears_while_a_request_waits_changes_nothing(node: Node) -> None:
    node.request("a")
    (node.directory / "request").unlink()
    assert not node.look()
    assert node.saves(7)
    assert node.answer == "a Saved 7"


def test_of_a_file_that_is_no_request_only_its_beginning_is_read(node: Node) -> None:
    (node.directory / "request").write_bytes(b"\xff" * 100_000)
    assert node.look()
    assert len(node.requests.last.request) == 64
    (node.directory / "request").unlink()
    os.mkfifo(node.directory / "request")
    assert not node.look()
