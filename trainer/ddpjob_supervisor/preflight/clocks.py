"""The difference between the clocks of two machines."""

from collections.abc import Iterator
from dataclasses import dataclass

from .findings import Finding, Level

WARN_SECONDS = 1.0
"""If clocks differ by more than this, the lines of two logs cannot be put into the right order."""


@dataclass(frozen=True, slots=True)
class Skew:
    """How many seconds another machine's clock is ahead of this machine's clock, and the largest possible error."""

    ahead: float
    uncertainty: float


def skew(sent: float, heard: float, answered: float, received: float) -> Skew:
    """The skew, computed from one request and its answer, as in NTP (RFC 5905, section 8).

    Args:
        sent: When the request left, on this machine's clock, in seconds since the epoch.
        heard: When the request arrived, on the other machine's clock.
        answered: When the answer left, on the other machine's clock.
        received: When the answer arrived, on this machine's clock.
    """
    travelled = (received - sent) - (answered - heard)
    return Skew(((heard - sent) + (answered - received)) / 2, max(0.0, travelled) / 2)


def check_clocks(seen: Skew, node: int) -> Iterator[Finding]:
    """Warns if the clock of `node` certainly differs from rank 0's. `seen` is rank 0's skew, measured by `node`.

    A difference is never a failure, because nothing in training compares two clocks.
    """
    least = abs(seen.ahead) - seen.uncertainty
    if least > WARN_SECONDS:
        behind = "behind" if seen.ahead > 0 else "ahead of"
        message = (
            f"the clock of node {node} is {abs(seen.ahead):.1f} s {behind} that of node 0, which misleads anyone"
            " who compares logs, and may break TLS and storage services: have it synchronised (NTP, chrony)"
        )
        yield Finding("clocks", Level.WARN, message, nodes=(node,))
