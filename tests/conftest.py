"""What holds for all tests.

What is drawn by chance is drawn anew in each run, by a seed that a failure names: `TEST_SEED=N` draws the same again.
`HYPOTHESIS_PROFILE=deep` draws twenty times as many examples, and keeps those that failed in .hypothesis.
"""

import atexit
import os
import random
import signal
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.seed import SEED

# No judgement by the clock: how long an example takes is up to the machine's other work.
UNTIMED = {"derandomize": False, "deadline": None, "suppress_health_check": (HealthCheck.too_slow,)}
settings.register_profile("few", database=None, **UNTIMED)
settings.register_profile("deep", max_examples=2000, print_blob=True, **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

# A shell has what it runs in the background ignore Ctrl-C, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So would nohup with SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Runs are registered with their user, who is not to find those of the tests among his own; nor does it matter what
# his git ignores.
OF_THE_USER = tempfile.TemporaryDirectory(prefix="ddpjob-user-")
atexit.register(OF_THE_USER.cleanup)
os.environ |= dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME"), OF_THE_USER.name)

# Two threads that share an operation wait for each other at its end. Where other tests have the cores, each such wait
# is for a turn of the scheduler: training takes fifteen times as long, and twice the CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before Hypothesis reads it."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws does not depend on which others ran before it."""
    random.seed(f"{SEED} {item.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says how to draw the same again."""
    report = yield
    if report.failed:
        report.sections.append(("drawn by chance", f"with TEST_SEED={SEED}"))
    return report
