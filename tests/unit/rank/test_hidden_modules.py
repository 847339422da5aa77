"""A file beside a program that has the name of a module of the standard library is named where it does harm."""

import sys
from pathlib import Path

import pytest
from ddpjob_rank.failure import traps
from ddpjob_rank.failure.hidden_modules import hidden_module


def caught(text: str, file: str = "train.py") -> Exception:
    try:
        exec(compile(text, file, "exec"), {})
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return error
    raise AssertionError(text)


NAMED = {
    "from queue import push": "queue.py",
    "import queue; queue.push": "queue.py",
    "import email.nothing": "email/__init__.py",
}


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in (*NAMED.values(), "model.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path[1:]])
    return tmp_path


@pytest.mark.parametrize(("text", "file"), NAMED.items(), ids=NAMED)
def test_a_file_that_hides_a_module_or_is_hidden_by_it_is_named(beside: Path, text: str, file: str) -> None:
    told = traps.known_mistake(caught(text))
    assert str(told).startswith(f"{beside / file} has the name of a module of Python's standard library"), told


@pytest.mark.parametrize(
    "text", ["from json import nothing", "import nosuch", "import model; model.nothing", "1 / 0"]
)
def test_other_errors_are_not_blamed_on_it(beside: Path, text: str) -> None:
    assert hidden_module(caught(text), str(beside)) is None
    assert hidden_module(caught("1 / 0", str(beside / "queue.py")), str(beside)) is None


def test_a_file_that_fails_in_place_of_the_module_is_named_before_the_program_has_run(beside: Path) -> None:
    error = caught("1 / 0", str(beside / "queue.py"))
    assert "queue.py has the name" in str(hidden_module(error, str(beside), own_code=False))
