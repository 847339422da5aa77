"""How the user called this command. Messages repeat it, so that the commands in them can be pasted."""

import shutil
import sys
from pathlib import Path

PROGRAM = "ddpjob"
PLUGIN = "kubectl-ddpjob"
"""The name under which kubectl looks on PATH for the plugin `kubectl ddpjob`."""


def called_by_kubectl() -> bool:
    """Whether the command was called as `kubectl ddpjob`."""
    return Path(sys.argv[0]).stem == PLUGIN


def itself() -> str:
    """The command as the user called it: `kubectl ddpjob`, `ddpjob`, or a path if PATH finds another `ddpjob`."""
    called = sys.argv[0]
    if called_by_kubectl():
        return "kubectl ddpjob"
    by_path = Path(called).name == PROGRAM and called != shutil.which(PROGRAM)
    return called if by_path else PROGRAM
