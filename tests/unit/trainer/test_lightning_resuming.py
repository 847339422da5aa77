"""How Lightning's Trainer resumes and stops in a job, called as the Trainer calls it. It is not imported here."""

import importlib
import json
import random
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from ddpjob.training import connecting
from ddpjob_rank.reporting import request
from torch import nn
from torch.utils.data import DataLoader

EPOCHS, BATCHES = 3, 4
CUT = [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 3)]


class CutError(Exception):
    """The process has died."""


LIBRARY: dict[str, dict[str, Any]] = {
    "callbacks": {"Callback": type("Callback", (), {})},
    "loops.fetchers": {"_PrefetchDataFetcher": type("_PrefetchDataFetcher", (), {})},
    "strategies": {name: type(name, (), {}) for name in ("DDPStrategy", "SingleDeviceStrategy", "FSDPStrategy")},
    "utilities.migration": {"migrate_checkpoint": lambda state: (state | {"migrated": True}, None)},
}
"""All that our module needs of it, below `lightning.pytorch`."""


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, no_training: None, tmp_path: Path) -> Iterator[Any]:  # noqa: ARG001
    """Our module, in a job that saves each step."""
    for name, things in LIBRARY.items():
        parts = ["lightning", "pytorch", *name.split(".")]
        for count in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(parts[count - 1]))
        vars(sys.modules[".".join(parts)]).update(things)
    name = "ddpjob.integrations.lightning_resuming"
    monkeypatch.delitem(sys.modules, name, raising=False)
    made = importlib.import_module(name)
    del sys.modules[name]
    read = made.read_settings
    monkeypatch.setattr(made, "read_settings", lambda *values, **named: replace(read(*values, **named), waits=True))
    variables = {"CHECKPOINT_DIR": str(tmp_path), "CHECKPOINT_EVERY_STEPS": "1", "UID": "ours", "ATTEMPT": "1"}
    for variable, value in variables.items():
        monkeypatch.setenv(f"DDPJOB_{variable}", value)
    before = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        yield made
    signal.signal(signal.SIGTERM, before)


