"""Debian packages that tests need."""

import fcntl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.plant.real import machine


def install(packages: Mapping[str, str]) -> None:
    """Installs the packages of commands or files that are missing. Only one test at a time does so."""
    with Path(tempfile.gettempdir(), "ddpjob-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine.install_missing(packages)
