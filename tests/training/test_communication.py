"""Options of what DistributedDataParallel sends, and when."""

from pathlib import Path

import pytest
import torch
from ddpjob_trainer.config import TrainConfig, read_config
from ddpjob_trainer.errors import ConfigError
from ddpjob_trainer.options.communication import CommunicationConfig
from ddpjob_trainer.training.parallel import laid_out
from ddpjob_trainer.workloads.mlp import MlpTask
from ddpjob_trainer.world import World
from torch import Tensor, nn

from tests.training.conftest import Runs
from tests.training.resuming import different, state, train_twice

BATCH = ["--global-batch-size", 48, "--epochs", 1]
POWERSGD = ["--comm-hook", "powersgd", "--powersgd-rank", "2"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--static-graph", "--gradient-as-bucket-view", "--gradient-accumulation-steps", "2", "--comm-hook", "bf16"],
        ["--find-unused-parameters", "--gradient-accumulation-steps", "2", "--comm-hook", "fp16"],
        POWERSGD,
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
    first, second = (rank["errors"] for rank in state(tmp_path)["compression"])
    assert first.keys() == second.keys() != set()
    assert all(not torch.equal(first[bucket], second[bucket]) for bucket in first)


def test_in_a_world_of_another_size_each_rank_goes_on_with_the_mean_of_what_was_left_out(
    runs: Runs, tmp_path: Path
) -> None:
    train_twice(runs, tmp_path, 2, *BATCH, *POWERSGD, step=20, size_after=3)
    assert len(state(tmp_path / "resumed")["compression"]) == 3


def test_powersgd_begins_anew_with_other_buckets(runs: Runs, tmp_path: Path) -> None:
    job = [*BATCH, "--checkpoint-dir", tmp_path]
    runs.train(2, *job, *POWERSGD)
    again = runs.train(2, *job, "--epochs", 2, "--comm-hook", "powersgd", "--powersgd-rank", 1)
    assert (
        "PowerSGD begins anew: --bucket-cap-mb or --powersgd-rank are not those of the checkpoint" in again.output()
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


def test_synchronised_batch_normalisation_is_refused_on_a_cpu() -> None:
    config = TrainConfig(communication=CommunicationConfig(sync_bn=True))
    with pytest.raises(ConfigError, match="--sync-bn: torch has no synchronised batch normalisation for the CPU"):
        laid_out(nn.BatchNorm1d(2), config, World(world_size=2), torch.device("cpu"))
    assert type(laid_out(nn.BatchNorm1d(2), config, World(), torch.device("cpu"))) is nn.BatchNorm1d


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--static-graph", "--find-unused-parameters"], "not allowed with argument"),
        (["--powersgd-rank", "2"], "--powersgd-rank is of --comm-hook powersgd, which is not asked for"),
        (["--comm-hook", "powersgd", "--precision", "fp16"], "use --precision bf16"),
        (["--bucket-cap-mb", "0"], "'0' is not a number above 0"),
        (["--model-ema-decay", "1"], "'1' is not a number from 0 to less than 1"),
        (["--momentum", "-1"], "'-1' is not a number of at least 0"),
    ],
)
def test_options_that_contradict_each_other_are_an_error(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(flags, {})
    assert message in str(error.value)
