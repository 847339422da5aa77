"""Steps that are not finite: what ends a run, what is left out, and that nothing of it is saved."""

import os
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.training.runs import Runs
from tests.training.states import state, tensors
from tests.unit.trainer.test_diverging import POISONED, Poisoned


class Cornered(Poisoned):
    """In step 5 the gradient is infinite on rank 1, and every loss is finite."""

    calls = 0

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        loss = output.square().mean() + 0.0 * target.nan_to_num().sum()
        corner = os.environ["RANK"] == "1" and self.calls == 1 + 5  # The warm-up is the first call.
        return loss + (output * 0.0).abs().sum().sqrt() if corner else loss


def saved(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in directory.glob("step-*"))


def diverged(runs: Runs, *arguments: object) -> tuple[Any, list[int]]:
    """A run of two ranks that ends, and those of them that say that it has diverged."""
    often = ["--checkpoint-every-steps", 1, "--checkpoint-keep", 100]
    run = runs.start(2, *often, *arguments)
    assert run.end() == [1, 1], run.story()
    return run, [rank for rank in range(2) if run.report(rank)["cause"] == "Diverged"]


def test_the_rank_whose_loss_is_nan_ends_the_run_and_names_step_and_samples(runs: Runs, tmp_path: Path) -> None:
    run, blamed = diverged(runs, "--workload", f"{__name__}:Poisoned", "--checkpoint-dir", tmp_path)
    assert len(blamed) == 1, run.story()
    report = run.report(blamed[0])
    told = re.fullmatch(
        rf"training has diverged: the loss of step (\d+) is not a finite number on rank {blamed[0]},"
        r" of 4 samples: ([\d, ]+)",
        report["message"],
    )
    assert told, report
    assert (report["exception"], report["exitCode"]) == ("DivergedError", 1)
    assert POISONED in map(int, told[2].split(", "))
    assert "Traceback" not in run.errors(blamed[0])
    assert run.report(1 - blamed[0])["cause"] == "PeerLost"
    assert saved(tmp_path) == [*range(1, int(told[1]))], "what the step made is saved nowhere"
    assert "finished" not in run.output()


def test_gradients_that_are_not_finite_end_it_though_every_loss_is_and_the_ranks_say_the_same(
    runs: Runs, tmp_path: Path
) -> None:
    run, blamed = diverged(runs, "--workload", f"{__name__}:Cornered", "--checkpoint-dir", tmp_path)
    assert blamed
    assert "the gradients of step 5 are not finite numbers, though the loss of each rank was" in run.errors(blamed[0])
    assert saved(tmp_path) == [1, 2, 3, 4]


def test_a_step_that_is_left_out_leaves_the_ranks_alike_and_all_that_is_saved_finite(
    runs: Runs, tmp_path: Path
) -> None:
    job = ["--workload", f"{__name__}:Poisoned", "--on-divergence", "skip", "--checkpoint-dir", tmp_path]
    run = runs.train(2, *job)
    warned = [re.findall(r"warning: step (\d+) is left out: .*", run.errors(rank)) for rank in range(2)]
    assert len(warned[0]) == 2, "once in each epoch"
    named = re.findall(r"the loss of rank \d, of 4 samples: .*", run.errors(0) + run.errors(1))
    assert len(named) == 2
    assert all(re.search(rf"\b{POISONED}\b", line) for line in named)
    infinite = [name for name, value in tensors(state(tmp_path)).items() if not bool(value.isfinite().all())]
    assert infinite == ["/model/mask"]


def test_it_may_be_ignored(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", f"{__name__}:Poisoned", "--checkpoint-dir", tmp_path]
    run = runs.train(1, *job, "--on-divergence", "ignore")
    assert "loss=nan" in run.output()
    assert not bool(state(tmp_path)["model"]["0.weight"].isfinite().any())
    again = runs.start(1, *job)
    again.end()
    assert f"{tmp_path}/step-00000032 is passed over: " in again.errors(), again.story()
    assert "parameters of the model are not finite numbers: 0.bias, 0.weight, 1.bias, …" in again.errors()
