"""Steps that wait for the test: what it does in the middle of a run, it does in time on any machine."""

import itertools
import os
import signal
import time
from pathlib import Path

import torch

from tests.training.ranks import Run

VARIABLE = "TEST_HOLD"
LOOK_SECONDS = 0.01

_STEPS = itertools.count(1)


class Hold:
    """From the second step after this one on, or the first where ranks warm up, they wait until they are let go."""

    def __init__(self, file: Path, after: int, seconds: float = 0.02) -> None:
        """`seconds` is what each step lasts: ranks agree to stop within some tenths of a second."""
        self._file = file
        self.env = {VARIABLE: f"{after} {file}", "TEST_STEP_SECONDS": str(seconds)}

    def let_go(self) -> None:
        """They go on."""
        self._file.touch()

    def stop(self, run: Run, number: signal.Signals = signal.SIGTERM, rank: int = 0) -> None:
        """Asks a rank to stop, and lets all go on once it has heard that."""
        run.send(number, rank)
        run.wait("the request to be heard", lambda: "told to stop" in run.output(rank))
        self.let_go()


def held() -> None:
    """In a task's loss: the step waits if it is to. The warm-up counts as one, where there is any."""
    after, _, file = os.environ.get(VARIABLE, "").partition(" ")
    if file and torch.is_grad_enabled() and next(_STEPS) > int(after) + 1:
        while not Path(file).exists():
            time.sleep(LOOK_SECONDS)
