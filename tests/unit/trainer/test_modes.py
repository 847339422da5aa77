"""Who trains: all processes, or one."""

import pytest
import torch
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.config import read_config
from ddpjob_trainer.group.backend import device_of
from ddpjob_trainer.model import modes
from ddpjob_trainer.options import ModeConfig
from torch import nn

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


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


@pytest.mark.parametrize(
    ("flags", "gpus", "said"),
    [
        (["--device-ids", "0,2"], 2, "--device-ids names GPU 2, but this process sees 2: "),
        (["--output-device", "1"], 1, "--output-device names GPU 1, but this process sees 1: "),
    ],
)
def test_a_gpu_that_there_is_not_is_named_with_the_flag(flags: list[str], gpus: int, said: str) -> None:
    mode = read_config(["--mode", "data-parallel", *flags], {}).mode
    with pytest.raises(ConfigError, match=said):
        modes._check(mode, gpus)
    modes._check(mode, gpus + 1)