class Fetcher(LIBRARY["loops.fetchers"]["_PrefetchDataFetcher"]):  # type: ignore[misc]
    """Fetches one batch ahead, which draws random numbers."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> "Fetcher":
        self.fetched, self._batches = 0, iter(self.loader)
        return self

    def __next__(self) -> Any:
        self.fetched += 1
        return next(self._batches)


class Trainer:
    """Trains as Lightning's does, as far as our module sees it."""

    def __init__(self, strategy: str = "SingleDeviceStrategy", accumulates: int = 1) -> None:
        torch.manual_seed(7)
        random.seed(7)
        self.model = nn.Linear(1, 1)
        self.strategy = LIBRARY["strategies"][strategy]()
        self.strategy.model = self.model
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)]
        self.global_step = self.current_epoch = 0
        self.is_last_batch = False
        self.accumulates = accumulates
        self.seen: list[tuple[int, list[float], float, float]] = []
        """What each step saw and became: the epoch, the batch, a random number and the weight."""
        counts = dict.fromkeys(("ready", "started", "processed", "completed"), 0)
        self.counts = counts
        data: Any = torch.arange(float(2 * BATCHES)).unsqueeze(1)
        self.loader = DataLoader(data, batch_size=2, shuffle=True)
        self.fit_loop = SimpleNamespace(
            done=False,
            restarting=False,
            on_advance_end=self._end_epoch,
            _combined_loader=SimpleNamespace(flattened=[self.loader]),
            epoch_loop=SimpleNamespace(
                on_run_start=self._begin_epoch,
                on_advance_end=lambda _more: None,
                batch_progress=SimpleNamespace(current=SimpleNamespace(completed=0)),
            ),
        )
        self._checkpoint_connector = SimpleNamespace(
            dump_checkpoint=self._dumped,
            resume_start=lambda _path: None,
            resume_end=lambda: None,
            _loaded_checkpoint=None,
            _ckpt_path=None,
        )

    def _dumped(self, *, weights_only: bool) -> dict[str, Any]:
        assert not weights_only
        return {
            "state_dict": self.model.state_dict(),
            "optimizer": self.optimizers[0].state_dict(),
            "at": [self.global_step, self.current_epoch],
            "loops": {"fit_loop": {"epoch_loop.batch_progress": {"current": dict(self.counts)}}},
            "hyper_parameters": {"anything": object},
        }

    def _begin_epoch(self, fetcher: Fetcher) -> None:
        if self.current_epoch and not self.fit_loop.restarting:
            iter(fetcher)
        fetcher.fetched += self.counts["ready"]

    def _end_epoch(self) -> None:
        self.current_epoch += 1
        self.fit_loop.done = self.current_epoch == EPOCHS

    def fit(self, callback: Any, cut: tuple[int, int] | None = None) -> None:
        """Trains, and dies before the batch that is named."""
        connector, loop = self._checkpoint_connector, self.fit_loop
        callback.setup(self, None, "fit")
        connector.resume_start(None)
        if loaded := connector._loaded_checkpoint:
            assert loaded["migrated"]
            self.model.load_state_dict(loaded["state_dict"])
            self.optimizers[0].load_state_dict(loaded["optimizer"])
            self.global_step, self.current_epoch = loaded["at"]
            self.counts.update(loaded["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"])
            loop.restarting = True
            if self.counts["completed"] == BATCHES:
                self.counts.update(dict.fromkeys(self.counts, 0))
        connector.resume_end()
        fetcher = Fetcher(self.loader)
        iter(fetcher)
        callback.on_train_start(self, None)
        while self.current_epoch < EPOCHS:
            loop.epoch_loop.on_run_start(fetcher)
            loop.restarting = False
            while fetcher.fetched < BATCHES:
                if cut == (self.current_epoch, self.counts["completed"]):
                    raise CutError
                self._step(next(fetcher))
                self.is_last_batch = fetcher.fetched == BATCHES
                loop.epoch_loop.on_advance_end(self.is_last_batch)
            loop.on_advance_end()
            self.counts.update(dict.fromkeys(self.counts, 0))

    def _step(self, batch: Any) -> None:
        drawn = random.random() + float(torch.rand(1))
        (self.model(batch) * drawn / self.accumulates).sum().backward()
        self.counts.update({name: count + 1 for name, count in self.counts.items()})
        if self.counts["completed"] % self.accumulates == 0:
            self.optimizers[0].step()
            self.optimizers[0].zero_grad()
            self.global_step += 1
        self.fit_loop.epoch_loop.batch_progress.current.completed = self.counts["completed"]
        self.seen.append((self.current_epoch, batch.flatten().tolist(), drawn, self.model.weight.item()))


def end_process(ours: Any) -> None:
    """What a process remembers of its training is gone."""
    if connecting._current:
        connecting._current.close()
        connecting._current = None
    ours.ResumeCallback._used = False
    random.seed()
    torch.seed()


def undisturbed(**how: Any) -> list[Any]:
    trainer = Trainer(**how)
    trainer.fit(SimpleNamespace(setup=lambda *_: None, on_train_start=lambda *_: None))
    return trainer.seen


