"""The seed of all that tests draw by chance, and how many examples they draw.

Each run draws anew; `TEST_SEED=N make test`, or before `pytest`, draws what the run drew that printed N.
"""

import os
import secrets

from hypothesis import settings

SEED = os.environ.setdefault("TEST_SEED", str(secrets.randbelow(1 << 32)))
"""It is in the environment from now on, for processes beside this one."""


def examples(share: float) -> settings:
    """So many examples as a share of what the profile has others draw: deep draws more of them, too."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))
