"""What holds for all tests.

Hypothesis tries the same every time, or more and different with `HYPOTHESIS_PROFILE=deep`.
"""

import atexit
import os
import signal
import tempfile

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A shell has what it runs in the background ignore Ctrl-C, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Runs are registered with their user, who is not to find those of the tests among his own.
STATE = tempfile.TemporaryDirectory(prefix="ddpjob-state-")
atexit.register(STATE.cleanup)
os.environ["XDG_STATE_HOME"] = STATE.name
