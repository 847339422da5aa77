"""`ddpjob export CHECKPOINT_DIR -o FILE`: runs the library's program that writes weights into a file."""

import argparse
import importlib.util
import subprocess
import sys

from ddpjob_operator.api import BadInputError

PROGRAM = "ddpjob.checkpoint.weights"
"""This runs as a separate program, because it needs torch, which `ddpjob` itself does not need."""


def export(arguments: argparse.Namespace) -> int:
    """Runs the library's program, and returns its exit code.

    Raises:
        BadInputError: This Python lacks torch.
    """
    if importlib.util.find_spec("torch") is None:
        raise BadInputError(
            f"{sys.executable} lacks torch, which is needed to read checkpoints: install ddpjob into the environment "
            "that has your torch, or install torch into this one"
        )
    words = (arguments.directory, "--output", arguments.output, "--thing", arguments.thing)
    # -P: a file called torch.py in the working directory is not imported.
    return subprocess.run([sys.executable, "-P", "-m", PROGRAM, *map(str, words)], check=False).returncode
