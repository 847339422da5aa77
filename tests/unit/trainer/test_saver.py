"""How a run saves: the library's saver with the data and the store of a run."""

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import obstore
import pytest
import torch
from ddpjob import random_state
from ddpjob.checkpoint import writer
from ddpjob.checkpoint.object_store import ObjectStore
from ddpjob.checkpoint.writer import Snapshots
from ddpjob.training import save_schedule
from ddpjob.training import saver as training_saver
from ddpjob.training.save_settings import SaveSettings
from ddpjob.training.saver import Saved, TrainingSaver, Where
from ddpjob_rank.errors import (
    CheckpointMissedError,
    ConfigError,
    DivergedError,
    StorageError,
    StorageUnavailableError,
    SupersededError,
)
from ddpjob_rank.manifests.unusable import BrokenError
from ddpjob_rank.reporting.agreement import Agreement
from ddpjob_rank.world import World
from ddpjob_trainer.checkpoint import saving, state
from ddpjob_trainer.checkpoint.state import StateDict
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.data.data_identity import UNKNOWN, DataIdentity
from ddpjob_trainer.model.learner import Learner
from ddpjob_trainer.options import CheckpointConfig
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.recorder import Recorder
from obstore.exceptions import GenericError
from obstore.store import MemoryStore
from torch import nn
from torch.optim import SGD

from tests.support.waiting import wait_for

NEW = ("seed", "dataLength", "dataFingerprint")
"""Fields that manifests of older versions do not have."""


@pytest.mark.parametrize(("rank", "says"), [(0, True), (1, False)])
def test_where_the_number_of_ranks_has_changed_each_draws_anew_and_the_first_says_so(
    capsys: pytest.CaptureFixture[str], rank: int, *, says: bool
) -> None:
    saver: Any = SimpleNamespace(world=World(rank=rank, world_size=3), own_state=lambda _: None)
    TrainingSaver.restore_random(saver, Saved({"position": [7], "ranks": [{}, {}]}, ""), seed=5)
    drawn = torch.rand(1)
    random_state.seed_all(5, rank, 7)
    assert drawn == torch.rand(1)
    assert capsys.readouterr().out == (
        "the number of processes changed from 2 to 3: random generators are seeded anew\n" if says else ""
    )


def opened(directory: str | None, world: World, *divided: str, **how: Any) -> TrainingSaver:
    agreement = Agreement(None, "", hosts=[], rank=0, size=1, warn=pytest.fail)
    settings = SaveSettings(uid="u", attempt=1, directory=directory, **how)
    return TrainingSaver(settings, world, agreement, None, check_finite=lambda _: None, divided=divided)


def test_state_that_is_divided_needs_a_directory_that_all_share() -> None:
    with pytest.raises(ConfigError, match=r"^s3://jobs/x: the state of model, ema is divided .* needs a directory"):
        opened("s3://jobs/x", World(rank=1, world_size=2), "model", "ema")


def test_state_that_was_divided_is_not_fitted_into_one_that_is_not() -> None:
    saved = Saved({"position": [7], "ranks": [], "tensors": {}, "shared": {}}, "")
    with pytest.raises(ConfigError, match="is divided among ranks, but the state of this training is not"):
        opened(None, World(rank=1, world_size=2)).shared_state(saved, {})


@pytest.mark.parametrize("start_over", [True, False])
def test_who_finds_nothing_says_so_and_whether_steps_are_counted_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, start_over: bool
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(training_saver.reporting, "report", lambda **what: told.append(what))
    monkeypatch.setattr(training_saver.reporting, "starts_over", lambda: told.append("anew"))
    assert opened(str(tmp_path), World(), start_over=start_over).find() is None
    assert told == [{"resumed": 0}, *(["anew"] if start_over else [])]


def test_a_file_that_vanishes_while_it_is_sent_to_the_others_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_saver, "broadcast_file", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(StorageUnavailableError, match="cannot be read: Input/output error"):
        opened(str(tmp_path), World()).find()


def test_weights_that_are_no_numbers_make_a_checkpoint_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_saver, "decode", lambda _: {"shared": {}})
    saver = opened(str(tmp_path), World())
    saver._check_finite = Mock(side_effect=DivergedError("bias is not finite"))
    with pytest.raises(BrokenError, match="bias is not finite"):
        saver._decode(tmp_path)
    saver._check_finite = Mock()
    assert saver._decode(tmp_path) == {"shared": {}}


