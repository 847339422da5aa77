"""Under which of the kernel's policies a rank runs."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ddpjob_rank.machine.scheduling import run_as_batch


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the system has no such policy")
def test_a_rank_that_was_started_to_run_when_nothing_else_does_stays_so() -> None:
    def idle() -> int:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        run_as_batch("gloo")
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as thread:  # A policy is a thread's.
        assert thread.submit(idle).result() == os.SCHED_IDLE


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such policy")
@pytest.mark.parametrize(
    ("backend", "gpus", "policy"),
    [("gloo", True, "BATCH"), ("nccl", True, "OTHER"), (None, True, "OTHER"), (None, False, "BATCH")],
)
def test_only_what_communicates_by_gloo_runs_as_a_batch(
    backend: str | None,
    gpus: bool,  # noqa: FBT001
    policy: str,
    tmp_path: Path,
) -> None:
    device = tmp_path / "nvidiactl"
    if gpus:
        device.touch()

    def starts() -> int:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        run_as_batch(backend, device)
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(starts).result() == getattr(os, f"SCHED_{policy}")
