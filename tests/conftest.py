"""What holds for all tests.

Hypothesis tries the same every time, or more and different with `HYPOTHESIS_PROFILE=deep`.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A shell has what it runs in the background ignore Ctrl-C, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
