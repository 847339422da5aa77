"""How this command is called, so that what it advises can be typed as it is."""

import shutil
import sys
from pathlib import Path

PROGRAM = "ddpjob"
PLUGIN = "kubectl-ddpjob"
"""Under this name on PATH kubectl finds the command, as `kubectl ddpjob`."""


def called_by_kubectl() -> bool:
    """Whether this is `kubectl ddpjob`."""
    return Path(sys.argv[0]).stem == PLUGIN


def itself() -> str:
    """The command as its user calls it, so that what it advises can be pasted."""
    called = sys.argv[0]
    if called_by_kubectl():
        return "kubectl ddpjob"
    by_path = Path(called).name == PROGRAM and called != shutil.which(PROGRAM)
    return called if by_path else PROGRAM
