"""What a page shows of commands and variables: no secret."""

import pytest
from ddpjob_operator.report.masking import script, value, words


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


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "keep", "workload", "monkey", "tokenizer"])
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
        ("curl -H X-Api-Key:abc host", "curl -H X-Api-Key:••• host"),
        ("curl -H 'X-Api-Key: abc' -H 'Accept: text' host", "curl -H 'X-Api-Key: •••' -H 'Accept: text' host"),
        ("curl -H Authorization:abc host", "curl -H Authorization:••• host"),
        ("A=1 HF_TOKEN= train.py", "A=1 HF_TOKEN= train.py"),
        ("A=1 HF_TOKEN=$'a b' train.py", "A=1 HF_TOKEN=••• train.py"),
        ('A=1 HF_TOKEN="abc', "A=1 HF_TOKEN=•••"),
    ],
)
def test_secrets_in_a_script_for_a_shell_are_masked(script: str, shown: str) -> None:
    assert list(words(["sh", "-c", script])) == ["sh", "-c", shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"user": "me", "password": "a b", "lr": 0.1}', '{"user": "me", "password": •••, "lr": 0.1}'),
        ('{"password":"a\\"b"}', '{"password":•••}'),
        ('{"password":"a=b"}', '{"password":•••}'),
        ("{'api_key': 'abc'}", "{'api_key': •••}"),
        (r'curl -d "{\"token\": \"a b\"}" host', r'curl -d "{\"token\": •••}" host'),
        ('["--api-key", "abc", "--lr", "0.1"]', '["--api-key", •••, "--lr", "0.1"]'),
        ('["--token", "--lr", "0.1"]', '["--token", "--lr", "0.1"]'),
        ('{"Authorization": "Bearer abc"}', '{"Authorization": •••}'),
    ],
)
def test_secrets_in_json_are_masked(text: str, shown: str) -> None:
    assert list(words([text])) == [shown]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("password = 'a b'; train()", "password = •••; train()"),
        ("password: str = 'a b'; train()", "password: str = •••; train()"),
        ("login(user=me, token=f'a{b} c')", "login(user=me, token=•••)"),
        ("import os; os.environ['HF_TOKEN'] = 'a b'", "import os; os.environ['HF_TOKEN'] = •••"),
        ("os.putenv('HF_TOKEN', 'a b')", "os.putenv('HF_TOKEN', •••)"),
        ("assert token == 'a b'", "assert token == •••"),
        ("tokenizer = 'bert'", "tokenizer = 'bert'"),
    ],
)
def test_secrets_in_code_are_masked(code: str, shown: str) -> None:
    assert list(words(["python", "-c", code])) == ["python", "-c", shown]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("ValueError: no route to s3://me:secret@host/images", "ValueError: no route to s3://•••@host/images"),
        ("HTTPError: 403 for https://host/x?token=abc&y=1", "HTTPError: 403 for https://host/x?token=•••&y=1"),
        ("KeyError: {'password': 'abc'}", "KeyError: {'password': •••}"),
        ("AuthenticationError: not allowed", "AuthenticationError: not allowed"),
    ],
)
def test_secrets_in_a_message_are_masked(message: str, shown: str) -> None:
    assert script(message) == shown
