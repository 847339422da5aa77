"""Runs `make mutants` in a small project of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IT = "operator/ddpjob_operator/it.py"
FILES = {
    "pyproject.toml": """
[tool.mypy]
files = ["operator"]
[tool.pytest.ini_options]
addopts = ["-q"]
[tool.coverage.run]
relative_files = true
""",
    "operator/ddpjob_operator/__init__.py": "",
    "trainer/ddpjob/__init__.py": "",
    "tests/unit/test_it.py": """
import os, pathlib, subprocess, sys
from ddpjob_operator.it import doubled, first

def test_that_fails_the_first_time():
    seen = pathlib.Path(os.environ["SEEN"])
    assert seen.exists() or seen.touch()

def test_both():
    assert doubled(3) == 6
    assert first([1]) == 1

def test_a_program():
    code = "from ddpjob_operator.it import in_a_program; assert in_a_program(3) == 6"
    subprocess.run([sys.executable, "-c", code], check=True)
""",
    IT: """
def doubled(number: int) -> int:
    return number + number

def first(numbers: list[int]) -> int:
    numbers.sort()
    return numbers[0]

def of_another_type(number: int) -> int:
    return number // number

def never(number: int) -> int:
    return number + number

def in_a_program(number: int) -> int:
    return number + number
""",
}


@pytest.mark.full("make mutants itself, each night")
def test_each_mutant_is_noticed_or_told(tmp_path: Path) -> None:
    for folder in ("mutants", "stages", "support"):
        shutil.copytree(ROOT / "tests" / folder, tmp_path / "tests" / folder)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "--quiet"], ["add", *FILES, ":!operator"], ["commit", "--message=x"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "tests.mutants", "--base=HEAD"]
    env = os.environ | {"PYTHONPATH": str(tmp_path), "SEEN": str(tmp_path / "seen")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [line.rpartition("py:")[2] for line in done.stdout.splitlines() if line.startswith(f"{IT}:")]
    assert told == ["6: survived", "13: not reached"], done.stdout
    assert "  - numbers.sort()\n  + pass\n" in done.stdout
