"""What supervisors do for a job on this machine: restarts in place, and progress in its status."""

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.local.here import BIN, Here, Started, alive
from tests.support.ports import hold_port
from tests.support.waiting import patience

TRAIN = (str(BIN / "ddpjob-train"), "--workload", "slow:Slow", "--data", "digits", "--epochs", "1000000")
SLOW = """
import time
from ddpjob_examples.mlp import MlpTask

class Slow(MlpTask):
    def loss(self, output, target):
        time.sleep(0.02)
        return super().loss(output, target)
"""
"""It leaves the cores to others while the test waits."""


def trains(here: Here, name: str, **spec: Any) -> tuple[Started, Path]:
    """Starts a job that trains for ever, and waits until it does."""
    (here.directory / "slow.py").write_text(SLOW)
    file = here.job(name, *TRAIN, nodes=2, backend="Gloo", **spec)
    run = here.start("run", file)
    here.wait("a step", lambda: step(here, name))
    return run, file


def step(here: Here, name: str, attempt: int = 1) -> int:
    """The last step that the job's status knows of, from an attempt on; 0 before that."""
    status = here.status(name)
    progress = status.get("progress") or {}
    said = status.get("state") == "Running" and status["attempt"] >= attempt
    return int(progress.get("step") or 0) if said else 0


def goes_on(here: Here, name: str, attempt: int) -> dict[str, Any]:
    """Waits until steps are made in an attempt or a later one; returns the status."""
    before = here.wait(f"attempt {attempt}", lambda: step(here, name, attempt))
    here.wait("one more", lambda: step(here, name, attempt) > before)
    return here.status(name)


def a_rank_of(supervisor: psutil.Process) -> psutil.Process:
    """The process that trains: the one that has the most memory to itself below a supervisor, and no children."""
    leaves = [child for child in supervisor.children(recursive=True) if not child.children()]
    return max(leaves, key=lambda child: child.memory_full_info().uss)


def _with_a_pace(here: Here, name: str) -> str | None:
    """What `ddpjob status` says of a job; None until it tells a pace, for which it takes more than a step."""
    code, text = here.says("status", name)
    assert code == 0
    return text if "samples/s" in text else None


def stop(run: Started) -> str:
    """Ctrl-C; returns all that was printed."""
    run.send_signal(signal.SIGINT)
    return run.communicate(timeout=patience(120))[0]


def test_a_killed_rank_is_started_again_in_place_and_its_pod_stays(here: Here) -> None:
    run, _ = trains(here, "place")
    supervisors = here.trainers("place")
    a_rank_of(supervisors[1]).kill()
    status = goes_on(here, "place", 2)
    assert {rank: one.pid for rank, one in here.trainers("place").items()} == {
        rank: one.pid for rank, one in supervisors.items()
    }
    assert (status["restarts"], status["disruptions"], status["bookkeeping"]["incarnations"]["default"]) == (
        1,
        0,
        1,
    ), here.evidence()
    assert status["attempt"] == 2
    failure = status["incidents"][0]
    assert (failure["attempt"], failure["node"], failure["signal"], failure["cause"]) == (
        1,
        1,
        "SIGKILL",
        "Application",
    )
    output = stop(run)
    assert "ddpjob: Restarting: Rank 1 failed" in output
    assert "in place" in output
    assert [file.parent.name for file in here.run("place").glob("logs/*/node-1.log")] == ["attempt-1"]
    assert here.processes("place") == []
    before, after = (here.says("logs", "place", *which)[1] for which in (["--previous"], ["--attempt", "2"]))
    assert [text.count("rank 1 of 2: backend gloo") for text in (before, after)] == [1, 1]
    assert (before.count("begins in place"), after.count("attempt 2 begins in place: rank 1")) == (0, 2)


SAVES_WHEN_ASKED = """
import os, pathlib, time
import ddpjob
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
saved = pathlib.Path(os.environ["DDPJOB_CHECKPOINT_DIR"], "step")
step = int(saved.read_text()) if saved.exists() else 0
print("begins after", step, flush=True)
while not step or not saved.exists() or step < int(saved.read_text()) + 3:
    dist.all_reduce(torch.ones(1))
    step += 1
    ddpjob.report(step=step, total=1000, loss=0.5)
    time.sleep(0.01 * dist.get_rank())
    if ddpjob.stop_requested():
        dist.barrier()
        if dist.get_rank() == 0:
            saved.write_text(str(step))
        print("stops after", step, flush=True)
        break
"""


