"""Pauses between two looks at something that cannot be waited for."""

from collections.abc import Iterator


def longer_pauses(first: float, longest: float) -> Iterator[float]:
    """Yields pauses in seconds, without end: from `first` up to `longest`, each 1.5 times the one before."""
    pause = first
    while True:
        yield pause
        pause = min(1.5 * pause, longest)
