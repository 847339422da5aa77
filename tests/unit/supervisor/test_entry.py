"""The first lines of `ddpjob-supervise`."""

import subprocess
import sys


def test_without_its_libraries_it_says_in_one_line_how_to_have_them() -> None:
    script = "import sys; sys.modules['msgspec'] = None; from ddpjob_supervisor.entry import supervise; supervise()"
    done = subprocess.run([sys.executable, "-c", script, "-m", "json"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} lacks msgspec: ")
    assert "ddpjob[cli]" in line
