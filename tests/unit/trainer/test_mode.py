"""Options of who trains."""

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import read_config
from ddpjob_trainer.options import ModeConfig


def test_all_processes_train_together_unless_another_mode_is_named() -> None:
    assert read_config([], {}).mode == ModeConfig(mode="ddp")


def test_data_parallel_takes_gpus_by_their_numbers() -> None:
    flags = ["--mode", "data-parallel", "--device-ids", "0,2", "--output-device", "2"]
    assert read_config(flags, {}).mode == ModeConfig(mode="data-parallel", device_ids=(0, 2), output_device=2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mode", "dp"], "argument --mode: invalid choice: 'dp'"),
        (["--device-ids", "0"], "--device-ids and --output-device belong to --mode data-parallel"),
        (["--mode", "single", "--output-device", "0"], "belong to --mode data-parallel"),
        (["--mode", "data-parallel", "--device-ids", "0,0"], "'0,0' names a GPU twice"),
        (["--mode", "data-parallel", "--device-ids", "cuda:0"], "'cuda:0' is not a GPU number"),
    ],
)
def test_a_mistake_is_one_clear_error(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(flags, {})


@pytest.mark.parametrize("mode", ["single", "data-parallel"])
def test_a_mode_of_one_process_refuses_a_world_of_several(mode: str) -> None:
    config = read_config(["--mode", mode], {}).mode
    config.check_world(1)
    with pytest.raises(ConfigError, match=f"--mode {mode} trains with one process, but 2 are started"):
        config.check_world(2)
