"""`ddpjob.Checkpoints`, `ddpjob.newest`, and what `import ddpjob` loads."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import ddpjob
import pytest
import torch
from ddpjob import Checkpoints
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.training import save_schedule, saver
from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_rank.reporting.agreement import Wish
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.usefixtures("no_training")


class Clock:
    """Time stands still unless it is told to pass."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (saver, save_schedule):
        monkeypatch.setattr(module, "time", clock)
    return clock


def a_program(directory: Path | None, **settings: object) -> tuple[nn.Linear, Checkpoints]:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings = {"directory": directory, **settings}
    return model, Checkpoints(model=model, optimizer=optimizer, **settings)  # type: ignore[arg-type]


def test_a_loop_of_any_shape_resumes_after_the_step_of_its_last_save(tmp_path: Path) -> None:
    model, checkpoints = a_program(tmp_path, every_steps=5)
    assert checkpoints.resume() is None
    torch.manual_seed(1)
    saved = [step for step in range(1, 13) if checkpoints.save_if_due(step) or checkpoints._saver.finish()]  # type: ignore[func-returns-value]
    drawn = torch.rand(1)
    assert saved == [5, 10]
    again, checkpoints = a_program(tmp_path, every_steps=5)
    resumed = checkpoints.resume()
    assert resumed == checkpoints.resumed == ddpjob.Resumed(10, 0, str(tmp_path / "step-00000010"), ())
    assert torch.equal(again.weight, model.weight)
    assert torch.equal(torch.rand(1), drawn), "also the random generators"
    assert not checkpoints.save_if_due(14)
    assert checkpoints.save_if_due(16), "step 15 was passed"


def test_a_number_of_steps_that_falls_is_refused(tmp_path: Path) -> None:
    _, checkpoints = a_program(tmp_path, every_steps=5)
    checkpoints.resume()
    for step in (1, 2, 2):
        checkpoints.save_if_due(step)
    with pytest.raises(ConfigError, match=r"^save_if_due\(1\) after save_if_due\(2\): pass the number of all steps"):
        checkpoints.save_if_due(1)


def test_by_default_the_interval_is_the_one_that_costs_the_least_time(tmp_path: Path, clock: Clock) -> None:
    _, checkpoints = a_program(tmp_path)
    checkpoints.resume()
    saved = []
    for step in range(1, 15):
        clock.now += 1.0
        if checkpoints.save_if_due(step):
            saved.append(step)
            checkpoints._saver.finish()
    assert saved[0] == 10, "the first one, of which it learns what a save costs"


def test_seconds_between_two_saves(tmp_path: Path, clock: Clock) -> None:
    _, checkpoints = a_program(tmp_path, every_seconds=2.5)
    checkpoints.resume()
    saved = []
    for step in range(1, 10):
        clock.now += 1.0
        if checkpoints.save_if_due(step):
            saved.append(step)
            checkpoints._saver.finish()
    assert saved == [3, 6, 9]


