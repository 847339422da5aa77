"""The supervisor in front of other torches: what it asks of PyTorch is there in old ones, or it does without.

Nothing but the wheel, its extra `cli` and that torch is in the environment. From the registry come builds for CUDA;
they are installed without what can be left out on CPUs, as requirements/torch-*.txt have it.
"""

from pathlib import Path

import psutil
import pytest
from ddpjob_operator.api import Cause

from tests.local.here import Here
from tests.support.waiting import patience
from tests.wheel import projects

WITHOUT_FLIGHT_RECORDER = {"2.4"}
"""Those that have none for gloo, and so cannot say in which collective a rank waits."""

LIMIT_SECONDS = 20

SCRIPT = """\
import os
import time

import ddpjob
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def hang():
    time.sleep(10_000)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
step = 0
while not ddpjob.stop_requested():
    if dist.get_rank() == 1 and os.path.exists("hang"):
        os.remove("hang")
        hang()
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step == 10:
        print("ten steps are made", flush=True)
    time.sleep(0.01)
print("stops as it was asked to", flush=True)
"""


@pytest.mark.full("tests/training and tests/strangers have all of it with this environment's torch, from the clone")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("torch", projects.torches("2.4", "2.8", "2.11"))
def test_a_script_is_tried_counted_restarted_examined_and_stopped_with_torch(
    project: Here, wheel: Path, torch: str
) -> None:
    projects.install_torch(project.bin, torch)
    projects.install(project.bin, f"{wheel}[cli]")
    (project.directory / "train.py").write_text(SCRIPT)
    words = ("ddpjob-supervise", "--preload", "torch.utils.data", "train.py")
    limits = {"preflight": "Full", "stallTimeoutSeconds": LIMIT_SECONDS}
    run = project.start("run", project.job("any", *words, nodes=2, backend="Gloo", **limits))
    project.wait("steps", lambda: project.status("any").get("progress", {}).get("step", 0) > 20)
    assert "preflight: all_reduce of 16 MiB over 2 ranks: the sum is right" in project.log("any", 0)
    assert [has_torch(process) for process in supervisors(project)] == [False, False]

    project.ranks("any")[-1].kill()
    project.wait("the restart", lambda: project.status("any")["restarts"] == 1)
    assert project.status("any")["incidents"][0]["signal"] == "SIGKILL"
    await_training(project, 2)

    (project.directory / "hang").touch()
    project.wait("the next restart", lambda: project.status("any")["restarts"] == 2)
    failure = project.status("any")["incidents"][0]
    assert (failure["cause"], failure["node"]) == (Cause.STALLED, 1), failure
    assert failure["message"] == "rank 1 did not enter the collective: it is in hang (train.py:11)", failure
    assert 'File "train.py", line 11 in hang' in (log := project.log("any", 1)), log
    assert "does not tell" not in log, log
    waits = "it waits in gloo:all_reduce" in (log := project.log("any", 0))
    assert waits is (torch not in WITHOUT_FLIGHT_RECORDER), log
    await_training(project, 3)

    assert project.ddpjob("stop", "any")[0] == 0
    output, _ = run.communicate(timeout=patience(120))
    assert run.returncode == 130, output
    assert output.count("stops as it was asked to") == 2, output


def await_training(project: Here, times: int) -> None:
    """Waits until both ranks train for the so many-th time, in place."""
    project.wait(
        f"attempt {times}", lambda: all(project.log("any", rank).count("ten steps") == times for rank in (0, 1))
    )
    assert f"attempt {times} begins in place" in project.log("any", 1)


def supervisors(project: Here) -> list[psutil.Process]:
    """Of both nodes."""
    return [one for one in project.processes("any") if "bin/ddpjob-supervise" in " ".join(one.cmdline())]


def has_torch(process: psutil.Process) -> bool:
    """Whether a process has loaded it."""
    return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()
