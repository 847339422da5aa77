"""A supervisor hears all that it and its children print, in order, and nobody notices: real processes and pipes."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, subprocess, sys
from ddpjob_supervisor.history.tee import Tee, is_wanted
heard = []
assert is_wanted()
tee = Tee(lambda stream, chunk: heard.append(chunk))
print("first", flush=True)
for number in range(20):
    os.write(2, f"error {number}\\n".encode())
    subprocess.run([sys.executable, "-S", "-c", f"print('child {number}')"], check=True)
tee.close(10)
print("after", flush=True)
open(sys.argv[1], "wb").write(b"".join(heard))
"""


@pytest.mark.parametrize("same", [True, False])
def test_all_that_is_printed_is_passed_on_and_heard(tmp_path: Path, same: bool) -> None:  # noqa: FBT001
    heard = tmp_path / "heard"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, heard],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if same else subprocess.PIPE,
        check=True,
    )
    errors, children = ([f"{what} {number}".encode() for number in range(20)] for what in ("error", "child"))
    lines = heard.read_bytes().splitlines()
    if same:
        pairs = [line for pair in zip(errors, children, strict=True) for line in pair]
        assert lines == [b"first", *pairs]
        assert done.stdout.splitlines() == [*lines, b"after"]
    else:
        assert [line for line in lines if line in errors] == errors == done.stderr.splitlines()
        assert [b"first", *children, b"after"] == done.stdout.splitlines()
        assert [line for line in lines if line not in errors] == [b"first", *children]


LARGE = """
import os, sys
from ddpjob_supervisor.history.tee import Tee
heard = 0
def hear(stream, chunk):
    global heard
    heard += len(chunk)
tee = Tee(hear)
for _ in range(200):
    os.write(1, b"." * 65536)
tee.close(60)
os.write(2, str(heard).encode())
"""


def test_a_slow_reader_gets_everything_and_whoever_prints_waits_for_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    read = 0
    while chunk := process.stdout.read(1 << 20):
        read += len(chunk)
    assert read == 200 * 65536
    assert process.communicate()[1] == b"%d" % read


GONE = """
import os, signal
from ddpjob_supervisor.history.tee import Tee
tee = Tee(lambda stream, chunk: os.write(5, chunk))
for number in range(100):
    os.write(1, b"%d\\n" % number)
tee.close(10)
"""


def test_what_nobody_reads_any_more_is_still_heard() -> None:
    reader, writer = os.pipe()
    heard, heard_writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.dup2({heard_writer}, 5)\n{GONE}"],
        stdout=writer,
        stderr=subprocess.DEVNULL,
        pass_fds=[heard_writer],
    )
    os.close(writer)
    os.close(heard_writer)
    with os.fdopen(heard, "rb") as content:
        assert content.read() == b"".join(b"%d\n" % number for number in range(100))
    assert process.wait() == 0


LEFT = """
import subprocess, sys, time
from ddpjob_supervisor.history.tee import Tee
tee = Tee(lambda stream, chunk: None)
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
began = time.monotonic()
tee.close(0.2)
print(time.monotonic() - began)
"""


def test_a_process_that_is_left_behind_delays_the_end_only_so_long() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LEFT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert 0.2 <= float(process.stdout.readline()) < 5
    os.killpg(process.pid, 9)
    process.communicate()


LAST = """
import os
from ddpjob_supervisor.history.tee import Tee
tee = Tee(lambda stream, chunk: None)
os.write(1, b"." * 100_000)
os.write(1, b"Traceback")
tee.close(0.01)
"""


def test_the_last_words_reach_a_log_that_is_read_slowly() -> None:
    with subprocess.Popen([sys.executable, "-c", LAST], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with contextlib.suppress(subprocess.TimeoutExpired):  # Its pipe is full.
            process.wait(1)
        assert process.stdout.read() == b"." * 100_000 + b"Traceback"
    assert process.returncode == 0


SHORT = """
import os, time
from ddpjob_supervisor.history.tee import Tee
heard = []
tee = Tee(lambda stream, chunk: heard.append(chunk))
for number in range(100):
    os.write(1, b"%d\\n" % number)
    time.sleep(0.005)
tee.close(10)
os.write(2, b"%d" % len(heard))
assert b"".join(heard) == b"".join(b"%d\\n" % number for number in range(100))
"""


def test_short_lines_that_come_quickly_are_passed_on_together() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, check=True)
    assert done.stdout.splitlines() == [b"%d" % number for number in range(100)]
    assert int(done.stderr) < 50
