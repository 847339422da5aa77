"""The seed of all random choices of the tests, and how many examples they draw.

Each run has a new seed, which it prints. `TEST_SEED=N make test`, or `TEST_SEED=N pytest`, repeats the choices of the
run that printed N.
"""

import os
import secrets

from hypothesis import settings

SEED = os.environ.setdefault("TEST_SEED", str(secrets.randbelow(1 << 32)))
"""The seed. It is also put into the environment, for other processes of this run."""


def examples(share: float) -> settings:
    """Settings for this share of the profile's examples, so that the profile `deep` draws more here, too."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))
