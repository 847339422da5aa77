"""Warnings about other hosts, which may cause the same one every second, or be hostile."""

from ddpjob_rank.console import printable, warn

MOST = 100
LONGEST = 200


class Once:
    """Warns of each thing once, and of no more than MOST things."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, words: str, about: str = "") -> None:
        """Says it, unless the same was said before; warnings `about` the same thing are the same."""
        about = about or words
        if about not in self._told and len(self._told) < MOST:
            self._told.add(about)
            warn(words)


def shown(text: str) -> str:
    """Text from another host in a printable form: shortened, and without control characters."""
    return printable(text[:LONGEST])