@pytest.mark.parametrize("cut", CUT)
def test_a_training_that_is_killed_goes_on_with_the_batches_and_the_numbers_of_an_undisturbed_one(
    ours: Any, cut: tuple[int, int], tmp_path: Path
) -> None:
    killed = Trainer()
    with pytest.raises(CutError):
        killed.fit(ours.ResumeCallback(), cut)
    end_process(ours)
    steps = BATCHES * cut[0] + cut[1]
    found = [json.loads((place / "manifest.json").read_text()) for place in tmp_path.glob(f"step-{steps:08}*")]
    assert [(each["step"], each["epoch"]) for each in found] == ([(steps, -(-steps // BATCHES))] if steps else [])
    resumed = Trainer()
    resumed.fit(ours.ResumeCallback())
    assert killed.seen + resumed.seen == undisturbed()
    assert (resumed._checkpoint_connector._ckpt_path is None) is (cut == (0, 0))
    end_process(ours)
    done = Trainer()
    done.fit(ours.ResumeCallback())
    assert done.seen == [], "it has finished"


def test_another_jobs_checkpoint_is_not_resumed_from(
    ours: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CutError):
        Trainer().fit(ours.ResumeCallback(), (1, 1))
    end_process(ours)
    monkeypatch.setenv("DDPJOB_UID", "another")
    capfd.readouterr()
    trainer = Trainer()
    trainer.fit(ours.ResumeCallback())
    assert trainer.seen == undisturbed()
    assert (
        "fit starts from the beginning: the newest checkpoint is from another job, or not" in capfd.readouterr().out
    )


def test_a_stop_ends_the_process_after_a_step_that_is_saved(ours: Any, capfd: pytest.CaptureFixture[str]) -> None:
    stopped = Trainer()
    taken = stopped._step

    def step(batch: Any) -> None:
        taken(batch)
        if len(stopped.seen) == 6:
            signal.raise_signal(signal.SIGTERM)

    stopped._step = step  # type: ignore[method-assign]
    with pytest.raises(SystemExit, match="205"):
        stopped.fit(ours.ResumeCallback())
    assert request.stop_noticed()
    assert f"stopped on request after step {stopped.global_step}" in capfd.readouterr().out
    end_process(ours)
    resumed = Trainer()
    resumed.fit(ours.ResumeCallback())
    assert stopped.seen + resumed.seen == undisturbed()


def test_while_gradients_are_added_up_nothing_is_saved(ours: Any) -> None:
    killed = Trainer(accumulates=2)
    with pytest.raises(CutError):
        killed.fit(ours.ResumeCallback(), (1, 3))
    end_process(ours)
    resumed = Trainer(accumulates=2)
    resumed.fit(ours.ResumeCallback())
    assert killed.seen[:6] + resumed.seen == undisturbed(accumulates=2)


@pytest.mark.parametrize("reason", ["another stage", "used", "no directory", "a strategy that divides the model"])
def test_what_cannot_be_resumed_is_left_as_it_is(ours: Any, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    trainer, callback = Trainer("FSDPStrategy" if "divides" in reason else "DDPStrategy"), ours.ResumeCallback()
    methods = dict(vars(trainer.fit_loop))
    ours.ResumeCallback._used = reason == "used"
    if reason == "no directory":
        monkeypatch.delenv("DDPJOB_CHECKPOINT_DIR")
    callback.setup(trainer, None, "validate" if reason == "another stage" else "fit")
    callback.on_train_start(trainer, None)
    assert vars(trainer.fit_loop) == methods
    assert not connecting._current


def test_only_the_first_fit_of_a_process_resumes(ours: Any) -> None:
    ours.ResumeCallback().setup(Trainer(), None, "fit")
    first = connecting._current
    ours.ResumeCallback().setup(Trainer(), None, "fit")
    assert connecting._current is first is not None


def test_what_cannot_be_saved_is_told_and_trained_all_the_same(
    ours: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trainer = Trainer()
    dumped = trainer._checkpoint_connector.dump_checkpoint
    trainer._checkpoint_connector.dump_checkpoint = lambda **how: dumped(**how) | {"own": object()}
    trainer.fit(ours.ResumeCallback())
    assert trainer.seen == undisturbed()
    assert "warning: DDPJob does not save this training: " in capfd.readouterr().err
    assert not list(tmp_path.glob("step-*"))


def test_a_loader_that_keeps_its_own_position_is_not_fetched_again(ours: Any) -> None:
    with pytest.raises(CutError):
        Trainer().fit(ours.ResumeCallback(), (1, 2))
    end_process(ours)
    resumed = Trainer()
    resumed.loader.load_state_dict = lambda _: None
    with pytest.raises(CutError):
        resumed.fit(ours.ResumeCallback(), (1, 3))
    assert resumed._checkpoint_connector._ckpt_path
    assert [batch for _, batch, *_ in resumed.seen] != [batch for _, batch, *_ in undisturbed()[6:7]]
