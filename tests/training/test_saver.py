"""When a checkpoint is due, and what is waited for."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pytest
from ddpjob.checkpoint import writer
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.object_store import ObjectStore
from ddpjob.checkpoint.writer import Snapshots
from ddpjob_rank.errors import CheckpointMissedError, ConfigError, SupersededError
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.world import World
from ddpjob_trainer.checkpoint import saving
from ddpjob_trainer.checkpoint.saving import Saver
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


@dataclass
class Clock:
    """Time stands still unless it is told to pass."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (saving, writer):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    return a_saver(CheckpointConfig(directory=tmp_path))


def a_saver(
    settings: CheckpointConfig, position: Position | None = None, data: DataIdentity = UNKNOWN, batch: int = 8
) -> Saver:
    saver = Saver(TrainConfig(), settings, World(), batch, Recorder(None, 0), data=data)
    saver.resume(position or Position())
    return saver


def silent(_: str) -> None:
    """Nobody is told what a rank does."""


def a_learner() -> Learner:
    model = nn.Linear(1, 1)
    return Learner(model, model, SGD(model.parameters()), None)


@pytest.fixture
def may_write(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, the disk keeps everybody waiting."""
    event, write = threading.Event(), CheckpointDirectory.write

    def wait_and_write(*arguments: Any) -> Path:
        event.wait()
        return write(*arguments)

    monkeypatch.setattr(CheckpointDirectory, "write", wait_and_write)
    yield event
    event.set()


def test_training_goes_on_while_a_save_is_written_and_it_is_told_when_it_is_durable(
    saver: Saver, may_write: threading.Event, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saver.save(a_learner(), Position(step=7), silent)
    saver.settle()
    assert capsys.readouterr().out == ""
    may_write.set()
    saver.finish()
    assert capsys.readouterr().out == f"saved step=7 epoch=1 checkpoint={tmp_path}/step-00000007\n"
    assert (tmp_path / "step-00000007" / "manifest.json").exists()
    saver.settle()
    saver.finish()
    assert capsys.readouterr().out == "", "it is told once"


def test_the_next_save_waits_for_the_one_before(
    saver: Saver, may_write: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    saver.save(a_learner(), Position(step=7), silent)
    second = threading.Thread(target=saver.save, args=(a_learner(), Position(step=8), silent))
    second.start()
    assert capsys.readouterr().out == ""
    may_write.set()
    second.join()
    assert "saved step=7 " in capsys.readouterr().out
    saver.finish()
    assert "saved step=8 " in capsys.readouterr().out


def test_of_two_runs_that_began_before_either_had_saved_the_earlier_one_gives_way(tmp_path: Path) -> None:
    earlier, later = (a_saver(CheckpointConfig(directory=tmp_path)) for _ in range(2))
    for saver, step in ((earlier, 5), (later, 3)):
        saver.save(a_learner(), Position(step=step), silent)
        saver.finish()
    earlier.save(a_learner(), Position(step=6), silent)
    with pytest.raises(SupersededError, match=f"a later run has taken over {tmp_path}: .* Step 6 is not saved"):
        earlier.finish()
    position = Position()
    assert a_saver(CheckpointConfig(directory=tmp_path), position)
    assert position.step == 3, "what the one saved that gave way is nobody's"


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
    before = a_saver(CheckpointConfig(directory=tmp_path), data=then, batch=batch)
    before.save(a_learner(), Position(step=7, epoch=3, samples=samples), silent)
    before.finish()
    manifest = tmp_path / "step-00000007/manifest.json"
    if then.seed is None:
        fields = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({name: fields[name] for name in fields if name not in NEW}))
    capsys.readouterr()
    if "other data" in told:
        with pytest.raises(ConfigError, match=rf"{told.partition('. In')[0]}\. Go on with .*--allow-other-data"):
            a_saver(CheckpointConfig(directory=tmp_path), data=NOW)
        assert capsys.readouterr().err == ""
    resumed = Position()
    a_saver(CheckpointConfig(directory=tmp_path, allow_other_data=True), resumed, data=NOW)
    said = capsys.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if not line.startswith("resumed ")]
    assert [line.removesuffix(told) == line for line in lines] == [False] * bool(told), lines
    assert (resumed.epoch, resumed.samples) == (3, samples)


def test_a_copys_memory_is_used_again(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[StateDict] = []
    take = Snapshots.take

    def take_and_keep(snapshots: Snapshots, state: StateDict) -> StateDict:
        copies.append(take(snapshots, state))
        return copies[-1]

    monkeypatch.setattr(Snapshots, "take", take_and_keep)
    learner = a_learner()
    for step in (1, 2):
        saver.save(learner, Position(step=step), silent)
        saver.finish()
    first, second = (copy["model"]["weight"].data_ptr() for copy in copies)
    assert first == second != learner.model.get_parameter("weight").data_ptr()


def test_what_copies_leaves_the_level_of_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.checkpoint._state_dict_stager", raising=False)
    before = logging.getLogger().level
    writer.stager()
    assert logging.getLogger().level == before


def test_left_to_itself_a_run_saves_soon_and_then_as_often_as_its_saves_and_failures_cost(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(_: Snapshots, state: StateDict) -> StateDict:
        clock.now += 2
        return state

    monkeypatch.setattr(Snapshots, "take", take)
    settings = CheckpointConfig(directory=tmp_path, every_seconds="auto", mean_time_to_failure=3600)
    saver, learner = a_saver(settings), a_learner()
    for interval in (10, 120, 120):  # 120 is the root of 2 * 3600 s * 2 s.
        clock.now += interval - 0.1
        assert saver.wish() is Wish.NOTHING
        clock.now += 0.2
        assert saver.wish() is Wish.SAVE
        saver.save(learner, Position(step=int(clock.now)), silent)
        saver.finish()


def test_a_requested_save_is_wished_for_until_a_save_begins(tmp_path: Path) -> None:
    saver, position, learner = a_saver(CheckpointConfig(directory=tmp_path)), Position(), a_learner()
    assert saver.wish() is Wish.NOTHING
    saver.request()
    assert saver.wish() is saver.wish() is Wish.SAVE
    saver.save(learner, position, silent)
    assert saver.wish() is Wish.NOTHING
    saver.request()
    assert saver.wish() is Wish.SAVE, "the next request is another"
    saver.finish()


@pytest.fixture
def in_store(monkeypatch: pytest.MonkeyPatch) -> Saver:
    """It saves to an object store."""
    store = MemoryStore()
    monkeypatch.setattr(saving, "open_storage", lambda address, keep: ObjectStore(address, keep, store))
    return a_saver(CheckpointConfig(directory="memory://digits"))


def away(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refuse(*_: object, **__: object) -> None:
        raise GenericError("Server returned non-2xx status code: 503")

    monkeypatch.setattr(obstore, "put", refuse)
    return monkeypatch


def test_a_store_that_is_away_costs_a_checkpoint_and_training_goes_on(
    in_store: Saver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        away(patch)
        in_store.save(a_learner(), Position(step=7), silent)
        wait_for("its end", lambda: not in_store._writer.busy)  # type: ignore[union-attr]
        in_store.settle()
    missed = capsys.readouterr()
    assert missed.out == ""
    assert "warning: checkpoint memory://digits/step-00000007-" in missed.err
    assert "the server answers 503. The checkpoints before it are intact; training goes on, and tries" in missed.err
    in_store.save(a_learner(), Position(step=8), silent)
    in_store.finish()
    assert "saved step=8 epoch=1 checkpoint=memory://digits/step-00000008-" in capsys.readouterr().out


@pytest.mark.parametrize("noticed", [True, False], ids=["it was noticed before", "it is noticed only then"])
def test_a_run_does_not_end_as_saved_if_the_store_did_not_take_the_last_checkpoint(
    in_store: Saver, monkeypatch: pytest.MonkeyPatch, *, noticed: bool
) -> None:
    away(monkeypatch)
    in_store.save(a_learner(), Position(step=7), silent)
    if noticed:
        wait_for("its end", lambda: not in_store._writer.busy)  # type: ignore[union-attr]
        in_store.settle()
    with pytest.raises(CheckpointMissedError, match="the server answers 503"):
        in_store.finish()


def test_what_cannot_be_read_back_is_refused_before_it_is_sent_to_a_store(
    in_store: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = saving.state.shared
    monkeypatch.setattr(saving.state, "shared", lambda learner: {**shared(learner), "another": Clock()})
    monkeypatch.setattr(obstore, "put", pytest.fail)
    in_store.save(a_learner(), Position(step=7), silent)
    with pytest.raises(ConfigError, match="the state of the model, the optimizer or the scheduler cannot be saved"):
        in_store.finish()
