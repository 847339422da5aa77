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


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("wandb login --api-key abc && train.py --lr 0.1", "wandb login --api-key ••• && train.py --lr 0.1"),
        ("A=1 HF_TOKEN=abc train.py", "A=1 HF_TOKEN=••• train.py"),
        ("export HF_TOKEN='a b'; train.py --keep 3", "export HF_TOKEN=•••; train.py --keep 3"),
        ("train.py --hf-token --lr 0.1", "train.py --hf-token --lr 0.1"),
        ("curl -H 'Authorization: Bearer abc' host", "curl -H 'Authorization: Bearer •••' host"),
        ("git clone https://me:secret@host/code", "git clone https://•••@host/code"),
        ("train.py --workload tokens:Task", "train.py --workload tokens:Task"),
    ],
)
def test_secrets_in_a_script_for_a_shell_are_masked(script: str, shown: str) -> None:
    assert list(words(["sh", "-c", script])) == ["sh", "-c", shown]
