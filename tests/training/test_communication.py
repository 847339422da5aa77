"""Options of what DistributedDataParallel sends, and when."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ddpjob_examples.mlp import MlpTask
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.reporting import heartbeat
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig, read_config
from ddpjob_trainer.model.compression import PowerSGD, compress
from ddpjob_trainer.model.parallel import parallel, prepare_model
from ddpjob_trainer.options import CommunicationConfig, Hook
from torch import Tensor, nn

from tests.training.resuming import different, train_twice
from tests.training.runs import Runs
from tests.training.states import state

CPU = torch.device("cpu")
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


@pytest.fixture
def alone_in_a_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone_in_a_group")
def test_what_is_left_out_is_each_ranks_own_or_the_mean_of_all() -> None:
    def restored(*saved: float, world: World) -> float:
        settings = CommunicationConfig(comm_hook="powersgd")
        power = PowerSGD(parallel(nn.Linear(1, 1), settings, CPU), settings)
        states = [power.capture() | {"errors": {0: torch.tensor([error])}} for error in saved]
        assert power.restore(states, world, CPU)
        return float(power.capture()["errors"][0])

    assert restored(1.0, 4.0, world=World(rank=1, world_size=2)) == 4.0
    assert restored(1.0, 4.0, world=World(rank=1, world_size=3)) == 2.5


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize(
    ("hook", "least"), [("none", 2**-23), ("fp16", 2**-10), ("bf16", 2**-7)], ids=["none", "fp16", "bf16"]
)
def test_gradients_are_sent_in_as_many_bits_as_asked(hook: Hook, least: float) -> None:
    settings = CommunicationConfig(comm_hook=hook)
    model = parallel(nn.Linear(2, 1, bias=False), settings, CPU)
    compress(model, settings)
    model(torch.tensor([[1 + least, 1 + least / 4]])).sum().backward()
    assert model.module.weight.grad.tolist() == [[1 + least, 1.0]]


@pytest.mark.usefixtures("alone_in_a_group")
def test_what_is_asked_of_distributed_data_parallel_reaches_it() -> None:
    def asked(*flags: str) -> list[object]:
        ddp = parallel(nn.Linear(1, 1), read_config(flags, {}).communication, CPU)
        return [ddp.bucket_bytes_cap, ddp.gradient_as_bucket_view, ddp.static_graph, ddp.find_unused_parameters]

    megabyte = 1024 * 1024
    assert asked() == [25 * megabyte, False, False, False]
    assert asked("--bucket-cap-mb", "3", "--gradient-as-bucket-view", "--static-graph") == [
        *(3 * megabyte, True, True, False)
    ]
    assert asked("--find-unused-parameters") == [25 * megabyte, False, False, True]


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


def test_synchronised_batch_normalisation_is_refused_on_a_cpu() -> None:
    config = TrainConfig(communication=CommunicationConfig(sync_bn=True))
    with pytest.raises(ConfigError, match="--sync-bn: torch has no synchronised batch normalisation for the CPU"):
        prepare_model(nn.BatchNorm1d(2), config, World(world_size=2), torch.device("cpu"))
    assert type(prepare_model(nn.BatchNorm1d(2), config, World(), torch.device("cpu"))) is nn.BatchNorm1d


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--static-graph", "--find-unused-parameters"], "not allowed with argument"),
        (["--powersgd-rank", "2"], "--powersgd-rank needs --comm-hook powersgd"),
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