@pytest.mark.full("tests/training/test_stop_requested has the step, test_clean_up here a script that goes on")
def test_a_script_of_ones_own_saves_when_it_is_asked_to_stop_and_all_ranks_stop_after_the_same_step(
    here: Here,
) -> None:
    (here.directory / "asks.py").write_text(SAVES_WHEN_ASKED)
    command, checkpoint = (str(BIN / "ddpjob-supervise"), "asks.py"), {"path": "/checkpoints"}
    file = here.job("asks", *command, nodes=2, backend="Gloo", checkpoint=checkpoint)
    run = here.start("run", file)
    here.wait("a step", lambda: step(here, "asks"))
    assert "asks: Suspended" in stop(run)
    stopped = [here.log("asks", rank).splitlines()[-1] for rank in range(2)]
    assert stopped[0].startswith("stops after")
    assert stopped[0] == stopped[1]
    code, output = here.ddpjob("run", file)
    assert (code, output.count("begins after 0")) == (0, 0), output
    assert here.status("asks")["state"] == "Succeeded"


def test_an_import_that_fails_is_tried_once_more_in_new_pods_and_nobody_says_in_place(here: Here) -> None:
    (here.directory / "train.py").write_text("from math import nosuch")
    command = (str(BIN / "ddpjob-supervise"), "--start-method", "cold", "train.py")
    code, output = here.ddpjob("run", here.job("typo", *command, nodes=2, backend="Gloo"))
    status = here.status("typo")
    assert (code, status["attempt"], status["restarts"]) == (1, 2, 1), output
    assert "cannot import name 'nosuch'" in status["message"]
    assert "the same error twice in a row before the first step" in status["message"]
    first, second = (failure["pod"] for failure in status["incidents"])
    assert first != second
    logs = here.run("typo").glob("logs/*/*.log")
    assert "in place" not in output + "".join(log.read_text() for log in logs)


@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.full("node 0 is lost here, which is harder"))])
def test_a_pod_that_is_lost_is_replaced_alone_and_the_other_one_waits(here: Here, lost: int) -> None:
    run, _ = trains(here, "alone")
    before = here.trainers("alone")
    container = before[lost].parent()
    assert container is not None
    container.kill()
    status = goes_on(here, "alone", 2)
    after = here.trainers("alone")
    assert after[1 - lost].pid == before[1 - lost].pid, "the other one stays"
    assert not alive(before[lost])
    assert (status["restarts"], status["disruptions"]) == (0, 1), here.evidence()
    assert status["bookkeeping"]["incarnations"]["exceptions"] == [{"node": lost, "incarnation": 2}]
    stop(run)
    assert [file.name for file in here.run("alone").glob("logs/attempt-1/*")].count(f"node-{lost}.log") == 1
    assert not (here.run("alone") / "logs" / "attempt-2").exists(), "its log goes on"
    code, text = here.says("logs", "alone", "--node", str(lost))
    assert (code, text.count(f"rank {lost} of 2: backend gloo")) == (0, 2), text


ENDS_ONCE_ITS_STEP_IS_KNOWN = """
import pathlib, time
import ddpjob
ddpjob.report(step=1, total=1)
while '"step": 1' not in pathlib.Path("ddpjob-runs/late/job.json").read_text():
    time.sleep(0.05)
"""
FINISHES_WHILE_THE_OTHER_IS_LOST = f"""
{BIN / "ddpjob-supervise"} --start-method cold told.py || exit
[ $DDPJOB_INCARNATION = 1 ] || exit 0
[ $NODE_RANK = 0 ] || kill -9 $$$$
sleep 5
"""
"""Node 1 is lost at the very end. Node 0, with no supervisor any more, looks as if it could wait for another. (Four
dollars: of two Kubernetes makes one.)"""