def test_what_fails_at_the_end_only_warns_and_all_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saver, closed = opened(str(tmp_path), World()), Mock()
    monkeypatch.setattr(saver, "finish", Mock(side_effect=StorageError("the disk is full")))
    monkeypatch.setattr(saver._agreement, "close", closed)
    monkeypatch.setattr(training_saver.request, "stops_no_more", closed)
    saver.finish_after(KeyboardInterrupt())
    assert capsys.readouterr().err == "warning: the disk is full (the run ends by KeyboardInterrupt)\n"
    saver.close()
    assert capsys.readouterr().err == "warning: the disk is full\n"
    assert closed.call_count == 2
    with pytest.raises(ConfigError, match="was replaced by a later one"):
        saver.check_open()


class Run:
    """A run in a world of one, which saves wherever it is told to."""

    def __init__(self, checkpoint: CheckpointConfig, data: DataIdentity = UNKNOWN, batch: int = 8) -> None:
        model = nn.Linear(1, 1)
        self.learner = Learner(model, model, SGD(model.parameters()), None)
        agreement = Agreement(None, "", hosts=[], rank=0, size=1, warn=pytest.fail)
        self.saver: TrainingSaver = saving.open_saver(
            TrainConfig(checkpoint=checkpoint),
            World(),
            agreement,
            global_batch=batch,
            position=Position(),
            recorder=Recorder(None, 0),
            data=data,
        )
        self.found = self.saver.find()

    def reach(self, step: int, epoch: int = 1, samples: int = 0) -> bool:
        """Reaches a step; returns whether it is saved."""
        where, learner = Where(step, epoch, samples), self.learner
        self.saver.reached(step, where, lambda: state.shared(learner), lambda: state.of_rank(learner))
        return self.saver.saved_position == step

    def save(self, step: int, epoch: int = 1, samples: int = 0) -> None:
        """Saves a step, and waits until it is durable."""
        self.reach(step, epoch, samples)
        self.saver.finish()

    def end(self, step: int) -> None:
        learner = self.learner
        self.saver.finish_last(Where(step, 1), lambda: state.shared(learner), lambda: state.of_rank(learner))


def at(directory: Path, **more: object) -> CheckpointConfig:
    return CheckpointConfig(directory=directory, every_steps=1, **more)  # type: ignore[arg-type]


def test_of_two_runs_that_began_before_either_had_saved_the_earlier_one_gives_way(tmp_path: Path) -> None:
    earlier, later = (Run(at(tmp_path)) for _ in range(2))
    earlier.save(5)
    later.save(3)
    with pytest.raises(SupersededError, match=f"a later run has taken over {tmp_path}: .* Step 6 is not saved"):
        earlier.save(6)
    found = Run(at(tmp_path)).found
    assert found
    assert found.step == 3, "what the one saved that gave way is nobody's"


NOW = DataIdentity(0, 100, ("uint8[100]", "7"))
TWICE = "In the rest of epoch 3 some samples are seen twice, and others never"


@pytest.mark.parametrize(
    ("then", "position", "told"),
    [
        (NOW, (40, 8), ""),
        (NOW, (40, 4), "a step now takes 8 samples across all processes, not 4 as before"),
        (UNKNOWN, (0, 8), ""),
        (UNKNOWN, (96, 8), ""),
        (UNKNOWN, (40, 8), f"is from an older version, which ordered an epoch differently. {TWICE}"),
        (DataIdentity(1), (40, 8), f"was saved with other data: --seed was 1, is 0. {TWICE}"),
        (
            DataIdentity(0, 100, ("uint8[100]", "3")),
            (96, 8),
            "was saved with other data: the data set's fingerprint had 3, has 7 in its place",
        ),
        (DataIdentity(0, 500), (96, 8), "was saved with other data: the data set had 500 samples, has 100"),
        (DataIdentity(0, 500), (400, 8), "was saved with other data: the data set had 500 samples, has 100"),
    ],
    ids=[
        "the same",
        "batch",
        "begun, of old",
        "at an end, of old",
        "within, of old",
        "seed",
        "fingerprint",
        "at its end",
        "shorter",
    ],
)
def test_what_was_another_is_told_and_other_data_is_refused_unless_it_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], then: DataIdentity, position: tuple[int, int], told: str
) -> None:
    samples, batch = position
    Run(at(tmp_path), then, batch).save(7, 3, samples)
    manifest = tmp_path / "step-00000007/manifest.json"
    if then.seed is None:
        fields = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({name: fields[name] for name in fields if name not in NEW}))
    capsys.readouterr()
    if "other data" in told:
        with pytest.raises(ConfigError, match=rf"{told.partition('. In')[0]}\. Go on with .*--allow-other-data"):
            Run(at(tmp_path), NOW)
        assert capsys.readouterr().err == ""
    found = Run(at(tmp_path, allow_other_data=True), NOW).found
    said = capsys.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if not line.startswith("resumed ")]
    assert [line.removesuffix(told) == line for line in lines] == [False] * bool(told), lines
    assert found
    assert found.state["position"] == (7, 3, samples)


