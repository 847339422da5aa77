"""How far apart the clocks of two machines are."""

from collections.abc import Iterator
from dataclasses import dataclass

from .findings import Finding, Level

WARN_SECONDS = 1.0
"""Clocks that differ by more put the lines of two logs in the wrong order."""


@dataclass(frozen=True, slots=True)
class Skew:
    """Seconds by which another machine's clock is ahead of this one's, and the largest possible error."""

    ahead: float
    uncertainty: float


def skew(sent: float, heard: float, answered: float, received: float) -> Skew:
    """The skew from one request and its answer, as in NTP (RFC 5905, section 8).

    Args:
        sent: When the request left, by this machine's clock, in seconds since the epoch.
        heard: When the request arrived, by the other machine's clock.
        answered: When the answer left, by the other machine's clock.
        received: When the answer arrived, by this machine's clock.
    """
    travelled = (received - sent) - (answered - heard)
    return Skew(((heard - sent) + (answered - received)) / 2, max(0.0, travelled) / 2)


def check_clocks(seen: Skew, node: int) -> Iterator[Finding]:
    """Warns if the clock of `node` certainly differs from rank 0's. `seen` is rank 0's skew, measured by `node`.

    It is never more than a warning: nothing in training compares two clocks.
    """
    least = abs(seen.ahead) - seen.uncertainty
    if least > WARN_SECONDS:
        behind = "behind" if seen.ahead > 0 else "ahead of"
        message = (
            f"the clock of node {node} is {abs(seen.ahead):.1f} s {behind} that of node 0, which misleads anyone"
            " who compares logs, and may break TLS and storage services: have it synchronised (NTP, chrony)"
        )
        yield Finding("clocks", Level.WARN, message, nodes=(node,))
