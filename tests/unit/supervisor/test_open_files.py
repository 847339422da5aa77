"""How many files a supervisor may have open, and how many what it starts."""

import subprocess
import sys

import pytest

from tests.support.waiting import patience

PROGRAM = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
from ddpjob_supervisor.node import open_files

shell = [sys.executable, "-c", "import resource; input(); print(resource.getrlimit(resource.RLIMIT_NOFILE))"]
open_files.raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
with subprocess.Popen(shell, stdin=subprocess.PIPE, text=True) as child:
    open_files.restore_limit(child.pid)
    child.communicate("\\n")
open_files.restore_limit(child.pid)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets the limits of another process")
def test_a_supervisor_takes_all_that_it_may_and_gives_what_it_starts_the_limit_that_it_found() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=patience(60)
    )
    assert sorted(done.stdout.splitlines()) == ["(100, 200)", "(200, 200)"]
