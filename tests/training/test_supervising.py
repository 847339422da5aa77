"""`ddpjob-supervise` in front of a script that knows nothing of it, with PyTorch."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for

SCRIPT = """
import os, resource, sys
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(512, 512))
for step in range(3):
    model(torch.randn(64, 512)).sum().backward()
total = torch.ones(1)
dist.all_reduce(total)
threads, files = torch.get_num_threads(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
os.write(1, f"{dist.get_rank()} of {int(total)}: {threads} threads, {files} files, {sys.argv[1:]}\\n".encode())
if sys.argv[1:] == ["fail"] and dist.get_rank() == 1:
    raise ValueError("no good")
dist.destroy_process_group()
"""


COLD = pytest.mark.full("test_ranks_of_a_node.py has ranks started cold, without PyTorch")

FILES = 512
"""That may be open, as a shell would have it: less than a supervisor takes for itself."""


KILLED_ONCE = """
import os, time
if os.environ["DDPJOB_ATTEMPT"] == "1":
    os.kill(os.getpid(), 9)
open("again", "w").close()
time.sleep(100)
"""


def node(directory: Path) -> dict[str, str]:
    """The environment of a node with two ranks."""
    return {
        "NNODES": "1",
        "NODE_RANK": "0",
        "NPROC_PER_NODE": "2",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(hold_port()),
        "DDPJOB_TERMINATION_LOG": str(directory / "report"),
    }


def supervise(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(
        [
            "sh",
            "-c",
            f'ulimit -Sn {FILES} && exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "ddpjob_supervisor",
            *words,
        ],
        env=clean | node(directory),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "method"),
    [
        (["-m", "train"], "warm"),
        pytest.param(["train.py"], "warm", marks=pytest.mark.full("test_in_place.py has gangs of scripts")),
        pytest.param(["-m", "train"], "cold", marks=COLD),
        pytest.param(["train.py"], "cold", marks=COLD),
    ],
    ids=["a module, warm", "a script, warm", "a module, cold", "a script, cold"],
)
def test_the_ranks_of_a_node_train_together(directory: Path, program: list[str], method: str) -> None:
    done = supervise(directory, "--start-method", method, *program, "--lr", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    said = sorted(line for line in done.stdout.splitlines() if not line.startswith("[Gloo]"))  # Of torch 2.8.
    assert said == [f"{rank} of 2: {threads} threads, {FILES} files, ['--lr', '0.1']" for rank in range(2)]


@pytest.mark.full("test_ranks_of_a_node.py has the same without PyTorch")
def test_an_error_of_a_script_that_writes_no_report_is_reported(directory: Path) -> None:
    done = supervise(directory, "train.py", "fail")
    assert done.returncode == 1
    assert "ValueError: no good" in done.stderr
    report = json.loads((directory / "report").read_text())
    assert (report["rank"], report["exception"], report["message"]) == (1, "ValueError", "no good")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "error: no program is given: name a script, or a module after -m"),
        (["nothing.py"], "error: there is no script nothing.py in "),
        (["--fast", "train.py"], "error: unrecognized arguments"),
        (["--start-method", "hot", "train.py"], "error: argument --start-method: invalid choice: 'hot'"),
        (["--start-method", "cold", "--preload", "json", "train.py"], "error: --preload needs --start-method warm"),
        pytest.param(
            *(
                ["--max-restarts", "3", "--preload", "nosuch", "train.py"],
                "error: cannot import nosuch, which is imported before the ranks",
            ),
            marks=pytest.mark.full("test_starting.py has the message, without PyTorch before it"),
        ),
    ],
    ids=[
        "no program",
        "no such script",
        "an unknown flag",
        "an unknown method",
        "nothing to preload into",
        "no module",
    ],
)
def test_a_wrong_call_gets_one_clear_line(directory: Path, words: list[str], said: str) -> None:
    done = supervise(directory, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_supervisor_whose_output_nobody_reads_restarts_its_ranks_answers_and_stops(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED_ONCE)
    (tmp_path / "queue.py").write_text("raise SystemExit('it is not the standard library')\n")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    port = hold_port()
    job = {"DDPJOB_STATUS_PORT": str(port), "DDPJOB_CONTROL_PORT": str(hold_port()), "DDPJOB_IN_PLACE_RESTARTS": "3"}
    command = [sys.executable, "-m", "ddpjob_supervisor", "--start-method", "cold", "train.py"]
    env = os.environ | node(tmp_path) | job
    with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=writer, stderr=writer) as supervisor:
        try:
            wait_for("the second attempt", (tmp_path / "again").exists)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=patience(10)) as answer:
                assert json.load(answer)["attempt"] == 2
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(patience(20)) == 205
        finally:
            supervisor.kill()
            os.close(reader)
            os.close(writer)
