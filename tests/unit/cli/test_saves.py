"""Which changes of files count as a save, and what `ddpjob run --on JOB --watch` does at each."""

import importlib
import shutil
import signal
import threading
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster import saves as module
from ddpjob_operator.cli.cluster.held_run import Ran
from ddpjob_operator.cli.cluster.saves import Saves
from ddpjob_operator.client.source import Stamps, stamp

run_on = importlib.import_module("ddpjob_operator.cli.cluster.run_on")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "SHARE", 0)


def seen(*moments: int) -> Saves:
    """Files that change as in `moments`, and then no more."""
    looks = chain(moments, repeat(moments[-1]))

    def look() -> Stamps:
        return {"train.py": (next(looks), 0, 0)}

    return Saves(look)


def test_without_a_change_nothing_was_saved() -> None:
    assert [seen(1).happened() for _ in range(3)] == [False] * 3


def test_changes_that_follow_each_other_at_once_are_one_save() -> None:
    saves = seen(1, 2, 3, 4)
    assert (saves.happened(), saves.happened()) == (True, True)
    saves.wait()
    assert not saves.happened()


def test_a_later_change_is_another_save() -> None:
    saves = seen(1, 2, 2, 2, 3)
    saves.wait()
    assert not saves.happened()
    assert saves.happened()


def test_a_change_that_is_taken_back_before_it_is_seen_whole_is_a_save_too() -> None:
    saves = seen(1, 2, 1)
    assert saves.happened()


def test_who_waits_looks_until_the_next_save(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    saves = seen(1, 1, 1, 2)
    monkeypatch.setattr(saves, "_pause", lambda: pauses.append(0.0))
    saves.wait()
    assert len(pauses) == 3


def watching(*words: str) -> Any:
    return parse(["run", "--on", "dev", "--watch", *words])


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script = Path("train.py")
    script.write_text("1\n")
    return script


def test_a_save_with_a_mistake_is_told_and_the_next_one_is_waited_for(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edits: list[Any] = [script.unlink, lambda: script.write_text("new\n")]

    def wait() -> None:
        edits.pop(0)()

    watched = run_on._Watched(watching("train.py"), Path.cwd())
    watched.saves = SimpleNamespace(happened=lambda: len(edits) == 2, wait=wait)
    words, source, _ = watched.saved()
    assert (words, [file.content for file in source.files]) == (["train.py"], [b"new\n"])
    mistake, waiting = capsys.readouterr().err.splitlines()
    assert mistake.startswith("error: there is no train.py")
    assert waiting == "ddpjob: waiting for the next save; Ctrl-C ends"


def test_what_is_sent_is_what_is_looked_at(script: Path) -> None:
    assert run_on._stamps(watching("train.py")) == {"train.py": stamp(script)}
    assert run_on._stamps(watching("--source", ".", "train.py")).keys() == {"train.py"}
    (problem,) = run_on._Watched(watching("--source", "gone", "train.py"), Path.cwd())._look().items()
    assert ("gone" in problem[0], problem[1]) == (True, (0, 0, 0))
    script.unlink()
    assert run_on._stamps(watching("train.py")) == {"train.py": (0, 0, 0)}


@pytest.mark.parametrize("words", [["train.py"], ["--source", ".", "train.py"]])
def test_a_working_directory_that_is_replaced_is_looked_at_anew(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, checked_out = tmp_path / "project", tmp_path / "other"
    for place in (folder, checked_out):
        place.mkdir()
        (place / "train.py").write_text(f"'{place.name}'\n")
    monkeypatch.chdir(folder)
    watched = run_on._Watched(watching(*words), folder)
    shutil.rmtree(folder)
    steps: list[Any] = [lambda: None, lambda: checked_out.rename(folder)]

    def wait() -> None:
        steps.pop(0)()

    monkeypatch.setattr(watched.saves, "wait", wait)
    _, source, _ = watched.saved()
    assert [file.content for file in source.files] == [b"'other'\n"]
    assert f"error: cannot use the folder {folder}: No such file or directory" in capsys.readouterr().err
    assert watched.saves.happened()


def test_who_waits_for_a_save_for_a_while_is_told_whether_there_was_one() -> None:
    assert not seen(1).within(0.0)
    assert seen(1, 2).within(60.0)


@pytest.mark.parametrize(("words", "runs"), [(["train.py"], 3), (["--source", ".", "train.py"], 3)])
def test_the_program_runs_at_each_save_until_ctrl_c(
    script: Path, words: list[str], runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, sent = [Ran(number, number, "") for number in range(1, runs + 1)], list[Any]()

    def run(_: Any, document: Any, wanted: Any, name: str, saves: Any) -> tuple[Ran, bool]:
        assert (document, name, isinstance(saves, Saves)) == ("the job", "dev", True)
        sent.append(wanted)
        return ran[len(sent) - 1], len(sent) == runs

    monkeypatch.setattr(run_on, "Jobs", lambda _: SimpleNamespace(get=lambda _: "the job"))
    monkeypatch.setattr(run_on, "_run", run)
    monkeypatch.setattr(run_on._Watched, "saved", lambda _: len(sent))
    monkeypatch.setattr(run_on, "_packed", lambda wanted, _: wanted)
    assert script.exists()
    assert run_on.run_on(lambda: None, watching(*words)) == runs
    assert sent[1:] == [1, 2]


def test_sigterm_ends_a_program_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), run_on._terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    ended = list[bool]()

    def in_a_thread() -> None:
        with run_on._terminated_as_interrupted():
            ended.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert ended == [True]
