"""Under which of the kernel's policies a rank runs."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from ddpjob_trainer.scheduling import run_as_batch


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the system has no such policy")
def test_a_rank_that_was_started_to_run_when_nothing_else_does_stays_so() -> None:
    def idle() -> int:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        run_as_batch()
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as thread:  # A policy is a thread's.
        assert thread.submit(idle).result() == os.SCHED_IDLE
