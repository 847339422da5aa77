"""How far apart the clocks of two machines are."""

from collections.abc import Iterator
from dataclasses import dataclass

from .findings import Finding, Level

WARN_SECONDS = 1.0
"""This far apart, lines of two logs are in the wrong order."""


@dataclass(frozen=True, slots=True)
class Skew:
    """Seconds by which the other's clock is ahead of ours, and how far that may be off."""

    ahead: float
    uncertainty: float


def skew(sent: float, heard: float, answered: float, received: float) -> Skew:
    """The skew from one question and its answer, as in NTP (RFC 5905, section 8).

    Args:
        sent: When the question left, by our clock, in seconds of the epoch.
        heard: When it arrived, by the other's.
        answered: When the answer left, by the other's.
        received: When it arrived, by ours.
    """
    travelled = (received - sent) - (answered - heard)
    return Skew(((heard - sent) + (answered - received)) / 2, max(0.0, travelled) / 2)


def clocks(seen: Skew, node: int) -> Iterator[Finding]:
    """Warns of a clock that certainly differs from rank 0's.

    It is never more than a warning: nothing in training compares two clocks. `seen` is rank 0's as `node` sees it.
    """
    least = abs(seen.ahead) - seen.uncertainty
    if least > WARN_SECONDS:
        behind = "behind" if seen.ahead > 0 else "ahead of"
        message = (
            f"the clock of node {node} is {abs(seen.ahead):.1f} s {behind} that of node 0, which misleads anyone"
            " who compares logs, and may break TLS and storage services: have it synchronised (NTP, chrony)"
        )
        yield Finding("clocks", Level.WARN, message, nodes=(node,))
