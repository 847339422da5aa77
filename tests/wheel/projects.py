"""Projects of others: an environment with a torch of its own, in which only the wheel is installed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import ROOT
from tests.plant.build import uv

BIN = Path(sys.executable).parent
UV = str(uv() or "uv")
REQUIREMENTS = ROOT / "requirements"

LAST_PYTHON = {"2.4": (3, 12), "2.8": (3, 13), "2.11": (3, 14)}
"""Of Python there is a build of each old torch for."""

OWN = "own"
"""The torch of this environment."""


def torches(*old: str) -> list[object]:
    """Parameters of a test: these old torches, where this Python has them, and that of this environment."""
    return [
        OWN,
        *(
            pytest.param(
                torch,
                marks=pytest.mark.skipif(
                    sys.version_info[:2] > LAST_PYTHON[torch], reason=f"no torch {torch} for it"
                ),
            )
            for torch in old
        ),
    ]


def environment(directory: Path) -> Path:
    """Makes a virtual environment with nothing in it, and gives the directory of its programs."""
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, directory], check=True)
    return directory / "bin"


def install(programs: Path, *what: str) -> None:
    """Installs into an environment."""
    subprocess.run([UV, "pip", "install", "--quiet", "--python", programs / "python", *what], check=True)


def install_locked(programs: Path, lock: Path, *options: str) -> None:
    """Installs what a lock file names, and nothing else."""
    install(programs, "--no-deps", "--require-hashes", "--requirement", str(lock), *options)


def install_torch(programs: Path, torch: str) -> None:
    """Installs an old torch with its torchvision, or links the torch of this environment."""
    if torch == OWN:
        link(programs, "torch")
    else:
        # 4 to 5 GB would stay in the cache.
        install_locked(programs, REQUIREMENTS / f"torch-{torch}.txt", "--no-cache")


def link(programs: Path, *names: str) -> None:
    """Puts packages of this environment into another one, with what they need: to install torch takes minutes."""
    (site,) = programs.parent.glob("lib/python*/site-packages")
    for name in names:
        for package in _with_needs(name):
            tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
            for top in tops:
                if not (site / top).exists():
                    (site / top).symlink_to(Path(str(package.locate_file(top))))


def install_rest(programs: Path, torch: str) -> None:
    """Beside a torch, installs all other packages of this environment."""
    left_out = {package.name for package in _with_needs("torch")} | (set() if torch == OWN else {"torchvision"})
    packages = re.split(r"^(?=[\w.-]+==)", (REQUIREMENTS / "dev.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    rest = programs.parent / "rest.txt"
    rest.write_text("".join(package for package in packages if package.partition("==")[0] not in left_out))
    install_locked(programs, rest)


def _with_needs(name: str, extras: frozenset[str] = frozenset()) -> Iterator[Distribution]:
    package = distribution(name)
    yield package
    for line in package.requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield from _with_needs(needed.name, frozenset(needed.extras))


def build(directory: Path) -> Path:
    """Builds the wheel as `make wheel` does."""
    subprocess.run(["make", "--silent", "-C", a_clone(directory), "wheel"], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = directory.glob("dist/*.whl")
    return wheel


def a_clone(directory: Path) -> Path:
    """Makes a directory with what of the clone a wheel is built from."""
    directory.mkdir()
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE", "requirements", "operator", "trainer"):
        (directory / name).symlink_to(ROOT / name)
    return directory


def variables(home: Path, programs: Path) -> dict[str, str]:
    """The environment is active, and nothing of this project's is on any path."""
    tools = home / "tools"
    tools.mkdir(parents=True)
    (tools / "uv").symlink_to(UV)
    cache = subprocess.run([UV, "cache", "dir"], check=True, capture_output=True, text=True).stdout.strip()
    paths = [path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != BIN]
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(programs), str(tools), *paths]),
        "PYTHONPATH": "",
        "UV_CACHE_DIR": cache,
        "VIRTUAL_ENV": str(programs.parent),
    }
