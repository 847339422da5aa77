"""How the threads of a run share the cores."""

import os
from pathlib import Path

import pytest

from tests.training.runs import Runs


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such policy")
def test_all_threads_of_a_run_let_each_other_go_on(runs: Runs) -> None:
    run = runs.start(2, "--epochs", 1000)
    run.wait("a step", lambda: bool(run.steps()))
    numbers = [int(thread.name) for thread in Path(f"/proc/{run.processes[0].pid}/task").iterdir()]
    threads = {number: os.sched_getscheduler(number) for number in numbers}
    run.kill()
    late = {thread: policy for thread, policy in threads.items() if policy not in {os.SCHED_BATCH, os.SCHED_IDLE}}
    assert len(threads) > 1
    assert not late, f"not under SCHED_BATCH: {late} of {threads}"
