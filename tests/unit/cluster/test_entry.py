"""What programs import at their start, and what they say if it is not installed."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
BEGIN = """\
import sys, importlib
lacks, begin, *sys.argv[1:] = sys.argv[1:]
sys.modules[lacks] = None
module, _, name = begin.partition(":")
getattr(importlib.import_module(module), name)()
"""


@pytest.mark.parametrize(
    ("program", "argument", "lacks", "extra"),
    [
        ("ddpjob-operator", "--help", "kopf", "operator"),
        ("ddpjob-train", "--epochs=1", "torch", "trainer"),
        ("ddpjob", "ls", "psutil", "cli"),
    ],
)
def test_a_program_names_the_extra_that_it_was_installed_without(
    program: str, argument: str, lacks: str, extra: str
) -> None:
    scripts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    command = [sys.executable, "-c", BEGIN, lacks, scripts[program], argument]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.endswith(
        f"{sys.executable} lacks {lacks}: ddpjob was installed without the extra `{extra}`;"
        f" install ddpjob[{extra}] from the same source\n"
    )
    assert (ended.stderr.count("\n"), ended.returncode) == (1, 2)


@pytest.mark.parametrize(
    ("program", "argument", "lacks"),
    [
        ("ddpjob-operator", "--help", "ddpjob_operator.cluster.command"),
        ("ddpjob", "ls", "ddpjob_operator.cli.commands"),
    ],
)
def test_a_part_of_its_own_that_is_missing_is_no_missing_extra(program: str, argument: str, lacks: str) -> None:
    scripts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    command = [sys.executable, "-c", BEGIN, lacks, scripts[program], argument]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (f"ModuleNotFoundError: import of {lacks}" in ended.stderr, ended.returncode) == (True, 1)


IMPORTED = """\
import atexit, importlib, sys
begin, *sys.argv[1:] = sys.argv[1:]
atexit.register(lambda: print(*(name for name, module in sys.modules.items() if module), file=sys.stderr))
module, _, name = begin.partition(":")
main = getattr(importlib.import_module(module), name)
if sys.argv[1:]:
    main()
"""
OF_THE_OPERATOR = {"aiohttp", "kopf", "msgspec", "prometheus_client"}
OF_THE_COMMAND = {"jsonschema", "kubernetes", "matplotlib", "psutil", "rich"}
OF_ALL = {"asyncio", "pydantic", "ssl", "yaml"}


@pytest.mark.parametrize(
    ("program", "arguments", "not_needed"),
    [
        ("ddpjob-operator", [], OF_ALL | OF_THE_OPERATOR | OF_THE_COMMAND),
        ("ddpjob-operator", ["--help"], OF_THE_COMMAND),
        ("ddpjob", ["--help"], OF_ALL | OF_THE_OPERATOR | OF_THE_COMMAND),
        ("ddpjob", ["run", "--help"], OF_ALL | OF_THE_OPERATOR | OF_THE_COMMAND),
    ],
)
def test_a_program_imports_at_its_start_only_what_it_needs(
    program: str, arguments: list[str], not_needed: set[str]
) -> None:
    scripts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    command = [sys.executable, "-c", IMPORTED, scripts[program], *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not not_needed & set(ended.stderr.split())
