"""What a machine needs in order to host a size of the plant."""

import os
import shutil
import sys

import pytest

from . import build
from .real import machine

SIZES = ("api", "fake", "real")


def what_this_machine_lacks(size: str) -> str | None:
    """Why this machine cannot host a size, in a few words; None if it can."""
    if sys.platform != "linux":
        return "it is not Linux"
    if not shutil.which("setpriv"):
        return "setpriv (of util-linux) is not on PATH"
    if size == "real" and (lack := machine.what_is_lacking()):
        return lack
    return build.what_is_lacking()


def demand(size: str) -> None:
    """If the machine cannot host the size, skips the test, or fails it if no test may be skipped."""
    if not (lack := what_this_machine_lacks(size)):
        return
    leave_out(f"left out: the plant's size {size} cannot run here ({lack}); run it on Linux, as root, with Go")


def leave_out(message: str) -> None:
    """Skips the test, or fails it if no test may be skipped."""
    if is_required():
        pytest.fail(message)
    pytest.skip(message)


def is_required() -> bool:
    """Whether no test may be skipped."""
    return os.environ.get("CI") == "true" or os.environ.get("PLANT_REQUIRED") == "1"
