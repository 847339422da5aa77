"""The docker engine that is brought up where there is none."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.plant import cgroups
from tests.plant.directory import plant_directory
from tests.plant.real.plant import NODES
from tests.support.waiting import wait_for

HOLD = "docker run --detach --privileged $NODE >/dev/null; echo $DOCKER_HOST; exec sleep infinity"
"""A node of kind, with systemd and what it starts, and the way to the engine that has it."""


def running(pid: int, names: set[str]) -> list[psutil.Process]:
    """All that a process has started, once these are among it."""
    with suppress(psutil.NoSuchProcess):
        programs = psutil.Process(pid).children(recursive=True)
        if names <= {program.name() for program in programs}:
            return programs
    return []


def test_nothing_of_an_engine_outlives_who_started_it() -> None:
    """By `kill -9`; what is left on the disk, the next start removes."""
    if "LOAD" not in os.environ:
        pytest.skip("left out: docker is there, so no engine is brought up")
    command = [sys.executable, "-m", "tests.plant.kind", "run", "sh", "-euc", HOLD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        try:
            folder = Path(holder.stdout.readline().strip().removeprefix("unix://")).parent
            programs = wait_for("a node of kind", lambda: running(holder.pid, {"dockerd", "containerd", "systemd"}))
            assert f"{folder.name}-kind" in cgroups.names()
        finally:
            holder.kill()
    assert not psutil.wait_procs(programs, timeout=30)[1]
    assert str(folder) not in Path("/proc/mounts").read_text()
    with plant_directory(NODES):
        pass
    assert not folder.exists()
    assert f"{folder.name}-kind" not in cgroups.names()
