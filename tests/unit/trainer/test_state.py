"""The state of a run, and what is left of the file that it came from."""

import gc
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ddpjob.checkpoint.encoding import decode, encode
from ddpjob.checkpoint.plain_values import plain
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.checkpoint import saving, state
from ddpjob_trainer.model.learner import Learner
from torch import nn
from torch.amp import GradScaler
from torch.optim import SGD, Adagrad, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel

Make = Callable[[Iterable[Any]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda weights: SGD(weights, lr=0.1, momentum=0.9),
    "AdamW": AdamW,
    "Adagrad": Adagrad,
}


def a_learner(make: Make) -> Learner:
    """One that has made a step."""
    model = nn.Linear(64, 64)
    optimizer = make(model.parameters())
    learner = Learner(model, model, optimizer, StepLR(optimizer, 1), average=AveragedModel(model))
    model(torch.ones(64)).sum().backward()
    optimizer.step()
    return learner


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_whoever_goes_on_keeps_nothing_of_the_file_which_may_be_removed_at_any_time(
    make: Make, tmp_path: Path
) -> None:
    """Otherwise its room on the disk would not be free, and over a network file system the rank would die."""
    file = tmp_path / "state.pt"
    saved, learner = a_learner(make), a_learner(make)
    with file.open("wb") as sink:
        encode({"shared": plain(state.shared(saved))}, sink)
    decoded = decode(file)
    state.load(learner, decoded["shared"], 1)
    assert str(file) in mapped(), "as long as it is read"
    del decoded
    gc.collect()
    assert str(file) not in mapped()
    kept, there = (one.optimizer.state_dict()["state"] for one in (learner, saved))
    torch.testing.assert_close(kept, there, rtol=0, atol=0)


def mapped() -> str:
    return Path("/proc/self/maps").read_text()


class Cosine(StepLR):
    """A schedule of a user, which notes more than numbers."""

    noted: object = None


def test_values_of_numpy_and_dates_in_a_state_come_back_as_they_were(tmp_path: Path) -> None:
    noted = {"rates": np.arange(3.0), "best": np.float32(0.5), "since": datetime(2026, 11, 29, tzinfo=UTC)}
    schedules = [Cosine(SGD([torch.zeros(1)], lr=0.1), 1) for _ in range(2)]
    saved, learner = (replace(a_learner(AdamW), scheduler=schedule) for schedule in schedules)
    schedules[0].noted = noted
    with (tmp_path / "state.pt").open("wb") as sink:
        encode({"shared": plain(state.shared(saved))}, sink)
    state.load(learner, decode(tmp_path / "state.pt")["shared"], 1)
    assert repr(schedules[1].noted) == repr(noted)


def test_an_object_of_a_users_class_in_a_state_is_refused_with_its_place() -> None:
    learner = a_learner(AdamW)
    learner.optimizer.param_groups[0]["mode"] = Cosine
    where = re.escape(
        "the optimizer's state_dict() cannot be saved: ['param_groups'][0]['mode'] is of type builtins.type. "
    )
    with pytest.raises(ConfigError, match=where):
        state.shared(learner)


def test_the_state_of_another_model_is_refused_with_the_first_three_differences_and_their_number() -> None:
    saved, learner = a_learner(AdamW), a_learner(AdamW)
    other = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    with pytest.raises(ConfigError) as refused:
        state.load(learner, state.shared(replace(saved, model=other)), 1)
    assert str(refused.value) == (
        "the checkpoint is from another model than the workload's: weight is missing in the checkpoint; bias is"
        " missing in the checkpoint; 0.weight is only in the checkpoint; and 3 further differences. Name another"
        " --checkpoint-dir, or the workload that wrote it"
    )
    with pytest.raises(ConfigError, match="is from another optimizer than the workload's: it is that of another"):
        state.load(learner, state.shared(replace(saved, optimizer=SGD(saved.model.parameters(), lr=0.1))), 1)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_schedule_that_the_checkpoint_does_not_have_stands_where_it_would_after_its_steps(steps: int) -> None:
    saved, learner = a_learner(OPTIMIZERS["SGD"]), a_learner(OPTIMIZERS["SGD"])
    saved.optimizer.param_groups[0]["lr"] = 5.0
    assert state.load(learner, state.shared(replace(saved, scheduler=None)), steps) == []
    assert learner.scheduler is not None
    assert (learner.scheduler.last_epoch, learner.optimizer.param_groups[0]["lr"]) == (
        steps,
        pytest.approx(0.1**steps / 10),
    )


@pytest.mark.parametrize("was", [True, False])
@pytest.mark.parametrize("is_on", [True, False])
def test_the_scale_of_the_loss_goes_on_where_it_was_if_it_is_still_wanted(*, was: bool, is_on: bool) -> None:
    saved, learner = a_learner(AdamW), a_learner(AdamW)
    saved = replace(saved, scaler=GradScaler("cpu", init_scale=4.0) if was else None)
    learner = replace(learner, scaler=GradScaler("cpu", init_scale=2.0) if is_on else None)
    state.load(learner, state.shared(saved), 1)
    if learner.scaler:
        assert learner.scaler.get_scale() == (4.0 if was else 2.0)


def test_a_state_of_format_1_is_read(tmp_path: Path) -> None:
    generators, errors = [{"python": 1}, {"python": 2}], [None, {"errors": torch.ones(2)}]
    former = {"model": {"weight": torch.ones(3)}, "scaler": None, "random": generators, "compression": errors}
    torch.save(former | {"position": (7, 2, 64)}, tmp_path / "state.pt")
    read = decode(tmp_path / "state.pt")
    assert read.keys() == {"shared", "ranks", "position"}
    assert read["shared"].keys() == {"model", "scaler"}
    assert [own["random"] for own in read["ranks"]] == generators
    assert read["ranks"][0]["compression"] is None
    assert read["position"] == (7, 2, 64)
    del former["compression"]  # The first versions had none.
    torch.save(former | {"position": (7, 2, 64)}, tmp_path / "older.pt")
    assert [own["random"] for own in decode(tmp_path / "older.pt")["ranks"]] == generators


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("ranks", "fits", "asked", "says"),
    [
        ([{"compression": "0"}, {"compression": "1"}], True, ["0", "1"], ""),
        ([{"compression": "0"}, {"compression": "1"}], False, ["0", "1"], "PowerSGD starts over: --bucket-cap-mb"),
        ([{"compression": "0"}, {"compression": None}], True, None, ""),
        ([{"compression": "0"}, {}], True, None, ""),
    ],
)
def test_powersgd_goes_on_with_what_all_ranks_have_left_out_if_it_fits(
    capsys: pytest.CaptureFixture[str],
    rank: int,
    ranks: list[dict[str, Any]],
    asked: list[str] | None,
    says: str,
    *,
    fits: bool,
) -> None:
    restored: list[Any] = []
    compression = SimpleNamespace(restore=lambda *how: (restored.append(how), fits)[1])
    learner: Any = SimpleNamespace(compression=compression)
    world = World(rank=rank, world_size=2)
    state.load_compression(learner, ranks, world, torch.device("cpu"))
    assert restored == ([] if asked is None else [(asked, world, torch.device("cpu"))])
    told = capsys.readouterr().out
    assert told.startswith(says) if says and rank == 0 else not told
    learner.compression = None
    state.load_compression(learner, ranks, world, torch.device("cpu"))


@pytest.mark.parametrize(("rank", "differs"), [(0, True), (1, True), (0, False)])
def test_a_resumption_restores_the_learner_then_what_was_left_out_and_last_the_random_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int, *, differs: bool
) -> None:
    done: list[Any] = []
    saver: Any = SimpleNamespace(
        world=World(rank=rank, world_size=2),
        shared_state=lambda *_: "shared",
        restore_random=lambda saved, seed: done.append(("random", saved.step, seed)),
    )
    saved: Any = SimpleNamespace(step=3, ranks=["of ranks"])

    def load(_: object, *how: object) -> list[str]:
        done.append(how)
        return ["lr 1, not 2", "momentum 0, not 1"] if differs else []

    monkeypatch.setattr(state, "load", load)
    monkeypatch.setattr(state, "load_compression", lambda _, *how: done.append(how))
    saving.restore("learner", saved, saver, 5, "cpu")  # type: ignore[arg-type]
    assert done == [("shared", 3), (["of ranks"], saver.world, "cpu"), ("random", 3, 5)]
    said = "the optimizer keeps the settings of the checkpoint: lr 1, not 2; momentum 0, not 1\n"
    assert capsys.readouterr().out == (said if differs and rank == 0 else "")