def test_where_a_pod_was_replaced_alone_and_the_other_one_finishes_all_start_again_from_the_last_save(
    here: Here,
) -> None:
    (here.directory / "told.py").write_text(ENDS_ONCE_ITS_STEP_IS_KNOWN)
    file = here.job("late", "sh", "-c", FINISHES_WHILE_THE_OTHER_IS_LOST, nodes=2, restart={"backoffSeconds": 0})
    code, output = here.ddpjob("run", file)
    assert code == 0, output
    assert "killed by SIGKILL; restart 1 of 6; replacing its node" in output
    assert "killed by SIGKILL; restart 1 of 6; rank 0 has finished, so the whole gang starts again" in output
    status = here.status("late")
    assert (status["restarts"], status["disruptions"], status["bookkeeping"]["incarnations"]["default"]) == (
        1,
        0,
        3,
    ), here.evidence()


@pytest.mark.full("tests/unit/engine/test_in_place has both modes; test_recovery here starts all anew")
def test_with_mode_recreate_all_pods_are_new(here: Here) -> None:
    run, _ = trains(here, "anew", restart={"mode": "Recreate", "backoffSeconds": 0})
    before = here.trainers("anew")
    a_rank_of(before[1]).kill()
    goes_on(here, "anew", 2)
    after = here.trainers("anew")
    assert {one.pid for one in before.values()}.isdisjoint(one.pid for one in after.values())
    stop(run)
    assert (here.run("anew") / "logs" / "attempt-2" / "node-0.log").exists()


@pytest.mark.full("test_runs has two jobs at once, docs/tutorial/first-training a status with its pace")
def test_two_jobs_at_once_are_told_apart(here: Here) -> None:
    first, _ = trains(here, "one")
    second, _ = trains(here, "two", network={"statusPort": hold_port()})
    for name in ("one", "two"):
        text = here.wait(f"the pace of {name}", lambda name=name: _with_a_pace(here, name))
        lines = dict(line.split(":", 1) for line in text.splitlines() if line[:1].isalpha() and ":" in line)
        assert f"of {here.status(name)['progress']['totalSteps']}, epoch " in lines["Progress"], text
        assert "samples/s" in lines["Speed"], text
    _, table = here.says("status")
    assert table.splitlines()[0].split()[3:5] == ["PROGRESS", "ETA"]
    stop(second)
    stop(first)


def test_a_ddpjob_run_that_takes_a_job_up_hears_it_and_counts_nothing_twice(here: Here) -> None:
    first, file = trains(here, "heard")
    a_rank_of(here.trainers("heard")[0]).kill()
    goes_on(here, "heard", 2)
    first.kill()
    first.communicate()
    supervisors = here.trainers("heard")
    a_rank_of(supervisors[0]).kill()
    second = here.start("run", file)
    status = goes_on(here, "heard", 3)
    assert (status["restarts"], status["bookkeeping"]["incarnations"]["default"]) == (2, 1), here.evidence()
    assert {one.pid for one in here.trainers("heard").values()} == {one.pid for one in supervisors.values()}
    stop(second)


ASLEEP = """
import os, time

def waits():
    time.sleep(3600)

def works():
    time.sleep(3600)

works() if os.environ["RANK"] == "1" else waits()
"""


def test_what_the_ranks_of_a_run_are_doing_is_seen_at_any_moment(here: Here) -> None:
    (here.directory / "asleep.py").write_text(ASLEEP)
    supervise = (str(BIN / "ddpjob-supervise"), "--start-method", "cold", "asleep.py")
    file = here.job("asleep", *supervise, nodes=2, procsPerNode=2, backend="Gloo")
    assert here.says("status", "asleep", "--stacks")[0] == 2, "there is no such run"
    run = here.start("run", file)
    wanted = (
        "ranks 0,2,3: each is at waits (asleep.py:5)\n    waits (asleep.py:5)\n    asleep.py:10\n"
        "rank 1: is at works (asleep.py:8)\n    works (asleep.py:8)\n    asleep.py:10\n"
    )
    here.wait("all ranks in their places", lambda: here.says("status", "asleep", "--stacks") == (0, wanted))
    run.send_signal(signal.SIGINT)
    run.wait(patience(60))
    code, output = here.says("status", "asleep", "--stacks")
    assert (code, output) == (2, "error: asleep is not running, so it has no stacks\n")
