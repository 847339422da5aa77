"""Who is told to be stopped by a signal, long before the gang counts as stalled."""

import os
import signal
from subprocess import Popen
from typing import Any

import pytest
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.stopped import SILENT_SECONDS, stopped_ranks, stopped_state


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([None, None], ""),
        ([None, "T"], "rank 1 is stopped (SIGSTOP)"),
        (["T", None, "T", "T"], "rank 0 and 2 more are stopped (SIGSTOP)"),
        (["t", "T"], "rank 0 is stopped by a debugger; rank 1 is stopped (SIGSTOP)"),
        (["Z", "\x1b"], ""),
    ],
    ids=["none", "one", "three", "two ways", "other words"],
)
def test_ranks_are_named_by_what_stops_them(states: list[str | None], said: str) -> None:
    beats: dict[int, dict[str, Any]] = {rank: {"rank": rank, "stopped": state} for rank, state in enumerate(states)}
    assert stopped_ranks(beats, "rank {}".format) == said


def test_a_silent_rank_is_stopped_until_it_is_continued() -> None:
    with Popen(["sleep", "1000"]) as process:
        silent = [Beat(0, 1, "training", step_age=SILENT_SECONDS), Beat(0, 1, "starting")]
        try:
            assert [stopped_state(process.pid, beat) for beat in silent] == [None, None]
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert [stopped_state(process.pid, beat) for beat in silent] == ["T", "T"]
            assert stopped_state(process.pid, Beat(0, 1, "training", step_age=SILENT_SECONDS - 1)) is None
            process.send_signal(signal.SIGCONT)
            os.waitpid(process.pid, os.WCONTINUED)
            assert stopped_state(process.pid, silent[0]) is None
        finally:
            process.kill()
    assert stopped_state(process.pid, silent[0]) is None, "it is gone"
