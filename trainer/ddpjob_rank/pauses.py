"""Pauses between two looks at something that cannot be waited for."""

from collections.abc import Iterator


def longer_pauses(first: float, longest: float) -> Iterator[float]:
    """Yields seconds without end, from `first` to `longest`, each half as long again as the one before."""
    pause = first
    while True:
        yield pause
        pause = min(1.5 * pause, longest)