def test_a_copys_memory_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[StateDict] = []
    take = Snapshots.take

    def take_and_keep(snapshots: Snapshots, state: StateDict) -> StateDict:
        copies.append(take(snapshots, state))
        return copies[-1]

    monkeypatch.setattr(Snapshots, "take", take_and_keep)
    run = Run(at(tmp_path))
    for step in (1, 2):
        run.save(step)
    first, second = (copy["model"]["weight"].data_ptr() for copy in copies)
    assert first == second != run.learner.model.get_parameter("weight").data_ptr()


def test_what_copies_leaves_the_level_of_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.checkpoint._state_dict_stager", raising=False)
    before = logging.getLogger().level
    writer.stager()
    assert logging.getLogger().level == before


def test_a_copy_is_taken_once_all_gpus_that_hold_the_state_have_copied_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    awaited: list[torch.device] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", awaited.append)
    monkeypatch.setattr(writer, "STAGER", Mock())
    gpus = [torch.device("cuda", index) for index in (0, 1)]
    state = {
        "model": {gpu.index: Mock(torch.Tensor, device=gpu, is_cuda=True) for gpu in gpus},
        "step": torch.tensor(0.0),
    }
    Snapshots().take(state)
    assert sorted(awaited, key=str) == gpus


class Clock:
    """Time stands still unless it is told to pass."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_left_to_itself_a_run_saves_soon_and_then_as_often_as_its_saves_and_failures_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (training_saver, save_schedule, writer):
        monkeypatch.setattr(module, "time", clock)

    def take(_: Snapshots, state: StateDict) -> StateDict:
        clock.now += 2
        return state

    monkeypatch.setattr(Snapshots, "take", take)
    run = Run(CheckpointConfig(directory=tmp_path, every_seconds="auto", mean_time_to_failure=3600))
    for number, interval in enumerate((10, 120, 120)):  # 120 is the root of 2 * 3600 s * 2 s.
        clock.now += interval - 0.1
        assert not run.reach(2 * number + 1)
        clock.now += 0.2
        assert run.reach(2 * number + 2)
        run.saver.finish()


@pytest.fixture
def in_store(monkeypatch: pytest.MonkeyPatch) -> Run:
    """It saves to an object store."""
    store = MemoryStore()
    monkeypatch.setattr(training_saver, "open_storage", lambda address, keep: ObjectStore(address, keep, store))
    return Run(CheckpointConfig(directory="memory://digits", every_steps=1))


def away(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refuse(*_: object, **__: object) -> None:
        raise GenericError("Server returned non-2xx status code: 503")

    monkeypatch.setattr(obstore, "put", refuse)
    return monkeypatch


def wait_for_the_writer(run: Run) -> None:
    wait_for("its end", lambda: not run.saver._writer.busy)  # type: ignore[union-attr]


def test_a_store_that_is_away_costs_a_checkpoint_and_training_goes_on(
    in_store: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        away(patch)
        in_store.reach(7)
        wait_for_the_writer(in_store)
        in_store.saver.settle()
    missed = capsys.readouterr()
    assert missed.out == ""
    assert "warning: checkpoint memory://digits/step-00000007-" in missed.err
    assert "the server answers 503. The checkpoints before it are intact. Training goes on, and tries" in missed.err
    in_store.save(8)
    assert "saved step=8 epoch=1 checkpoint=memory://digits/step-00000008-" in capsys.readouterr().out


@pytest.mark.parametrize("noticed", [True, False], ids=["it was noticed before", "it is noticed only then"])
def test_a_run_does_not_end_as_saved_if_the_store_did_not_take_the_last_checkpoint(
    in_store: Run, monkeypatch: pytest.MonkeyPatch, *, noticed: bool
) -> None:
    away(monkeypatch)
    in_store.reach(7)
    if noticed:
        wait_for_the_writer(in_store)
        in_store.saver.settle()
    with pytest.raises(CheckpointMissedError, match="the server answers 503"):
        in_store.end(7)


def test_an_earlier_save_that_is_missed_does_not_keep_the_last_step_from_being_saved(
    in_store: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        away(patch)
        in_store.reach(7)
        wait_for_the_writer(in_store)
    in_store.end(8)
    assert "saved step=8 epoch=1 checkpoint=memory://digits/step-00000008-" in capsys.readouterr().out


def test_a_state_that_becomes_unsavable_ends_a_run_which_would_otherwise_end_as_saved(tmp_path: Path) -> None:
    run = Run(at(tmp_path))
    run.save(1)
    run.learner.optimizer.param_groups[0]["mode"] = Run
    with pytest.raises(ConfigError, match=r"the optimizer's state_dict\(\) cannot be saved: \['param_groups'\]"):
        run.reach(2)
