"""What a page shows of commands and variables: no secret."""

from collections.abc import Iterable, Iterator

import pytest
from ddpjob_operator.view_model import Mask


def value(name: str, text: str) -> str:
    return Mask().value(name, text)


def words(command: Iterable[str]) -> Iterator[str]:
    return Mask().words(command)


def script(text: str) -> str:
    return Mask().script(text)


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


TOKEN = "hf_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3g"


@pytest.mark.parametrize("text", [f"x = {TOKEN}", f"401: {TOKEN!r} is not valid", f"['{TOKEN}', 1]"])
def test_what_looks_secret_is_masked_whatever_its_name(text: str) -> None:
    assert script(text) == text.replace(f"'{TOKEN}'", "'•••'").replace(TOKEN, "•••")


def test_a_value_once_known_as_secret_is_masked_wherever_it_stands() -> None:
    mask = Mask()
    assert mask.value("DB_PASSWORD", "correct-horse") == "•••"
    assert list(mask.words(["train.py", "--token", "s3cr3t-w0rd"])) == ["train.py", "--token", "•••"]
    assert mask.script("no login as me with correct-horse or s3cr3t-w0rd") == "no login as me with ••• or •••"


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=correct-horse train.py",
        "train.py --api-key correct-horse",
        "export HF_TOKEN='correct-horse'; train.py",
        "curl -H 'Authorization: Bearer correct-horse' host",
        "git clone https://me:correct-horse@host/code",
        'token: str = "correct-horse"',
        '{"api_key": "correct-horse"}',
    ],
)
def test_a_value_once_seen_as_secret_in_a_script_is_masked_wherever_it_stands(text: str) -> None:
    mask = Mask()
    assert "correct-horse" not in mask.script(text)
    assert mask.script("no login with correct-horse, said the server") == "no login with •••, said the server"


@pytest.mark.parametrize("text", ["1", "4096", "true", "none", "short"])
def test_a_short_word_or_a_number_is_masked_where_its_name_says_so_alone(text: str) -> None:
    mask = Mask()
    assert mask.value("max_tokens", text) == "•••"
    assert mask.script(f"x {text}") == f"x {text}"


def test_a_number_is_masked_in_what_the_user_has_set_however_deep_and_not_in_what_was_measured() -> None:
    mask, told = Mask(), {"tokens": 31337, "also": {"token": [1, 2], "batch": 8}}
    assert mask._field("options", told) == {"tokens": "•••", "also": {"token": ["•••", "•••"], "batch": "8"}}
    assert mask._field("metrics", told) == told
