"""`ddpjob.run(…, on=JOB)`: what is sent to the held nodes, and what becomes of the program's end."""

import importlib
import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ddpjob
import pytest
from ddpjob_operator.cli.cluster.held_run import Ran, SentProgram
from ddpjob_operator.cli.cluster.shown_run import ShownRun
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.sdk import holding

from .test_sdk import CRASH, a_document_with

OUTPUT = [Line(0, 3, "epoch 1"), *(Line(1, 3, text) for text in CRASH)]


class Held:
    """In place of a cluster: remembers what was asked, and ends so."""

    def __init__(self) -> None:
        self.ran, self.interrupted = Ran(3, 0, "", result={"loss": 1}), False
        self.connected: Any = None
        self.sent: list[SentProgram] = []

    def get(self, name: str) -> dict[str, Any]:
        assert name == "dev"
        return a_document_with()

    @contextmanager
    def started(self, _: Any, document: Any, sent: SentProgram, say: Callable[[str], None]) -> Iterator[Any]:
        assert document == a_document_with()
        say("waiting for the nodes")
        self.sent.append(sent)
        lines = iter(OUTPUT)
        yield SimpleNamespace(attempt=3, skip=list, unfinished=list, lines=lambda **_: list(lines))

    def follow(self, _: Any, name: str, shown: ShownRun) -> tuple[Ran, bool]:
        assert name == "dev"
        with shown.following():
            pass
        return self.ran, self.interrupted


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Held:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "data.py"):
        Path(name).write_text("1\n")
    held = Held()
    monkeypatch.setattr(holding, "connect", lambda *given: setattr(held, "connected", given))
    monkeypatch.setattr(holding, "Jobs", lambda _: held)
    monkeypatch.setattr(holding, "started", held.started)
    monkeypatch.setattr(holding, "follow", held.follow)
    return held


def test_a_script_is_sent_with_its_arguments_and_its_result_comes_back(
    held: Held, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ddpjob.run("train.py", args=["--lr", 0.1], on="dev", env={"A": "b"}, namespace="team", context="there")
    (sent,) = held.sent
    assert (result, sent.words, sent.env) == ({"loss": 1}, ["train.py", "--lr", "0.1"], {"A": "b"})
    assert held.connected == (None, "there", "team")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-len(OUTPUT) - 1 :] == ["waiting for the nodes", *map(str, OUTPUT)]


def test_quiet_is_quiet(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    assert ddpjob.run("train.py", on="dev", quiet=True) == {"loss": 1}
    assert (len(held.sent), capsys.readouterr()) == (1, ("", ""))


@pytest.mark.parametrize(("message", "said"), [("it was stopped", "it was stopped"), ("", "it was done")])
def test_an_interrupted_program_leaves_the_nodes_held(held: Held, message: str, said: str) -> None:
    held.ran, held.interrupted = Ran(3, 0, message), True
    with pytest.raises(KeyboardInterrupt, match=f"^{said}; dev is held$"):
        ddpjob.run("train.py", on="dev", quiet=True)


def test_a_rank_that_fails_is_described_with_the_traceback_of_its_node(held: Held) -> None:
    incident = {"node": 1, "rank": 3, "exitCode": 7, "step": 12}
    held.ran = Ran(3, 7, "rank 3 failed", incident)
    with pytest.raises(ddpjob.RankFailed, match=r"^the program on digits has failed: rank 3 failed") as raised:
        ddpjob.run("train.py", on="dev", quiet=True)
    error = raised.value
    assert (error.rank, error.node, error.attempt, error.step, error.exit_code) == (3, 1, 3, 12, 7)
    assert (error.name, error.pod, error.cause, error.hint) == ("digits", "node 1 of digits", "Application", "")
    assert error.remote_traceback == "\n".join(CRASH[1:])
    held.ran = Ran(3, 7, "", {"node": 0, "cause": "OutOfMemory"})
    with pytest.raises(ddpjob.RankFailed) as raised:
        ddpjob.run("train.py", on="dev", quiet=True)
    assert (raised.value.cause, raised.value.rank, raised.value.remote_traceback) == ("OutOfMemory", None, "")


@pytest.mark.parametrize("incident", [None, {}, {"node": "x"}])
def test_without_an_incident_that_can_be_understood_the_job_has_failed(held: Held, incident: Any) -> None:
    held.ran = Ran(3, 7, "a node was lost", incident)
    with pytest.raises(ddpjob.JobFailed, match=r"^the program on digits has failed: a node was lost$") as raised:
        ddpjob.run("train.py", on="dev", quiet=True)
    assert type(raised.value) is ddpjob.JobFailed


def files_of(sent: SentProgram) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(sent.archive.data)) as archive:
        return {*archive.namelist()}


@pytest.mark.parametrize(("folder", "files"), [(None, {"train.py"}), (".", {"train.py", "data.py"})])
def test_only_the_script_is_sent_or_its_folder(held: Held, folder: str | None, files: set[str]) -> None:
    ddpjob.run("train.py", on="dev", source=folder, quiet=True)
    assert files_of(held.sent[0]) == files


def test_a_function_is_sent_with_its_module(held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "held_module.py").write_text("def train(lr):\n    return lr\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "held_module", None)  # type: ignore[arg-type]  # It is gone after the test.
    monkeypatch.delitem(sys.modules, "held_module")
    train = importlib.import_module("held_module").train
    for folder, also in ((None, set[str]()), (".", {"train.py", "data.py"})):
        assert ddpjob.run(train, {"lr": 0.1}, on="dev", source=folder) == {"loss": 1}
        sent = held.sent[-1]
        assert sent.words == ["ddpjob_call.py"]
        assert files_of(sent) == {"held_module.py", "ddpjob_call.py", "ddpjob_arguments.json", *also}
