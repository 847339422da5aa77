"""The trainer with other torches: the oldest that it accepts, that of many images for GPUs, and this environment's.

Some of the trainer's tests run with that torch and the wheel, beside the other packages of this environment. Together
they try all that the trainer asks of PyTorch.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.local.here import Here
from tests.wheel import projects

CHOSEN = (
    "tests/unit/trainer",
    *(f"tests/training/test_{name}.py" for name in ("groups", "saver", "communication", "computing", "inference")),
    *(f"tests/training/test_{name}.py" for name in ("failures", "traps")),
)


@pytest.mark.full("tests/unit/trainer and tests/training have it with this environment's torch, from the clone")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("torch", projects.torches("2.8", "2.11"))
def test_the_trainers_tests_pass_with_torch(project: Here, wheel: Path, torch: str) -> None:
    projects.install_torch(project.bin, torch)
    projects.install_rest(project.bin, torch)
    projects.install(project.bin, "--no-deps", str(wheel))
    words = [project.bin / "python", "-m", "pytest", "-m", "not full", *CHOSEN]
    path = os.pathsep.join([str(project.bin), os.environ["PATH"]])
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(words, cwd=ROOT, env=variables | {"PATH": path}, check=True)
