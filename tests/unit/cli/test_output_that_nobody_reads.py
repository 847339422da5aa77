"""A command whose output nobody reads any more still ends with its own exit code, not with Python's 120."""

import os
import subprocess
import sys

import pytest

INTERRUPTED = 130
PROGRAM = f"""
import sys
from ddpjob_operator.cli.screen import complain, drop_output
print("the rest", end="")
drop_output()
complain("somebody closed the output")
sys.exit({INTERRUPTED})
"""


@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")], ids="+".join)
def test_the_exit_code_is_kept_where_output_was_closed(streams: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outputs = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL) | dict.fromkeys(streams, writing)
    # Unbuffered, nothing would be left to write at the exit.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=buffered, check=False, **outputs)  # type: ignore[call-overload]
    os.close(writing)
    assert done.returncode == INTERRUPTED
