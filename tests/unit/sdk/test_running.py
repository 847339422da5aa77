"""`ddpjob.run`: what it asks of the command, and what becomes of the run's end."""

import signal
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

import ddpjob
import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.run import Ended
from ddpjob_operator.client import as_job
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.sdk import results, running

from .test_sdk import CRASH, FAILED, INCIDENT, a_document_with

COMPLETE = FAILED | {"type": "Complete", "reason": "AllRanksSucceeded", "message": ""}
PLAIN = {
    "command": "run",
    "target": None,
    "program": None,
    "module": None,
    "nodes": None,
    "procs_per_node": None,
    "name": None,
    "env": [],
    "checkpoint": None,
    "history": None,
    "max_restarts": None,
    "start_method": None,
    "run_dir": None,
    "resume": None,
    "fresh": False,
    "detach": False,
    "attach": None,
    "dry_run": False,
    "output": None,
    "on": None,
    "source": None,
    "include": [],
    "pip": [],
    "requirements": None,
    "watch": None,
    "namespace": None,
    "context": None,
    "kubeconfig": None,
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Runs":
    return Runs(monkeypatch, tmp_path)


class Runs:
    """In place of the command: remembers what it was given, and ends with this status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.given: list[Namespace] = []
        self.quiet = False
        self.conditions, self.status = [COMPLETE], dict[str, Any]()
        self.directory = RunDirectory(root / "digits")
        monkeypatch.setattr(running, "run_to_its_end", self._run)

    def _run(self, given: Namespace, _: Any, packed: Any, screen: Any) -> Ended:
        assert packed is None
        self.given.append(given)
        self.quiet = screen.quiet
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: None)
        job = as_job(a_document_with(*self.conditions, **self.status))
        return Ended(0, job, self.directory)


def test_the_command_gets_what_it_would_have_from_a_terminal(runs: Runs, tmp_path: Path) -> None:
    ddpjob.run("train.py")
    ddpjob.run(
        Path("train.py"),
        args=["--lr", 0.1],
        nodes=2,
        procs_per_node=3,
        name="digits",
        env={"A": "b"},
        checkpoint="ckpt",
        history="hist",
        max_restarts=4,
        start_method="cold",
        run_dir=tmp_path,
        quiet=True,
    )
    assert runs.quiet
    ddpjob.run(module="train")
    assert not runs.quiet
    assert [vars(given) for given in runs.given] == [
        PLAIN | {"target": "train.py"},
        PLAIN
        | {"target": "train.py", "program": ["--lr", "0.1"], "nodes": 2, "procs_per_node": 3, "name": "digits"}
        | {"env": ["A=b"], "checkpoint": "ckpt", "history": "hist", "max_restarts": 4, "start_method": "cold"}
        | {"run_dir": tmp_path},
        PLAIN | {"module": "train"},
    ]


def test_one_word_is_no_list_of_arguments() -> None:
    with pytest.raises(BadInputError, match=r"args='--lr': must be a list, such as \['--lr'\]"):
        ddpjob.run("train.py", args="--lr")  # type: ignore[call-overload]


def test_a_result_is_returned(runs: Runs) -> None:
    runs.status["result"] = '{"loss": 1}'
    assert ddpjob.run("train.py") == {"loss": 1}


def test_a_run_that_was_stopped_is_an_interruption_that_says_how_to_go_on(runs: Runs) -> None:
    runs.conditions = []
    with pytest.raises(KeyboardInterrupt, match=r"^digits was stopped; go on with: ddpjob run --resume digits$"):
        ddpjob.run("train.py")


def test_a_run_that_fails_raises(runs: Runs) -> None:
    runs.conditions = [FAILED]
    with pytest.raises(ddpjob.JobFailed, match=r"^digits has failed"):
        ddpjob.run("train.py")


@pytest.mark.parametrize(("attempt", "gang"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_a_failure_has_the_traceback_of_the_gang_that_ran_its_attempt(runs: Runs, attempt: int, gang: int) -> None:
    runs.conditions, runs.status = [FAILED], {"incidents": [INCIDENT | {"attempt": attempt}]}
    for number in (1, 3):
        log = runs.directory.logs_of(number) / "node-1.log"
        log.parent.mkdir(parents=True)
        log.write_text("\n".join([*CRASH[:-1], f"ZeroDivisionError: {number}"]))
    with pytest.raises(ddpjob.RankFailed) as raised:
        ddpjob.run("train.py")
    assert raised.value.remote_traceback.endswith(f"ZeroDivisionError: {gang}")


def test_signals_are_handled_as_before_also_after_a_failure(runs: Runs) -> None:
    before = signal.getsignal(signal.SIGTERM)
    runs.conditions = [FAILED]
    with pytest.raises(ddpjob.JobFailed):
        ddpjob.run("train.py")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_can_run_a_job_too(runs: Runs) -> None:
    thread = threading.Thread(target=ddpjob.run, args=("train.py",))
    thread.start()
    thread.join()
    assert len(runs.given) == 1


def test_a_result_that_was_kept_nowhere_is_an_error() -> None:
    job = as_job(a_document_with(COMPLETE, resultPlace="result.json"))
    with pytest.raises(BadInputError, match=r"^the result of digits is in no history$"):
        results.result_of(job)
