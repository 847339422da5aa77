"""How much Hypothesis tries: the same every time, or more and different with `HYPOTHESIS_PROFILE=deep`."""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
