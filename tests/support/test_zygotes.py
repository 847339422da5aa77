"""A zygote that is forked from the template is what its supervisor would have started, or it is started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .zygotes import forked_zygotes

PROGRAM = """
import json
from ddpjob_supervisor.node.zygote_process import Preload, start_zygote
zygote = start_zygote(Preload(modules=["encodings.idna"]))
line = zygote.connection.makefile().readline()
with open(f"/proc/{zygote.pid}/environ") as file:
    environment = file.read().split("\\0")
zygote.kill()
zygote.wait()
print(json.dumps([type(zygote.process).__name__, json.loads(line), "IT=so" in environment]))
"""
READY = '{"ready": true}'


def supervised(directory: Path, **environment: str) -> str:
    """What a supervisor that starts a zygote in a directory says of it."""
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        cwd=directory,
        env={**os.environ, **forked_zygotes(), "IT": "so", **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_a_zygote_is_forked_with_the_environment_of_its_supervisor(tmp_path: Path) -> None:
    assert supervised(tmp_path) == f'["Zygote", {READY}, true]'


@pytest.mark.parametrize(
    ("file", "environment"),
    [("queue.py", {}), ("torch/__init__.py", {}), ("mine.py", {"OMP_NUM_THREADS": "7"})],
    ids=["a module of the directory hides one", "so does a package", "the imports see another environment"],
)
def test_a_zygote_that_would_import_something_else_is_started(
    tmp_path: Path, file: str, environment: dict[str, str]
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert supervised(tmp_path, **environment) == f'["Popen", {READY}, true]'


def test_who_has_no_template_any_more_starts_zygotes(tmp_path: Path) -> None:
    assert supervised(tmp_path, ZYGOTE_TEMPLATE=str(tmp_path / "gone")) == f'["Popen", {READY}, true]'
