"""`ddpjob checkpoint`, from the command to the file and back, with real processes."""

import re
import signal
import time
from typing import Any

import psutil

from tests.local.here import BIN, Here

NAME = "asked"
SUPERVISE = (str(BIN / "ddpjob-supervise"), "--start-method", "cold", "train.py")
SCRIPT = """
import os, threading, time
import ddpjob

requested, attempt, listens = threading.Event(), os.environ["DDPJOB_ATTEMPT"], False
for step in range(1, 1_000_000):
    time.sleep(0.02)
    ddpjob.report(step=step)
    if not listens and os.path.exists("saves"):
        ddpjob.on_save_request(requested.set)
        listens = True
        print("listens", flush=True)
    if requested.is_set():
        requested.clear()
        time.sleep(0.2)
        print(f"attempt {attempt}: saved", flush=True)
        ddpjob.report(checkpoint=step)
"""


def begin(here: Here, *command: str, **spec: Any) -> None:
    """Starts a job, and waits for its first step."""
    here.start("run", here.job(NAME, *command, nodes=2, **spec))
    here.wait("a first step", lambda: here.status(NAME).get("progress", {}).get("step"))


def test_a_script_saves_when_it_is_asked_once_for_each_request(here: Here) -> None:
    (here.directory / "train.py").write_text(SCRIPT)
    begin(here, *SUPERVISE, restart={"mode": "InPlace", "backoffSeconds": 0})
    code, output = here.ddpjob("checkpoint", NAME)
    assert (code, "ddpjob.on_save_request" in output) == (1, True), "it does not save on request yet"
    (here.directory / "saves").touch()
    here.wait("a script that saves", lambda: "listens" in here.log(NAME, 0))
    for number in (1, 2):
        before = here.status(NAME)["progress"]["step"]
        code, output = here.ddpjob("checkpoint", NAME)
        assert code == 0, output
        step = int(re.findall(r"the checkpoint of step (\d+) is complete", output)[0])
        status = here.status(NAME)
        assert step >= before
        assert (status["checkpoint"]["step"], status["requestedCheckpoint"]["step"]) == (step, step)
        logs = [here.log(NAME, rank) for rank in (0, 1)]
        assert [log.count("saved") for log in logs] == [number, 0], "only rank 0 is asked"
    (rank,) = (process for process in here.processes(NAME) if _is_rank(process, "1"))
    rank.send_signal(signal.SIGKILL)
    here.wait("a second attempt", lambda: here.status(NAME).get("progress", {}).get("attempt") == 2)
    time.sleep(1)  # Two looks of the supervisor.
    assert "attempt 2: saved" not in here.log(NAME, 0), "a request is not repeated in another attempt"
    assert here.ddpjob("checkpoint", NAME)[0] == 0
    assert here.log(NAME, 0).count("attempt 2: saved") == 1


def _is_rank(process: psutil.Process, rank: str) -> bool:
    return "DDPJOB_HEARTBEAT" in process.environ() and process.environ()["RANK"] == rank


def test_ddpjob_train_saves_the_step_in_which_it_is_asked(here: Here) -> None:
    arguments = ["--workload", "mlp", "--data", "digits", "--epochs", "1000000", "--global-batch-size", "64"]
    checkpoint = {"path": "/checkpoints", "everySteps": 10_000_000}
    begin(here, "ddpjob-train", checkpoint=checkpoint, container={"args": arguments})
    code, output = here.ddpjob("checkpoint", NAME)
    assert code == 0, output
    step = int(re.findall(r"the checkpoint of step (\d+) is complete", output)[0])
    directory = here.run(NAME) / "volumes" / "checkpoints" / f"step-{step:08}"
    assert (directory / "manifest.json").exists(), "it is complete when the command says so"
