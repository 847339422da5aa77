"""`ddpjob.Training` in one process: what a script gets from it, line by line."""

import random
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ddpjob
import pytest
import torch
from accelerate import Accelerator, DistributedType
from accelerate.state import AcceleratorState, GradientState
from ddpjob import Training
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.data import DistributedBatchSampler
from ddpjob.data.resumable_loader import ResumableLoader
from ddpjob.training.named import Named
from ddpjob.training.resumed import restore
from ddpjob.training.saver import Saved
from ddpjob_rank.errors import ConfigError, DivergedError, StorageError
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.agreement import Wish
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, IterableDataset

from tests.support.killed_scripts import LIBRARY, Attempts, Fuse, draw_features, script_of

pytestmark = pytest.mark.usefixtures("no_training")

BATCHES = 4
SAVED = re.compile(r"saved step=(\d+) epoch=(\d+)")


class AppendedRecords(IterableDataset[int]):
    """A data set whose length is not known, although it has a method for it."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@dataclass
class Script:
    """A script's objects, as each of its starts makes them."""

    directory: Path | None
    model: nn.Module = field(default_factory=lambda: nn.Linear(2, 1))
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.optimizer = SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = StepLR(self.optimizer, 1, gamma=0.5)
        self.loader = [torch.full((3, 2), number / BATCHES) for number in range(BATCHES)]
        self.training = Training(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            loader=self.loader,
            directory=self.directory,
            **self.settings,
        )

    def update(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def train(self, epochs: int = 2) -> Iterator[tuple[int, int]]:
        """Trains, and yields at the end of the body of each step; each save is durable before the next step."""
        for epoch in self.training.epochs(epochs):
            for x in self.training.batches():
                wait(self.training)
                self.training.step(self.update(x))
                yield epoch, self.training.global_step
            self.scheduler.step()


def wait(training: Training) -> None:
    """Until the save under way is durable, which a quick test has to wait for."""
    training._saver.finish()


def saves(out: str) -> list[tuple[int, int]]:
    return [(int(step), int(epoch)) for step, epoch in SAVED.findall(out)]


def stop_at(script: Script, step: int, epochs: int = 2) -> None:
    """Trains until the body of this step is done, and stops as if the process were killed there."""
    for _, made in script.train(epochs):
        if made == step:
            return


def exec_until(code: Any, fuse: Fuse) -> bool:
    """Runs a script in this process; returns whether it has come to its end."""
    drawn = random.getstate()
    try:
        with fuse:
            exec(code, {"__name__": "__main__"})
    except KilledError:
        return False
    finally:
        random.setstate(drawn)
        torch.set_grad_enabled(True)  # The end of a `with` may have been left out.
    return True


def kill() -> None:
    raise KilledError


@pytest.mark.parametrize("number", range(6))
def test_a_script_that_is_killed_at_random_lines_comes_to_the_same_numbers(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = draw_features()
    print(sorted(features))
    code = compile(script_of(features), "script.py", "exec")
    monkeypatch.setenv("DIRECTORY", str(tmp_path / "calm/checkpoints"))
    monkeypatch.setenv("HERE", str(tmp_path))
    files = f"{LIBRARY}/training" if number % 2 else "script.py"
    fuse = Fuse(files, sys.maxsize, kill)
    assert exec_until(code, fuse)
    calm, lines = Attempts(tmp_path), sys.maxsize - fuse.lines
    (tmp_path / "killed").mkdir()
    for name in ("HERE", "DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "killed"))
    for _ in range(3):
        fuse = Fuse(files, random.randint(1, lines), kill)
        print("killed after", fuse.lines, "lines of", files)
        if exec_until(code, fuse):
            break
    else:
        assert exec_until(code, Fuse(files, 0, kill))
    Attempts(tmp_path / "killed").check(calm)


def test_step_only_notes_and_the_state_includes_what_the_body_does_after_it(tmp_path: Path) -> None:
    average = []
    for _ in range(2):
        model = nn.Linear(2, 1)
        average.append(AveragedModel(model))
        training = Training(model=model, ema=average[-1], loader=[0, 1, 2], directory=tmp_path, every_steps=2)
        assert (training.global_step, training.epoch) == ((2, 0) if training.resumed else (0, 0))
        for _ in training.epochs(1):
            for _ in training.batches():
                training.step()
                if training.global_step == 2:
                    assert not any(tmp_path.iterdir()), "step has saved"
                if training.global_step == 3:
                    break
                average[-1].update_parameters(model)
            break
    resumed, former = (each.n_averaged.item() for each in reversed(average))
    assert (resumed, former) == (2, 2)


def test_what_is_due_at_the_last_batch_is_saved_once_after_what_follows_the_inner_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former = Script(tmp_path, settings={"every_steps": BATCHES // 2})
    stop_at(former, BATCHES + 1)
    assert saves(capsys.readouterr().out) == [(BATCHES // 2, 1), (BATCHES, 1)]
    script = Script(tmp_path)
    assert script.training.resumed is not None
    assert (script.training.resumed.step, script.training.resumed.epoch) == (BATCHES, 1)
    assert script.scheduler.last_epoch == 1
    assert next(script.train()) == (1, BATCHES + 1)


def test_what_the_ranks_agree_to_save_at_the_last_batch_waits_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(tmp_path, settings={"every_seconds": 1000})
    for _, step in script.train():
        if step % BATCHES == 0:
            script.training._saver._agreement.wish(Wish.SAVE)
    assert saves(capsys.readouterr().out) == [(BATCHES, 1), (2 * BATCHES, 2)]


class Unsized:
    """Batches without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.rand(BATCHES, 3, 2))


@pytest.mark.parametrize("stops", [True, False], ids=["a stop", "a loader without a length"])
def test_a_save_at_the_last_batch_resumes_with_no_batch_left_and_what_follows_the_inner_loop_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, stops: bool
) -> None:
    former = Script(tmp_path, settings={"every_steps": 100 if stops else BATCHES})
    former.training._loader = ResumableLoader(former.loader if stops else Unsized())
    with suppress(SystemExit):
        for _ in former.training.epochs(2):
            for x in former.training.batches():
                former.training.step(former.update(x))
                if former.training.global_step == BATCHES and stops:
                    signal.raise_signal(signal.SIGTERM)
            wait(former.training)
            break
    monkeypatch.setattr(request, "_asked", False)
    script = Script(tmp_path)
    assert script.training.resumed is not None
    assert (script.training.resumed.step, script.training.resumed.epoch) == (BATCHES, 0)
    assert next(script.train()) == (1, BATCHES + 1)
    assert script.scheduler.last_epoch == 1
    assert "no batch of epoch 1 is left, because the checkpoint was saved after its last" in capsys.readouterr().out


def test_by_default_the_end_of_each_epoch_is_saved_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at(Script(tmp_path), BATCHES + 1)
    assert Script(tmp_path).training.resumed == ddpjob.Resumed(BATCHES, 1, str(tmp_path / "step-00000004"), ())
    out = capsys.readouterr().out
    assert saves(out) == [(BATCHES, 1)]
    assert f"resumed step=4 epoch=1 checkpoint={tmp_path}/step-00000004\n" in out


def test_what_the_outer_loops_body_draws_before_its_batches_is_drawn_again_after_a_resumption(tmp_path: Path) -> None:
    drawn: list[list[float]] = []
    for _ in range(2):
        drawn.append([])
        training = Training(model=nn.Linear(1, 1), loader=range(4), directory=tmp_path, every_steps=2)
        torch.rand(len(drawn))  # The program may draw between the two, such as for an evaluation.
        for _ in training.epochs(2):
            drawn[-1].append(torch.rand(1).item())
            for _ in training.batches():
                wait(training)
                training.step()
                drawn[-1].append(torch.rand(1).item())
                if training.global_step == 7 and len(drawn) == 1:
                    break
            else:
                continue
            break
    first, second = drawn
    assert second[:2] == [first[5], first[8]], "of epoch 1, and of the step after the save at step 6"
    assert len(second) == 3


def test_with_accumulation_a_step_is_an_optimizer_step_and_the_position_counts_batches(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    for stops_at in (7, None):
        seen.append([])
        training = Training(model=nn.Linear(1, 1), loader=range(8), directory=tmp_path, every_steps=1)
        for _ in training.epochs(1):
            for number in training.batches():
                wait(training)
                seen[-1].append(number)
                if number % 3 == 2:
                    training.step()
                if len(seen[-1]) == stops_at:
                    break
            else:
                continue
            break
        assert training.global_step == 2
    assert seen == [[0, 1, 2, 3, 4, 5, 6], [6, 7]]


def test_saves_by_steps_are_due_also_where_the_body_makes_several_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Training(model=nn.Linear(1, 1), loader=range(5), directory=tmp_path, every_steps=3, keep=9)
    for _ in training.epochs(1):
        for _ in training.batches():
            wait(training)
            training.step()
            training.step()
    assert saves(capsys.readouterr().out) == [(4, 1), (6, 1), (10, 1)]


def test_the_last_step_of_the_training_is_saved_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list(Script(tmp_path, settings={"every_steps": BATCHES}).train(1))
    said = capsys.readouterr()
    assert saves(said.out) == [(BATCHES, 1)]
    assert said.err == ""
    assert ddpjob.newest(tmp_path) == tmp_path / "step-00000004"
    assert Script(tmp_path).training.epoch == 1


def test_without_calls_of_step_one_warning_says_what_it_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Training(model=nn.Linear(1, 1), loader=range(3), directory=tmp_path)
    for _ in training.epochs(3):
        for _ in training.batches():
            pass
    training = Training(model=nn.Linear(1, 1), loader=range(250))
    for _ in training.epochs(1):
        for number in training.batches():
            if number > 150:
                training.step()
    told = re.findall("warning: rank 0 has not called (.*): call it after each step", capsys.readouterr().err)
    assert told == ["training.step(loss) in epoch 1", "training.step(loss) in 100 batches"]


def test_a_finished_training_says_that_no_epoch_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list(Script(tmp_path).train())
    script = Script(tmp_path)
    capsys.readouterr()
    assert list(script.train()) == []
    assert capsys.readouterr().out == (
        "all 2 epochs were trained before, so no epoch is left: to train more, raise the number of epochs, or name"
        " another directory to begin anew\n"
    )
    assert [epoch for epoch, _ in script.train(3)] == [2] * BATCHES


def test_a_former_training_of_the_process_cannot_be_used_and_a_cell_that_runs_again_goes_on(tmp_path: Path) -> None:
    former = Script(tmp_path, settings={"every_steps": 1})
    stop_at(former, 2)
    script = Script(tmp_path, settings={"every_steps": 1})
    for use in (
        former.training.step,
        lambda: next(iter(former.training.epochs(1))),
        lambda: next(former.train()),
    ):
        with pytest.raises(ConfigError, match="was replaced by a later one, because a process has only one"):
            use()
    assert script.training.resumed is not None
    assert next(script.train()) == (0, script.training.resumed.step + 1)


def test_a_training_that_is_replaced_finishes_its_save_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, write = threading.Event(), CheckpointDirectory.write

    def wait_and_write(*arguments: Any) -> Path:
        may_write.wait()
        return write(*arguments)

    monkeypatch.setattr(CheckpointDirectory, "write", wait_and_write)
    training = Script(tmp_path, settings={"every_steps": 2}).training
    for _ in training.epochs(1):
        for _ in training.batches():
            if training.global_step == 2:
                break
            training.step()
        break
    threading.Timer(0.05, may_write.set).start()
    assert Script(tmp_path).training.global_step == 2


def test_an_epoch_goes_through_the_loader_once() -> None:
    script = Script(None)
    stop_at(script, 2)
    with pytest.raises(ConfigError, match=r"batches\(\) was called before in epoch 1"):
        next(script.train())


def test_without_a_directory_training_works_and_it_is_said_once_that_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    script = Script(None, settings={"every_steps": 1})
    assert signal.getsignal(signal.SIGTERM) == before, "it dies of it as before"
    assert len(list(script.train())) == 2 * BATCHES
    assert capsys.readouterr().out == (
        "ddpjob.Training: nothing is saved: pass directory=…, or give the job a checkpoint directory\n"
    )
    assert not any(tmp_path.iterdir())


def test_a_jobs_directory_is_used_unless_another_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path / "job"))
    monkeypatch.setenv("DDPJOB_CHECKPOINT_EVERY_STEPS", "3")
    list(Script(None).train(1))
    assert (tmp_path / "job/step-00000003").exists()
    list(Script(tmp_path / "named", settings={"every_steps": 2}).train(1))
    assert (tmp_path / "named/step-00000002").exists()


def test_several_processes_without_a_group_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError, match=r"needs the process group of all 2 processes: call .*init_process_group\(\)"
    ):
        Script(None)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"every_steps": 1, "every_seconds": 1}, "every_steps and every_seconds exclude each other"),
        ({"every_steps": 0}, "every_steps is 0: it must be a whole number above 0"),
        ({"every_steps": 2.5}, r"every_steps is 2\.5: it must be a whole number above 0"),
        ({"every_seconds": "often"}, "every_seconds is 'often': it must be a number above 0 or \"auto\""),
        ({"keep": True}, "keep is True: it must be a whole number"),
        ({"on_nonfinite": "skip"}, 'on_nonfinite is \'skip\': it must be "stop" or "ignore"'),
    ],
)
def test_settings_with_invalid_values_are_refused(settings: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        Training(model=nn.Linear(1, 1), directory=tmp_path, **settings)


def test_training_needs_something_to_save_a_loader_for_batches_and_a_number_of_epochs() -> None:
    with pytest.raises(ConfigError, match="has nothing to save: pass the objects by name"):
        Training()
    training = Training(model=nn.Linear(1, 1))
    with pytest.raises(ConfigError, match="needs a loader: pass loader="):
        next(training.batches())
    for total in (0, 1.5, True):
        with pytest.raises(ConfigError, match="must be a whole number above 0"):
            next(training.epochs(total))  # type: ignore[arg-type]


class Stream(IterableDataset[torch.Tensor]):
    """A data set without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.rand(6, 2))


def test_a_loader_over_a_data_set_without_a_length_resumes_at_its_next_batch(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"directory": tmp_path, "every_steps": 1, "loader": DataLoader(Stream(), batch_size=2)}
    training = Training(model=nn.Linear(2, 1), **settings)
    for _ in training.epochs(1):
        for number, _ in enumerate(training.batches()):
            if number == 1:
                break
            training.step()
        wait(training)
        break
    training = Training(model=nn.Linear(2, 1), **settings)
    assert training.global_step == 1
    assert [len(list(training.batches())) for _ in training.epochs(1)] == [2]


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (DataLoader(range(8), batch_size=2), DataLoader(range(8), batch_size=2), ()),
        (
            DataLoader(range(8), batch_size=2),
            DataLoader(range(9), batch_size=3),
            ("the number of samples changed from 8 to 9", "the batch size changed from 2 to 3"),
        ),
        (
            DataLoader(range(8), batch_sampler=DistributedBatchSampler(range(8), 2)),
            DataLoader(range(8), batch_sampler=DistributedBatchSampler(range(8), 4)),
            ("the global batch size changed from 2 to 4",),
        ),
        (DataLoader(range(8), batch_size=2), [torch.ones(1)], ()),
        (DataLoader(AppendedRecords(), batch_size=2), DataLoader(AppendedRecords(), batch_size=2), ()),
    ],
)
def test_what_has_changed_in_the_data_is_told_at_a_resumption(
    before: Any, after: Any, changes: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(1, 1)
    training = Training(model=model, loader=before, directory=tmp_path)
    for _ in training.epochs(1):
        for _ in training.batches():
            training.step()
    training = Training(model=model, loader=after, directory=tmp_path)
    assert training.resumed
    assert training.resumed.changes == changes
    assert [line for line in capsys.readouterr().out.splitlines() if " changed from " in line] == [
        f"resumed: {change}" for change in changes
    ]


def test_the_number_of_the_last_step_is_right_although_the_batch_size_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals: list[int] = []
    report = reporting.report

    def note(*, total: int | None = None, **values: Any) -> None:
        totals.extend([] if total is None else [total])
        report(total=total, **values)

    monkeypatch.setattr(reporting, "report", note)
    settings: dict[str, Any] = {"model": nn.Linear(1, 1), "directory": tmp_path, "every_steps": 3}
    training = Training(loader=DataLoader(range(8), batch_size=2), **settings)  # type: ignore[arg-type]
    for _ in training.epochs(3):
        for _ in training.batches():
            training.step()
            wait(training)
            if training.global_step == 4:
                break
        else:
            continue
        break
    assert totals.pop() == 12
    training = Training(loader=DataLoader(range(8), batch_size=1), **settings)  # type: ignore[arg-type]
    for _ in training.epochs(3):
        for _ in training.batches():
            training.step()
    assert training.global_step == 3 + 2 + 16
    assert totals == [24, 21, 21, 21]


def test_another_number_of_processes_is_among_the_changes(tmp_path: Path) -> None:
    training = Training(model=nn.Linear(1, 1), directory=tmp_path)
    saved = Saved({"ranks": [{}] * 3, "shared": {}, "position": (5, 1)}, "")
    resumed = restore(Named({}), saved, training._saver)
    assert (resumed.step, resumed.changes) == (5, ("the number of processes changed from 3 to 1",))


def test_a_loop_without_a_loader_resumes_by_epochs(tmp_path: Path) -> None:
    training = Training(model=nn.Linear(1, 1), directory=tmp_path)
    for epoch in training.epochs(5):
        wait(training)
        training.step(0.5)
        if epoch == 3:
            break
    assert list(Training(model=nn.Linear(1, 1), directory=tmp_path).epochs(5)) == [3, 4]


def test_a_loop_without_a_loader_saves_and_stops_where_it_asks_for_a_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"directory": tmp_path, "every_steps": 2}
    training, made = Training(model=nn.Linear(1, 1), **settings), []

    def train() -> None:
        for epoch in training.epochs(3):
            for number in range(5):
                wait(training)
                training.step()
                made.append((epoch, number))
                if len(made) == 8:
                    signal.raise_signal(signal.SIGTERM)
                if ddpjob.stop_requested():
                    break

    with pytest.raises(SystemExit) as stopped:
        train()
    assert stopped.value.code == 205
    assert made[-1] == (1, 2)
    said = capsys.readouterr()
    assert saves(said.out) == [(2, 1), (4, 1), (6, 2), (8, 2)]
    assert f"stopped on request after step 8, which is saved in {tmp_path}\n" in said.out
    monkeypatch.setattr(request, "_asked", False)
    training = Training(model=nn.Linear(1, 1), **settings)
    assert (training.global_step, list(training.epochs(3))) == (8, [1, 2])
    assert "epoch 2 begins again, and the samples seen in it are seen twice" in capsys.readouterr().err


@pytest.mark.parametrize("stops", [True, False], ids=["at a stop", "once the previous save has ended"])
def test_without_a_loader_a_save_that_was_skipped_is_made_up_for_where_it_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stops: bool
) -> None:
    may_write, write = threading.Event(), CheckpointDirectory.write

    def wait_and_write(*arguments: Any) -> Path:
        may_write.wait()
        return write(*arguments)

    monkeypatch.setattr(CheckpointDirectory, "write", wait_and_write)
    training = Training(model=nn.Linear(1, 1), directory=tmp_path, every_steps=1)
    epochs = training.epochs(1)
    next(epochs)
    for _ in range(2):
        training.step()
        assert not ddpjob.stop_requested()
    may_write.set()
    if stops:
        signal.raise_signal(signal.SIGTERM)
    else:
        wait(training)
    assert ddpjob.stop_requested() == stops, "for example in an evaluation"
    wait(training)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_without_a_loader_a_stop_that_nobody_asks_for_waits_for_the_end_of_the_epoch(tmp_path: Path) -> None:
    training = Training(model=nn.Linear(1, 1), directory=tmp_path)
    epochs = training.epochs(3)
    for _ in range(2):
        next(epochs)
        training.step()
    signal.raise_signal(signal.SIGTERM)
    training.step()
    with pytest.raises(SystemExit):
        next(epochs)
    assert Training(model=nn.Linear(1, 1), directory=tmp_path).resumed == ddpjob.Resumed(
        3, 2, str(tmp_path / "step-00000003"), ()
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_a_loss_that_is_not_finite_stops_training_and_is_not_saved(bad: Any, tmp_path: Path) -> None:
    training = Training(model=nn.Linear(1, 1), loader=range(3), directory=tmp_path, every_steps=1)
    for _ in training.epochs(1):
        batches = training.batches()
        for loss in (1.0, bad):
            next(batches)
            wait(training)
            training.step(loss)
        with pytest.raises(DivergedError, match=r"the loss of step 2 is (nan|inf)\. .*on_nonfinite=\"ignore\""):
            next(batches)
        break
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("choice", ["ignore", "stop"])
def test_parameters_that_are_not_finite_are_never_saved(
    choice: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(1, 1)
    training = Training(model=model, loader=range(2), directory=tmp_path, on_nonfinite=choice)
    epochs = training.epochs(2)
    for _ in range(2):
        next(epochs)
    model.weight.data.fill_(float("nan"))
    training.step(float("nan") if choice == "ignore" else 1.0)
    if choice == "ignore":
        assert list(epochs) == []
        assert "no checkpoint is saved: training has diverged: these parameters" in capsys.readouterr().err
    else:
        with pytest.raises(DivergedError, match="these parameters of model are not finite numbers: weight"):
            list(epochs)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_save_that_fails_is_told_and_the_next_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, failures = CheckpointDirectory.write, [StorageError("the disk has a problem")]

    def fail_once(*arguments: Any) -> Path:
        if failures:
            raise failures.pop()
        return write(*arguments)

    monkeypatch.setattr(CheckpointDirectory, "write", fail_once)
    script = Script(tmp_path, settings={"every_steps": 2})
    for _ in script.training.epochs(1):
        for _ in script.training.batches():
            if script.training._saver._writer and (writing := script.training._saver._writer._writing):
                writing.exception()
            script.training.step()
    said = capsys.readouterr()
    assert (
        said.err == "warning: the disk has a problem. Training goes on, and tries again when the next save is due\n"
    )
    assert saves(said.out) == [(4, 1)]


class Noting(StepLR):
    """A schedule of a user, which notes objects."""

    noted: object = None


def test_a_state_that_cannot_be_read_back_is_refused_at_the_start_by_name_and_type(tmp_path: Path) -> None:
    schedule = Noting(SGD([torch.zeros(1)]), 1)
    schedule.noted = {"lock": KilledError()}
    place = re.escape("the state of plan cannot be saved: ['noted']['lock'] is of type ") + ".*KilledError"
    with pytest.raises(ConfigError, match=place):
        Training(plan=schedule, directory=tmp_path)


class Odd:
    """A loader whose position is an object."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))

    def state_dict(self) -> dict[str, Any]:
        return {"at": KilledError()}

    def load_state_dict(self, _state: dict[str, Any]) -> None:
        pass


def test_a_loader_whose_position_cannot_be_saved_is_refused_at_the_first_batch(tmp_path: Path) -> None:
    training = Training(model=nn.Linear(1, 1), loader=Odd(), directory=tmp_path)
    with pytest.raises(ConfigError, match=r"state_dict\(\) of Odd cannot be saved"):
        next(training.batches())
    training = Training(model=nn.Linear(1, 1), loader=Odd())
    assert list(training.batches()) == [0, 1]


def test_a_state_that_becomes_unsavable_fails_each_save_aloud_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = Noting(SGD([torch.zeros(1)]), 1)
    training = Training(plan=schedule, loader=range(2), directory=tmp_path, every_steps=1)
    for _ in training.epochs(1):
        for number in training.batches():
            wait(training)
            training.step()
            schedule.noted = None if number else KilledError()
    said = capsys.readouterr()
    assert "step 1 is not saved: ['plan']['noted'] is of type" in said.err
    assert (2, 1) in saves(said.out)


class Aging(Odd):
    """A loader whose position is plain at first."""

    seen = 0

    def __iter__(self) -> Iterator[int]:
        for self.seen in range(6):
            yield self.seen

    def state_dict(self) -> dict[str, Any]:
        return {"at": KilledError() if self.seen in {2, 3} else self.seen}


def test_a_position_that_cannot_be_saved_later_fails_these_saves_aloud_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Training(model=nn.Linear(1, 1), loader=Aging(), directory=tmp_path, every_steps=1, keep=9)
    for _ in training.epochs(1):
        for _ in training.batches():
            wait(training)
            training.step()
    said = capsys.readouterr()
    assert [step for step, _ in saves(said.out)] == [1, 2, 5, 6, 6]
    assert re.findall(r"warning: step (\d) is not saved: state_dict\(\) of Aging cannot", said.err) == ["3", "4"]


def test_what_the_checkpoint_or_the_program_has_more_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list(Script(tmp_path).train(1))
    capsys.readouterr()
    training = Training(model=nn.Linear(2, 1), ema=AveragedModel(nn.Linear(2, 1)), directory=tmp_path)
    assert training.resumed is not None
    assert capsys.readouterr().err == "".join(f"warning: resumed: {change}\n" for change in training.resumed.changes)
    (change,) = training.resumed.changes
    assert change.startswith("the checkpoint has no state of ema, not restored, but of ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"every_step": 5}, "every_step is an int, which has no state_dict() and load_state_dict(); did you mean"),
        ({"loder": [1]}, "; did you mean loader?"),
        ({"net": 1.5}, "net is a float, which has no state_dict() and load_state_dict(), so its state cannot be"),
    ],
)
def test_a_misspelled_argument_is_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        Training(model=nn.Linear(1, 1), **arguments)


@pytest.mark.parametrize("savable", [True, False])
def test_a_stop_says_whether_its_step_is_saved(
    savable: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = Noting(SGD([torch.zeros(1)]), 1)
    training = Training(plan=schedule, loader=range(4), directory=tmp_path, every_steps=1)
    epochs, batches = training.epochs(1), training.batches()
    next(epochs)
    for _ in range(2):
        next(batches)
        wait(training)
        training.step()
    schedule.noted = None if savable else KilledError()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        next(batches)
    how = "saved" if savable else "not saved"
    assert f"stopped on request after step 2, which is {how} in {tmp_path}\n" in capsys.readouterr().out


def test_after_the_last_epoch_sigterm_ends_the_process_as_before(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    script = Script(tmp_path)
    assert signal.getsignal(signal.SIGTERM) != before
    list(script.train(1))
    assert signal.getsignal(signal.SIGTERM) == before
    stop_at(script, BATCHES + 1)
    assert signal.getsignal(signal.SIGTERM) == before, "further epochs are saved again, and this loop has ended"


@pytest.mark.parametrize("ended_by", ["break", "no epoch left"])
def test_after_a_loop_that_ends_early_sigterm_ends_the_process_as_before(ended_by: str, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    script = Script(tmp_path)
    if ended_by == "break":
        for _ in script.training.epochs(2):
            assert signal.getsignal(signal.SIGTERM) != before
            break
    else:
        list(script.train(1))
        assert list(Script(tmp_path).train(1)) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_loop_that_is_forgotten_late_takes_no_signal_from_the_next_one(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    script = Script(tmp_path)
    former = script.training.epochs(2)
    next(former)
    later = script.training.epochs(2)
    next(later)
    former.close()  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGTERM) != before
    again = Script(tmp_path)
    later.close()  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGTERM) != before
    assert again.training.epoch == 0


def test_a_stop_in_a_job_without_a_directory_ends_after_the_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDPJOB_NAME", "a-job")
    monkeypatch.delenv("DDPJOB_CHECKPOINT_DIR", raising=False)
    script = Script(None)
    steps = script.train()
    next(steps)
    signal.raise_signal(signal.SIGTERM)
    assert not ddpjob.stop_requested()
    with pytest.raises(SystemExit) as stopped:
        next(steps)
    assert stopped.value.code == 205
    assert script.training.global_step == 1
    assert ddpjob.stop_requested()
    assert "stopped on request after step 1; nothing is saved\n" in capsys.readouterr().out


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    yield Accelerator(cpu=True, gradient_accumulation_steps=2)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def accelerate(accelerator: Accelerator) -> tuple[nn.Module, Any]:
    """A script with Accelerate, up to its loop."""
    model = nn.Linear(1, 1)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    loader = DataLoader(torch.rand(8, 1), batch_size=1)  # type: ignore[arg-type]
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    accelerator.register_for_checkpointing(AveragedModel(model))
    return model, loader


def test_an_accelerator_stands_for_all_that_it_has_prepared_and_registered(
    tmp_path: Path, accelerator: Accelerator
) -> None:
    model, loader = accelerate(accelerator)
    (optimizer,), (scheduler,) = accelerator._optimizers, accelerator._schedulers
    training = Training(accelerator=accelerator, loader=loader, directory=tmp_path)
    for _ in training.epochs(1):
        for x in training.batches():
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            training.step(loss)
    assert training.global_step == 4, "calls between two steps are ignored"
    trained = {name: value.clone() for name, value in model.state_dict().items()}

    another = Accelerator(cpu=True, gradient_accumulation_steps=2)
    again, loader = accelerate(another)
    training = Training(accelerator=another, loader=loader, directory=tmp_path)
    assert training.resumed
    assert (training.resumed.step, training.resumed.changes) == (4, ())
    assert all(torch.equal(trained[name], value) for name, value in again.state_dict().items())
    assert another._schedulers[0].get_last_lr() == scheduler.get_last_lr() != [0.1]

    plain = nn.Linear(1, 1)
    training = Training(model=plain, directory=tmp_path)
    assert all(torch.equal(trained[name], value) for name, value in plain.state_dict().items())


def test_an_accelerator_that_cannot_be_saved_is_refused(accelerator: Accelerator, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no model yet: call accelerator.prepare\(…\) first"):
        Training(accelerator=accelerator, directory=tmp_path)
    accelerate(accelerator)
    with pytest.raises(ConfigError, match="several Accelerators have objects of the same names, such as model"):
        Training(generator=accelerator, discriminator=accelerator, directory=tmp_path)
    accelerator.state.distributed_type = DistributedType.DEEPSPEED
    with pytest.raises(
        ConfigError, match=r"DEEPSPEED divides the state in its own way: save with accelerator.save_st"
    ):
        Training(accelerator=accelerator, directory=tmp_path)


def test_a_step_that_is_due_while_another_is_written_is_made_up_for_and_that_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(tmp_path, settings={"every_steps": 1})
    training = script.training
    writer: Any = training._saver._writer
    with monkeypatch.context() as slow:
        slow.setattr(type(writer), "busy", True)
        for _ in training.epochs(1):
            for number, x in enumerate(training.batches(), 1):
                training.step(script.update(x))
                if number == BATCHES - 1:
                    slow.undo()
    output = capsys.readouterr()
    assert output.err.count("is not saved, because the previous save is still being written") == 1
    assert output.err.startswith("warning: step 1 is not saved")
    assert [int(step) for step, _ in SAVED.findall(output.out)][-1] == BATCHES