def test_a_save_that_fails_hours_after_the_last_one_costs_no_training(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, checkpoints = a_program(tmp_path, every_steps=1)
    checkpoints.resume()
    checkpoints.save_if_due(1)
    checkpoints._saver.finish()
    with monkeypatch.context() as patched:
        patched.setattr(CheckpointDirectory, "write", Mock(side_effect=StorageError("the store is away")))
        for step, after in ((2, 3 * saver.FAILING_SECONDS), (3, 60.0)):
            clock.now += after
            checkpoints.save_if_due(step)
            wait_for_the_writer(checkpoints)
        clock.now += saver.FAILING_SECONDS + 1.0
        with pytest.raises(StorageError, match="the store is away"):
            checkpoints.save_if_due(4)
    assert capsys.readouterr().err.count("the store is away. Training goes on") == 1


def wait_for_the_writer(checkpoints: Checkpoints) -> None:
    writer = checkpoints._saver._writer
    assert writer
    assert writer._writing
    writer._writing.exception()


def test_a_request_that_comes_while_a_save_is_written_is_fulfilled_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, checkpoints = a_program(tmp_path, every_steps=1000)
    checkpoints.resume()
    write, may_write = CheckpointDirectory.write, threading.Event()
    monkeypatch.setattr(CheckpointDirectory, "write", lambda *args: may_write.wait() and write(*args))
    begun = []
    for step in (1, 2):
        checkpoints._saver._agreement.wish(Wish.SAVE)
        begun.append(checkpoints.save_if_due(step))
    may_write.set()
    wait_for_the_writer(checkpoints)
    assert [*begun, checkpoints.save_if_due(3)] == [True, False, True]
    checkpoints._saver.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_finish_waits_until_the_last_save_is_durable_and_gives_signals_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    _, checkpoints = a_program(tmp_path, every_steps=1)
    checkpoints.resume()
    assert signal.getsignal(signal.SIGTERM) != before
    checkpoints.save_if_due(1)
    checkpoints.finish()
    assert ddpjob.newest(tmp_path) == tmp_path / "step-00000001"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_stop_saves_and_then_stop_requested_is_true(tmp_path: Path) -> None:
    _, checkpoints = a_program(tmp_path, every_steps=100)
    checkpoints.resume()
    assert not checkpoints.save_if_due(1)
    signal.raise_signal(signal.SIGTERM)
    assert not ddpjob.stop_requested(), "not before all ranks have agreed"
    assert checkpoints.save_if_due(2)
    assert ddpjob.stop_requested()
    assert ddpjob.newest(tmp_path) == tmp_path / "step-00000002"


def test_without_a_look_for_a_checkpoint_nothing_is_saved(tmp_path: Path) -> None:
    _, checkpoints = a_program(tmp_path, every_steps=1)
    with pytest.raises(ConfigError, match=r"call resume\(\) before save_if_due\(\)"):
        checkpoints.save_if_due(1)


def test_without_a_directory_nothing_is_saved_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    _, checkpoints = a_program(None, every_steps=1)
    assert checkpoints.resume() is None
    assert not checkpoints.save_if_due(1)
    checkpoints._saver.finish()
    assert capsys.readouterr().out.startswith("ddpjob.Checkpoints: nothing is saved: pass directory=…")


def test_checkpoints_need_something_to_save() -> None:
    with pytest.raises(ConfigError, match="has nothing to save: pass the objects by name"):
        Checkpoints()


@pytest.mark.parametrize("owner", [ddpjob.Checkpoints, ddpjob.Training])
def test_objects_are_passed_by_name(owner: Any) -> None:
    model = nn.Linear(1, 1)
    for named in ({}, {"optimizer": SGD(model.parameters(), lr=0.1)}):
        with pytest.raises(ConfigError) as refused:
            owner(model, **named)
        name = owner.__name__
        assert str(refused.value) == (
            f"{name}(…) takes no objects without names: pass the objects by name, as in {name}(model=net,"
            " optimizer=opt)"
        )


def test_newest_is_the_newest_whole_checkpoint_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ddpjob.newest(tmp_path) is None
    _, checkpoints = a_program(tmp_path, every_steps=1)
    checkpoints.resume()
    for step in (1, 2):
        checkpoints.save_if_due(step)
        checkpoints._saver.finish()
    (tmp_path / "step-00000002/state.pt").write_bytes(b"torn")
    before = sorted(tmp_path.rglob("*"))
    assert ddpjob.newest(str(tmp_path)) == tmp_path / "step-00000001"
    assert "step-00000002 is passed over: state.pt has 4 bytes" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert ddpjob.newest(tmp_path / "made by the first save") is None


def run_script(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_the_import_loads_neither_torch_nor_numpy_nor_the_operator() -> None:
    code = "import sys, ddpjob; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(run_script(code).stdout.split())
    assert "ddpjob" in loaded
    assert not loaded & {
        "torch",
        "numpy",
        "ddpjob_operator",
        "ddpjob_trainer",
        "ddpjob_supervisor",
        "asyncio",
        "msgspec",
    }


def test_the_error_without_torch_names_it_and_the_extra() -> None:
    run = run_script("import sys; sys.modules['torch'] = None; import ddpjob; ddpjob.report(step=1); ddpjob.Training")
    assert run.stderr.endswith("ModuleNotFoundError: ddpjob.Training needs torch: install ddpjob[trainer]\n")


def test_the_error_without_a_kubernetes_client_names_it_and_the_extra() -> None:
    run = run_script("import sys; sys.modules['kubernetes'] = None; import ddpjob; ddpjob.submit")
    assert run.stderr.endswith("ModuleNotFoundError: ddpjob.submit needs kubernetes: install ddpjob[cli]\n")


def test_every_public_name_is_there() -> None:
    for name in ddpjob.__all__:
        assert getattr(ddpjob, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'ddpjob' has no attribute 'Trainer'"):
        getattr(ddpjob, "Trainer")  # noqa: B009  (mypy knows that there is no such name)


@pytest.mark.parametrize("last", [10, 12], ids=["a save was due, and skipped", "no save was due"])
def test_the_last_step_is_saved_at_the_end(tmp_path: Path, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, write = threading.Event(), CheckpointDirectory.write

    def wait_and_write(*arguments: Any) -> Path:
        assert may_write.wait(60)
        return write(*arguments)

    monkeypatch.setattr(CheckpointDirectory, "write", wait_and_write)
    _, checkpoints = a_program(tmp_path, every_steps=5)
    checkpoints.resume()
    for step in range(1, last + 1):
        checkpoints.save_if_due(step)
    may_write.set()
    checkpoints.finish()
    assert ddpjob.newest(tmp_path) == tmp_path / f"step-{last:08}"
    names = sorted(path.name for path in tmp_path.iterdir())
    checkpoints.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == names, "it is saved once"


def test_a_save_that_was_skipped_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, write = threading.Event(), CheckpointDirectory.write

    def wait_and_write(*arguments: Any) -> Path:
        assert may_write.wait(60)
        return write(*arguments)

    monkeypatch.setattr(CheckpointDirectory, "write", wait_and_write)
    _, checkpoints = a_program(tmp_path, every_steps=5)
    checkpoints.resume()
    for step in range(1, 11):
        checkpoints.save_if_due(step)
    may_write.set()
    checkpoints._saver.finish()
    assert checkpoints.save_if_due(11)
    checkpoints._saver.finish()
    assert ddpjob.newest(tmp_path) == tmp_path / "step-00000011"
