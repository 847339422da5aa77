"""What programs say that were installed without the libraries they need."""

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
    ],
)
def test_a_program_names_the_extra_that_it_was_installed_without(
    program: str, argument: str, lacks: str, extra: str
) -> None:
    scripts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    command = [sys.executable, "-c", BEGIN, lacks, scripts[program], argument]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.endswith(
        f"{sys.executable} lacks {lacks}: ddpjob was installed without its extra {extra}; install it as"
        f" ddpjob[{extra}], from where it came\n"
    )
    assert (ended.stderr.count("\n"), ended.returncode) == (1, 2)
