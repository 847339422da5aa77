"""How long things took on real nodes: printed, and kept for who makes a table of them."""

import json
from collections import defaultdict
from datetime import UTC, datetime

from tests.plant import build

FIGURES = build.CACHE / "figures.json"
"""Of the last run that took some: `{"at": "2026-01-01T12:00:00Z", "seconds": {"pod deleted": [5.1, 6.2]}}`."""

_seconds: defaultdict[str, list[float]] = defaultdict(list)


def note(what: str, seconds: float) -> None:
    """One more figure; seen with -rP."""
    print(f"{what}: {seconds:.2f} s")
    _seconds[what].append(round(seconds, 3))
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    new = FIGURES.with_suffix(".new")
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    new.write_text(json.dumps({"at": at, "seconds": _seconds}))
    new.replace(FIGURES)
