"""Options of what DistributedDataParallel sends, and when."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ddpjob_examples.mlp import MlpTask
from ddpjob_rank.reporting import heartbeat
from torch import Tensor, nn

from tests.training.resuming import different, train_twice
from tests.training.runs import Runs
from tests.training.states import state
from tests.unit.trainer.test_communication import CPU

BATCH = ["--global-batch-size", 48, "--epochs", 1]
POWERSGD = ["--comm-hook", "powersgd", "--powersgd-rank", "2"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--static-graph", "--gradient-as-bucket-view", "--gradient-accumulation-steps", "2", "--comm-hook", "bf16"],
        ["--find-unused-parameters", "--gradient-accumulation-steps", "2", "--comm-hook", "fp16"],
        pytest.param(POWERSGD, marks=pytest.mark.full("the next row has PowerSGD too")),
        [*POWERSGD, "--precision", "bf16", "--bucket-cap-mb", "0.01", "--gradient-as-bucket-view"],
    ],
    ids=" ".join,
)
def test_however_gradients_are_sent_a_run_goes_on_with_the_very_bits(
    runs: Runs, tmp_path: Path, flags: list[str]
) -> None:
    train_twice(runs, tmp_path, 3, *BATCH, *flags, step=10)
    assert different(state(tmp_path / "resumed"), state(tmp_path / "calm")) == []


def test_powersgd_keeps_what_each_rank_left_out(runs: Runs, tmp_path: Path) -> None:
    runs.train(2, *BATCH, *POWERSGD, "--checkpoint-dir", tmp_path)
    first, second = (own["compression"]["errors"] for own in state(tmp_path)["ranks"])
    assert first.keys() == second.keys() != set()
    assert all(not torch.equal(first[bucket], second[bucket]) for bucket in first)


def test_in_a_world_of_another_size_each_rank_goes_on_with_the_mean_of_what_was_left_out(
    runs: Runs, tmp_path: Path
) -> None:
    train_twice(runs, tmp_path, 2, *BATCH, *POWERSGD, step=20, size_after=3)
    assert len(state(tmp_path / "resumed")["ranks"]) == 3


class Patient(MlpTask):
    """Says how long a collective waits for others."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        backend = dist.distributed_c10d._get_default_group()._get_backend(CPU)
        print(f"waits {backend.options._timeout.total_seconds():.0f} s", flush=True)
        return super().loss(output, target)


@pytest.mark.parametrize(("watched", "seconds"), [(False, 600), (True, 3660)], ids=["alone", "under a supervisor"])
def test_a_collective_waits_longer_than_a_supervisor_takes_to_find_out_who_does_not_come(
    runs: Runs, tmp_path: Path, *, watched: bool, seconds: int
) -> None:
    (tmp_path / "beats").write_bytes(heartbeat.EMPTY)
    env = {"DDPJOB_HEARTBEAT": str(tmp_path / "beats")} if watched else {}
    run = runs.train(2, "--workload", f"{__name__}:Patient", "--max-steps", 1, env=env)
    assert f"waits {seconds} s\n" in run.output(1), run.story()


def test_powersgd_begins_anew_with_other_buckets(runs: Runs, tmp_path: Path) -> None:
    job = [*BATCH, "--checkpoint-dir", tmp_path]
    runs.train(2, *job, *POWERSGD)
    again = runs.train(2, *job, "--epochs", 2, "--comm-hook", "powersgd", "--powersgd-rank", 1)
    assert (
        "PowerSGD starts over: --bucket-cap-mb, --powersgd-rank or --find-unused-parameters differ" in again.output()
    )


class Idle(nn.Module):
    """Has a layer that is used on one rank alone, or nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(64, 10)
        self.idle = nn.Linear(10, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.used(images.flatten(1))


class IdleTask(MlpTask):
    def model(self) -> nn.Module:
        return Idle()


def test_a_parameter_without_a_gradient_is_named_with_the_flag_that_allows_it(runs: Runs) -> None:
    job = ["--workload", f"{__name__}:IdleTask", "--epochs", 1]
    failed = runs.start(2, *job)
    assert failed.end() == [2, 2], failed.story()
    assert "does not depend on these parameters of the model: idle.weight, idle.bias." in failed.errors()
    assert "--find-unused-parameters" in failed.errors()
    assert failed.report()["cause"] == "ConfigError"
    runs.train(2, *job, "--find-unused-parameters")
