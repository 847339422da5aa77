"""How Hugging Face's Trainer resumes and stops in a job, called as the Trainer calls it. It is not imported here."""

import importlib
import json
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.world import World

from tests.unit.trainer.test_trainer_directory import checkpoint

UID = "ours"


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our module, beside a library that is no more than the class that ours extends."""
    base: Any = ModuleType("transformers.trainer_callback")
    base.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    monkeypatch.setenv("DDPJOB_UID", UID)
    module = importlib.import_module("ddpjob.integrations.transformers")
    monkeypatch.delitem(sys.modules, module.__name__)
    for name in ("_noticed", "_delegated", "_tell", "_asked"):
        monkeypatch.setattr(request, name, getattr(request, name))
    return module


class Store(dict[str, str]):
    """The store of a process group."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def wait(self, keys: list[str], _timeout: object) -> None:
        assert set(keys) <= self.keys()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key].encode()


class Trainer:
    """One that makes a number of steps."""

    def __init__(self, directory: Path, steps: int = 10) -> None:
        self.args = SimpleNamespace(output_dir=str(directory))
        self.state = SimpleNamespace(global_step=steps, max_steps=10)
        self.resumed: Any = "not trained"
        self.callbacks: list[Any] = []

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, **_: Any) -> str:
        self.resumed = resume_from_checkpoint
        for callback in self.callbacks:
            callback.on_train_begin(None, None, control())
        return f"trained {trial}"


@pytest.fixture
def library(ours: Any) -> Any:
    """The module transformers.trainer, with what we have added to it."""
    added: Any = ModuleType("transformers.trainer")
    added.DEFAULT_CALLBACKS, added.Trainer = [], type("Trainer", (Trainer,), {})
    ours.install(added)
    return added


@pytest.mark.parametrize("uid", [UID, "theirs", None])
@pytest.mark.parametrize("named", [None, False, True])
def test_the_newest_whole_checkpoint_is_resumed_from_if_it_is_this_jobs_or_the_program_asks_for_one(
    library: Any, tmp_path: Path, uid: str | None, named: Any
) -> None:
    whole = checkpoint(tmp_path, 10, uid)
    (checkpoint(tmp_path, 20, uid) / "trainer_state.json").unlink()
    trainer = library.Trainer(tmp_path)
    assert trainer.train(named) == "trained None"
    resumed = bool(named) or uid == UID
    assert trainer.resumed == (str(whole) if resumed else None)
    assert (tmp_path / "broken-checkpoint-20").exists() is resumed, "other people's files stay"


