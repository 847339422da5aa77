"""What a run is asked to do: flags before the environment."""

from pathlib import Path

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import TrainConfig, read_config, train_parser
from ddpjob_trainer.options import CheckpointConfig, GroupConfig, RecordingConfig

POD = {
    "DDPJOB_BACKEND": "gloo",
    "DDPJOB_CHECKPOINT_DIR": "/checkpoints",
    "DDPJOB_CHECKPOINT_EVERY_STEPS": "50",
    "DDPJOB_CHECKPOINT_KEEP": "5",
    "DDPJOB_INCARNATION": "2",
    "DDPJOB_UID": "a-uid",
}


def test_without_flags_and_environment_all_is_left_to_the_workload() -> None:
    assert read_config([], {}) == TrainConfig()


def test_an_image_is_cut_as_its_page_says_unless_another_size_or_network_is_asked_for() -> None:
    def asked(*flags: str) -> tuple[str, int, bool]:
        images = read_config(flags, {}).images
        return images.arch, images.size, images.skip_broken

    assert asked() == ("resnet18", 224, False)
    assert asked("--arch", "vgg11", "--image-size", "64", "--skip-broken-images") == ("vgg11", 64, True)


def test_a_pods_environment_says_where_and_when_to_save() -> None:
    assert read_config([], POD) == TrainConfig(
        group=GroupConfig(backend="gloo"),
        checkpoint=CheckpointConfig(directory=Path("/checkpoints"), every_steps=50, keep=5),
        recording=RecordingConfig(directory=Path("/checkpoints/metrics")),
        incarnation=2,
        attempt=2,
        uid="a-uid",
    )


def test_checkpoints_in_an_object_store_are_named_by_its_url_and_metrics_are_not_recorded_there() -> None:
    url = "s3://bucket/digits"
    for config in (read_config(["--checkpoint-dir", url], {}), read_config([], {"DDPJOB_CHECKPOINT_DIR": url})):
        assert config.checkpoint
        assert (config.checkpoint.directory, config.recording.directory) == (url, None)


@pytest.mark.parametrize(
    ("env", "attempt"),
    [({}, 0), ({"DDPJOB_INCARNATION": "2"}, 2), ({"DDPJOB_INCARNATION": "2", "DDPJOB_ATTEMPT": "5"}, 5)],
)
def test_the_attempt_counts_restarts_in_place_where_somebody_does(env: dict[str, str], attempt: int) -> None:
    assert read_config([], env).attempt == attempt


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["--checkpoint-every-seconds", "auto"], {}),
        (["--checkpoint-every-seconds", "Auto"], {"DDPJOB_CHECKPOINT_EVERY_SECONDS": "60"}),
        ([], {"DDPJOB_CHECKPOINT_EVERY_SECONDS": "Auto"}),
    ],
)
def test_the_interval_may_be_left_to_what_is_observed(arguments: list[str], env: dict[str, str]) -> None:
    observed = {"DDPJOB_CHECKPOINT_DIR": "/saved", "DDPJOB_MEAN_TIME_TO_FAILURE_SECONDS": "1800"}
    assert read_config(arguments, {**observed, **env}).checkpoint == CheckpointConfig(
        directory=Path("/saved"), every_seconds="auto", mean_time_to_failure=1800
    )


def test_a_flag_wins_over_the_environment() -> None:
    flags = [
        "--backend",
        "nccl",
        "--checkpoint-dir",
        "/mine",
        "--checkpoint-every-seconds",
        "9.5",
        "--checkpoint-keep",
    ]
    config = read_config([*flags, "1"], POD)
    assert config.group.backend == "nccl"
    assert config.checkpoint == CheckpointConfig(directory=Path("/mine"), every_seconds=9.5, keep=1)


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["--epochs", "0"], {}, "argument --epochs: '0' is not a whole number of at least 1"),
        (["--epochs", "many"], {}, "argument --epochs: 'many' is not a whole number"),
        (["--lr", "-1"], {}, "argument --lr: '-1' is not a number above 0"),
        (["--lr", "nan"], {}, "argument --lr: 'nan' is not a number above 0"),
        (["--seed", "-1"], {}, "argument --seed: '-1' is not a whole number of at least 0"),
        (["--seed", "9" * 19], {}, f"argument --seed: '{'9' * 19}' is not a whole number of at most 18 digits"),
        (["--epochs", "9" * 5000], {}, "' is not a whole number of at most 18 digits"),
        ([], {"DDPJOB_ATTEMPT": "9" * 5000}, "9': it must be a whole number of at most 18 digits"),
        (["--allow-other-data"], {}, "--allow-other-data needs a directory: name one with --checkpoint-dir"),
        (["--data", "letters"], {}, "argument --data: invalid choice: 'letters'"),
        (["--batch-size", "8", "--global-batch-size", "8"], {}, "--global-batch-size: not allowed with argument"),
        (["--checkpoint-every-steps", "8"], {}, "need a directory: name one with --checkpoint-dir"),
        (["--checkpoint-every-seconds", "8"], {}, "need a directory: name one with --checkpoint-dir"),
        (["--checkpoint-keep", "8"], {}, "need a directory: name one with --checkpoint-dir"),
        (["--start-over"], {}, "--start-over needs a directory: name one with --checkpoint-dir"),
        (["--master-port", "65536"], {}, "65536 is not a port: the highest is 65535"),
        (["--master-port", "0"], {}, "argument --master-port/--master_port: '0' is not a whole number of at least 1"),
        (["--nodes", "0"], {}, "'0' is not a whole number of at least 1"),
        (["--procs-per-node", "0"], {}, "'0' is not a whole number of at least 1"),
        (["--node-rank", "-1"], {}, "'-1' is not a whole number of at least 0"),
        (["--rank", "-1"], {}, "'-1' is not a whole number of at least 0"),
        (["--world-size", "0"], {}, "'0' is not a whole number of at least 1"),
        (["--local-rank", "-1"], {}, "'-1' is not a whole number of at least 0"),
        (["--epoch", "3"], {}, "unrecognized arguments: --epoch 3 (see ddpjob-train --help)"),
        ([], {"DDPJOB_BACKEND": "NCCL"}, "DDPJOB_BACKEND is 'NCCL': it must be one of gloo, nccl, mpi"),
        ([], {**POD, "DDPJOB_CHECKPOINT_KEEP": "0"}, "DDPJOB_CHECKPOINT_KEEP is '0': it must be a whole number"),
        ([], {"DDPJOB_INCARNATION": "first"}, "DDPJOB_INCARNATION is 'first'"),
        ([], {"DDPJOB_ATTEMPT": "-1"}, "DDPJOB_ATTEMPT is '-1': it must be a whole number of at least 0"),
        (["--checkpoint-every-seconds", "often"], {}, "'often' is not a number above 0, nor auto"),
        (
            [],
            {"DDPJOB_CHECKPOINT_DIR": "/saved", "DDPJOB_CHECKPOINT_EVERY_SECONDS": "often"},
            "DDPJOB_CHECKPOINT_EVERY_SECONDS is 'often': it must be a whole number of at least 1, or Auto",
        ),
    ],
)
def test_a_mistake_is_one_clear_error(arguments: list[str], env: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(arguments, env)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_help_begins_with_what_the_program_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        train_parser().parse_args(["--help"])
    usage, purpose, *_ = capsys.readouterr().out.split("\n\n")
    assert usage == "usage: ddpjob-train [OPTION ...]"
    assert purpose.startswith("Train a model with DistributedDataParallel")
