"""What a shell is offered at TAB, and how it asks."""

import threading
from pathlib import Path

import pytest
from ddpjob_operator.cli import completion
from ddpjob_operator.cli.arguments import parser


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on this machine, `here`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("ddpjob-runs/here").mkdir(parents=True)
    Path("ddpjob-runs/here/job.json").touch()


def names(*flags: str) -> list[str]:
    return list(completion.jobs(parser().parse_args(["logs", *flags])))


@pytest.mark.parametrize(
    ("flags", "offered"),
    [
        ([], ["here", "there"]),
        (["--local"], ["here"]),
        (["--run-dir", "nowhere"], []),
        (["-n", "team"], ["there"]),
        (["--cluster"], ["there"]),
    ],
    ids=["without a flag", "here", "a directory that does not exist", "a namespace", "a cluster"],
)
def test_names_are_those_of_the_places_that_are_meant(
    flags: list[str], offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_of_cluster", lambda _: ["there"])
    assert names(*flags) == offered


def test_a_cluster_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "ANSWER_SECONDS", 0.01)
    end = threading.Event()
    monkeypatch.setattr(completion, "_of_cluster", lambda _: [str(end.wait())])
    assert names() == ["here"]
    end.set()


def test_a_cluster_that_says_no_is_not_spoken_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    assert names() == ["here"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_gets_a_script_of_its_own(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.script(shell) == 0
    marks = {"bash": "complete -o", "zsh": "compdef", "fish": "complete --command ddpjob"}
    assert marks[shell] in capsys.readouterr().out