def test_a_checkpoint_that_the_program_names_stays_if_it_is_whole_or_elsewhere(
    ours: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "out"
    older, newer, torn = (checkpoint(directory, step) for step in (10, 20, 30))
    (torn / "optimizer.pt").write_bytes(b"PK")
    monkeypatch.chdir(tmp_path)
    assert ours._chosen(directory, "out/checkpoint-10") == "out/checkpoint-10"
    assert ours._chosen(directory, older) == str(older)
    assert ours._chosen(directory, "elsewhere/checkpoint-30") == "elsewhere/checkpoint-30"
    assert ours._chosen(directory, str(torn)) == str(newer)


def test_a_second_training_in_one_directory_begins_anew(library: Any, tmp_path: Path) -> None:
    checkpoint(tmp_path, 10, UID)
    first, second = library.Trainer(tmp_path), library.Trainer(tmp_path)
    first.train()
    second.train(trial="a")
    assert (first.resumed, second.resumed) == (str(tmp_path / "checkpoint-10"), None)


@pytest.mark.parametrize("there", [True, False])
def test_rank_0_chooses_for_all_ranks(
    ours: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    store, chosen = Store(), checkpoint(tmp_path, 10)
    monkeypatch.setattr(ours.dist.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(ours, "world_of_group", lambda _: World(0, 0, 2, 2))
    assert ours._agreed_checkpoint(tmp_path, named=True) == str(chosen)
    checkpoint(tmp_path, 20)
    if not there:
        chosen.rename(tmp_path / "gone")
    monkeypatch.setattr(ours, "world_of_group", lambda _: World(1, 1, 2, 2))
    if there:
        assert ours._agreed_checkpoint(tmp_path, named=True) == str(chosen), "another one came meanwhile"
    else:
        with pytest.raises(ConfigError, match=r"rank 1 does not see .*checkpoint-10, but rank 0 resumes from it"):
            ours._agreed_checkpoint(tmp_path, named=True)


class Agreement:
    """One that says what all ranks do."""

    def __init__(self) -> None:
        self.wished = Wish.NOTHING

    def wish(self, wish: Wish) -> None:
        self.wished = wish

    def reached(self, _position: int) -> Wish:
        return self.wished


@pytest.fixture
def agreement(ours: Any, monkeypatch: pytest.MonkeyPatch) -> Agreement:
    made = Agreement()
    monkeypatch.setattr(ours, "agreement_of_group", lambda *_: made)
    return made


def control() -> Any:
    return SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)


@pytest.mark.usefixtures("ours")
def test_a_stop_saves_once_and_ends_the_program(library: Any, agreement: Agreement, tmp_path: Path) -> None:
    (callback,) = (made() for made in library.DEFAULT_CALLBACKS)
    callback.on_train_begin(None, None, control())
    state, flags = SimpleNamespace(global_step=3), control()
    callback.on_step_end(None, state, flags)
    assert vars(flags) == vars(control())
    agreement.wish(Wish.SAVE)
    callback.on_step_end(None, state, flags)
    assert (flags.should_save, flags.should_training_stop) == (True, False)

    assert request._tell is not None
    request._tell()  # As the signal's handler does.
    flags = control()
    callback.on_step_end(None, state, flags)
    assert (flags.should_save, flags.should_training_stop) == (True, True)
    flags.should_save = flags.should_evaluate = True  # As the Trainer wants at the end of an epoch.
    callback.on_epoch_end(None, state, flags)
    assert (flags.should_save, flags.should_evaluate) == (False, False)
    with pytest.raises(SystemExit) as end:
        library.Trainer(tmp_path, steps=3).train()
    assert end.value.code == ExitCode.SAVED_AND_STOPPED


def test_a_training_that_has_finished_is_not_said_to_have_stopped(library: Any, tmp_path: Path) -> None:
    request.notice_stop()
    assert library.Trainer(tmp_path, steps=10).train() == "trained None"


@pytest.mark.usefixtures("agreement")
@pytest.mark.parametrize("fails", [False, True])
def test_after_the_training_a_signal_does_what_it_did_before(
    ours: Any, library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    monkeypatch.setenv("DDPJOB_NAME", "job")
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(tmp_path / "heartbeat"))
    before, during = signal.getsignal(signal.SIGTERM), []
    watching = SimpleNamespace(on_train_begin=lambda *_: during.append(signal.getsignal(signal.SIGTERM)))
    trainer = library.Trainer(tmp_path)
    trainer.callbacks = [ours.StopCallback(), watching, *([None] if fails else [])]
    with pytest.raises(AttributeError) if fails else nullcontext():
        trainer.train()
    assert signal.getsignal(signal.SIGTERM) == before != during[0]
    assert not request._delegated
    assert not list(tmp_path.glob("heartbeat.save")), "requests for a checkpoint are refused as well"


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_marks_a_checkpoint_as_one_of_this_job(ours: Any, tmp_path: Path, rank: int) -> None:
    saved = checkpoint(tmp_path, 10)
    args = SimpleNamespace(process_index=rank, output_dir=str(tmp_path))
    for step in (10, 11):
        ours.StopCallback().on_save(args, SimpleNamespace(global_step=step), control())
    assert (saved / "ddpjob.json").exists() is (rank == 0)
    assert rank or json.loads((saved / "ddpjob.json").read_text()) == {"uid": UID}


def test_the_trainers_own_signal_handler_is_left_out(
    ours: Any, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    just_in_time: Any = ModuleType(ours.JUST_IN_TIME)
    just_in_time.CheckpointManager = type("CheckpointManager", (), {"setup_signal_handler": lambda _: 1 / 0})
    monkeypatch.setitem(sys.modules, ours.JUST_IN_TIME, just_in_time)
    ours.install(library)
    just_in_time.CheckpointManager().setup_signal_handler()
