"""What the images hold is what is tested: their lock files and that of the environment agree."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.wheel import projects

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([\w.-]+)==.*?(?= \\$)", re.MULTILINE)
NAME = re.compile(r"^[\w.-]+")
FLOOR = re.compile(r"^([\w.-]+)>=([\d.]+)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> dict[str, list[str]]:
    """The lines of a lock file that name a version, by package: on some platforms it is another."""
    found: dict[str, list[str]] = {}
    for match in PIN.finditer((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")):
        found.setdefault(match[1], []).append(match[0])
    return found


@pytest.mark.parametrize("image", ["operator", "trainer"])
def test_an_image_has_what_the_project_asks_for_in_the_versions_of_the_environment(image: str) -> None:
    asked = {NAME.match(one)[0] for one in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][image])}
    locked, tested = pins(image), pins("dev")
    assert asked <= set(locked), "bring it up to date with: make lock"
    assert {one: versions(lines) for one, lines in locked.items()} == {one: versions(tested[one]) for one in locked}


def test_the_oldest_torch_that_the_trainer_accepts_is_tested() -> None:
    floors = dict(FLOOR.match(one).groups() for one in PROJECT["optional-dependencies"]["trainer"] if "torch" in one)
    assert floors["torch"] in projects.LAST_PYTHON
    tested = pins(f"torch-{floors['torch']}")
    assert {name: tested[name][0].rpartition(".")[0] for name in floors} == {
        name: f"{name}=={floor}" for name, floor in floors.items()
    }


def versions(lines: list[str]) -> set[str]:
    return {line.partition(" ")[0] for line in lines}
