"""Warnings about other hosts, limited in number, because a host may be hostile or repeat its mistake every second."""

from ddpjob_rank.console import printable, warn

MOST = 100
LONGEST = 200


class Once:
    """Logs each warning only once, and at most MOST different warnings."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, words: str, about: str = "") -> None:
        """Logs a warning, unless one with the same `about` has been logged.

        If `about` is empty, the text itself counts.
        """
        about = about or words
        if about not in self._told and len(self._told) < MOST:
            self._told.add(about)
            warn(words)


def shown(text: str) -> str:
    """Makes text from another host printable: cuts it to LONGEST characters, and replaces control characters."""
    return printable(text[:LONGEST])
