"""What a page shows of commands and variables: no secret."""

import pytest
from ddpjob_operator.report.masking import value, words


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train.py --lr 0.1 --epochs=3", "train.py --lr 0.1 --epochs=3"),
        ("train.py --wandb-api-key abc --lr 0.1", "train.py --wandb-api-key ••• --lr 0.1"),
        ("train.py --hf_token=abc", "train.py --hf_token=•••"),
        ("env HF_TOKEN=abc python", "env HF_TOKEN=••• python"),
        ("train.py --token --lr 0.1", "train.py --token --lr 0.1"),
        ("train.py --data s3://me:secret@host/images", "train.py --data s3://•••@host/images"),
        ("train.py --data=https://me:secret@host/images", "train.py --data=https://•••@host/images"),
    ],
)
def test_secrets_in_a_command_are_masked(command: str, shown: str) -> None:
    assert " ".join(words(command.split())) == shown


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "credentials"])
def test_a_variable_whose_name_says_that_it_is_secret_is_masked(name: str) -> None:
    assert value(name, "abc") == "•••"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "keep", "workload", "monkey"])
def test_others_are_shown(name: str) -> None:
    assert value(name, "abc") == "abc"
