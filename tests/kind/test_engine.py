"""The docker engine that is brought up where there is none."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.plant import cgroups
from tests.plant.directory import plant_directory
from tests.plant.real.plant import NODES

HOLD = "docker run --detach --privileged $NODE >/dev/null; echo $DOCKER_HOST; exec sleep infinity"
"""A node of kind, with systemd and what it starts, and the way to the engine that has it."""


def test_nothing_of_an_engine_outlives_who_started_it() -> None:
    """By `kill -9`; what is left on the disk, the next start removes."""
    if "LOAD" not in os.environ:
        pytest.skip("left out: docker is there, so no engine is brought up")
    command = [sys.executable, "-m", "tests.plant.kind", "run", "sh", "-euc", HOLD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        folder = Path(holder.stdout.readline().strip().removeprefix("unix://")).parent
        programs = psutil.Process(holder.pid).children(recursive=True)
        assert {"dockerd", "containerd", "systemd"} <= {program.name() for program in programs}
        assert f"{folder.name}-kind" in cgroups.names()
        os.kill(holder.pid, signal.SIGKILL)
    assert not psutil.wait_procs(programs, timeout=30)[1]
    assert str(folder) not in Path("/proc/mounts").read_text()
    with plant_directory(NODES):
        pass
    assert not folder.exists()
    assert f"{folder.name}-kind" not in cgroups.names()
