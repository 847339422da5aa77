"""Warnings about other hosts, limited in number: a host may be hostile, or cause the same warning each second."""

from ddpjob_rank.console import printable, warn

MOST = 100
LONGEST = 200


class Once:
    """Logs each warning once, and no more than MOST different ones."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, words: str, about: str = "") -> None:
        """Logs a warning, unless one with the same `about` was logged before; by default `about` is the text."""
        about = about or words
        if about not in self._told and len(self._told) < MOST:
            self._told.add(about)
            warn(words)


def shown(text: str) -> str:
    """Text from another host, made printable: cut to LONGEST characters, and without control characters."""
    return printable(text[:LONGEST])
