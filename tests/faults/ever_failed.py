"""Plans that once found a fault of the operator, and what it was: these are tried every time."""

EVER_FAILED: dict[str, str] = {}
