"""The wall clock of an operator's process, which tests set forwards and back. Its monotonic clock is not affected.

Debian's libfaketime does this: it answers in place of the system, and reads a file for each answer.
"""

import fcntl
import platform
import tempfile
from pathlib import Path

from tests.plant.real import machine

LIBRARY = f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1"
PACKAGES = {LIBRARY: "libfaketime"}


def what_is_lacking() -> str | None:
    """Why no clock can be set here, in a few words; None if one can be set."""
    if machine.missing(PACKAGES) and not machine.can_install():
        return "no libfaketime, and no apt-get to install it"
    return None


def install() -> None:
    """Installs what is missing."""
    with Path(tempfile.gettempdir(), "ddpjob-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Tests that run at the same time install the same packages.
        machine.install_missing(PACKAGES)


def environment(file: Path) -> dict[str, str]:
    """The environment of a process whose clock differs from the machine's by the amount in the file."""
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }


def set_clock(file: Path, seconds: int) -> None:
    """Sets by how many seconds the clock differs from now on."""
    new = file.with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.replace(file)
