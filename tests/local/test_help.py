"""What asking for help costs."""

import os
import subprocess

from tests.local.here import BIN


def test_help_comes_before_anybody_has_to_wait_for_it() -> None:
    with subprocess.Popen([BIN / "ddpjob", "--help"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read().startswith("usage: ddpjob ")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    seconds = used.ru_utime + used.ru_stime
    assert seconds <= 0.3, f"{seconds:.2f} s of CPU time: something slow is imported before the arguments are read"
