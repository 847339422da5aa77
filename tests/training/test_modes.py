"""Who trains: all processes, or one."""

import pytest
import torch
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.group.backend import device_of
from ddpjob_trainer.model import modes
from ddpjob_trainer.options import ModeConfig
from torch import nn

from tests.training.runs import Runs

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


def sizes(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("  In Model", "Outside"))]


def told(samples: int) -> list[str]:
    return [
        f"  In Model: input size torch.Size([{samples}, 5]) output size torch.Size([{samples}, 2])",
        f"Outside: input size torch.Size([{samples}, 5]) output_size torch.Size([{samples}, 2])",
    ]


def test_one_process_alone_is_given_whole_batches(runs: Runs) -> None:
    run = runs.train(1, "--workload", "random", "--mode", "single")
    assert sizes(run.output()) == told(30) * 3


def test_with_ddp_each_process_is_given_batches_of_its_own(runs: Runs) -> None:
    run = runs.train(2, "--workload", "random", "--batch-size", 15)
    assert [sizes(run.output(rank)) for rank in range(2)] == [told(15) * 3] * 2


def test_without_a_gpu_data_parallel_says_that_one_process_trains_and_gives_the_same_weights(runs: Runs) -> None:
    single, parallel = (
        runs.train(1, "--workload", "layers", "--mode", mode, env={"CUDA_VISIBLE_DEVICES": ""})
        for mode in ("single", "data-parallel")
    )
    assert parallel.errors().startswith("warning: --mode data-parallel: this process sees no GPU")
    assert parallel.value("progress", "loss") == single.value("progress", "loss")


@pytest.mark.parametrize(
    ("size", "flags", "message"),
    [
        (2, ["--mode", "single"], "--mode single trains with one process, but 2 are started"),
        (1, ["--mode", "data-parallel", "--device-ids", "0,1"], "--device-ids names GPU 0, but this process sees 0"),
        (
            1,
            ["--mode", "data-parallel", "--output-device", "1"],
            "--output-device names GPU 1, but this process sees 0",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(runs: Runs, size: int, flags: list[str], message: str) -> None:
    run = runs.start(size, *flags, env={"CUDA_VISIBLE_DEVICES": ""})
    assert run.end() == [2] * size
    for rank in range(size):
        assert run.errors(rank).startswith(f"error: {message}")
        assert run.errors(rank).count("\n") == 1
    assert run.report()["cause"] == "ConfigError"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as far as their number goes."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(("local_rank", "device"), [(0, FIRST), (1, SECOND)])
def test_a_process_takes_the_gpu_of_its_local_rank(local_rank: int, device: torch.device) -> None:
    world = World(rank=2 + local_rank, local_rank=local_rank, world_size=4, local_world_size=2)
    assert device_of("nccl", world) == device
    assert device_of("gloo", world) == CPU


@pytest.mark.usefixtures("gpus")
def test_a_process_that_sees_no_gpu_but_its_own_takes_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    second = World(rank=1, local_rank=1, world_size=2, local_world_size=2)
    with pytest.raises(ConfigError, match="needs a GPU for each process: local rank 1 sees 1"):
        device_of("nccl", second)
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "1")
    assert device_of("nccl", second) == FIRST


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("ids", "output", "home", "gathered"),
    [
        (None, None, FIRST, FIRST),
        ((1, 0), None, SECOND, SECOND),
        ((0, 1), 1, FIRST, SECOND),
        ((0,), 1, FIRST, FIRST),  # With one GPU nothing is divided, so nothing is gathered.
    ],
)
def test_data_parallel_has_its_model_on_the_first_gpu_and_the_targets_where_it_gathers(
    ids: tuple[int, ...] | None, output: int | None, home: torch.device, gathered: torch.device
) -> None:
    mode = ModeConfig(mode="data-parallel", device_ids=ids, output_device=output)
    assert modes.device_of_model(mode, FIRST) == home
    assert modes.output_device(mode, home) == gathered
    assert modes.output_device(mode, CPU) == CPU


@pytest.mark.usefixtures("gpus")
def test_a_run_says_which_of_the_machines_gpus_it_means(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,5")
    modes.device_of_model(ModeConfig(), SECOND)
    modes.device_of_model(ModeConfig(mode="data-parallel"), FIRST)
    second = "device 1 here is GPU 5 of the machine (CUDA_VISIBLE_DEVICES=0,5)"
    assert capsys.readouterr().out.splitlines() == [second, f"device 0 here is GPU 0 of the machine, {second}"]


@pytest.mark.usefixtures("gpus")
def test_gpus_that_the_backend_leaves_alone_are_not_called_missing(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(1, 1)
    assert modes.data_parallel(model, ModeConfig(mode="data-parallel"), CPU) is model
    assert "--mode data-parallel: backend gloo uses no GPU, so" in capsys.readouterr().err
