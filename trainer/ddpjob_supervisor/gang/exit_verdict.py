"""The verdict on exit: a supervisor's exit code and its failure report. Pure, except that it writes the report.

The operator may notice the end of any pod first, so every report names the incident that ended the attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.failure.failure_report import Report, write_report

from .judging import INTERRUPTED, PEER_LOST
from .messages import End, Incident


class Membership(Enum):
    """Who decides what this supervisor does after its ranks have ended."""

    FOLLOWING = "following"
    """The coordinator decides, and may start another attempt."""
    LEAVING = "leaving"
    """The supervisor itself: it was told to stop, and exits. If its ranks are done, it reports that first."""
    DISMISSED = "dismissed"
    """The supervisor itself: the coordinator has sent Farewell. It exits with its ranks' exit code."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a supervisor exits."""

    code: int
    failure: End | None = None
    """The failure to report; None if there is none."""
    incident: Incident | None = None
    """The incident that ended the attempt on all nodes, if the coordinator has reported one."""

    def report(self, attempt: int, node: int | None, file: Path | None) -> None:
        """Writes the failure report to `file`. `node` is the node's number, or None if it follows from the rank."""
        if self.failure is not None:
            end, incident = self.failure, None if self.incident is None else self.incident.to_document()
            parts = (end.rank, end.exit_code, end.cause, end.exception, end.message, end.step)
            write_report(Report(*parts, attempt, incident, node, counted_steps=end.counted_steps), file)


def of_ranks(ends: Sequence[End]) -> Verdict:
    """The verdict on a node's own ranks. The first failure counts; a lost peer counts only if nothing else failed."""
    failures = (end for end in ends if end.cause)
    failed = min(failures, key=lambda end: (end.cause == PEER_LOST, end.time), default=None)
    if failed is not None:
        return Verdict(failed.exit_code, failed)
    codes = {end.exit_code for end in ends} or {INTERRUPTED}
    return Verdict(ExitCode.SAVED_AND_STOPPED if INTERRUPTED in codes else max(codes))


def of_incident(incident: Incident, node: int, rank: int, failed_first: str) -> Verdict:
    """The verdict if an incident is left to the operator: each pod of the gang exits, and reports which rank failed.

    Args:
        incident: The incident that ended the attempt.
        node: This node's number.
        rank: The first rank of this node.
        failed_first: The rank that failed first, as text.
    """
    end = incident.end
    if incident.node == node:
        return Verdict(end.exit_code, end, incident)
    message = f"{failed_first} failed: {end.cause}"
    lost = End(rank, ExitCode.PEER_LOST, end.time, PeerLostError.cause, message, step=end.step)
    return Verdict(ExitCode.PEER_LOST, lost, incident)


def once_ended(membership: Membership, ends: Sequence[End], *, done: bool, connected: bool) -> Verdict | None:
    """The verdict when all ranks of a node have ended. None if the coordinator decides what follows."""
    match membership:
        case Membership.DISMISSED:
            return of_ranks(ends)
        case Membership.LEAVING if not done:
            return of_ranks(ends)
        case Membership.LEAVING if not connected:  # The ranks are done, but the coordinator could not be told.
            return Verdict(ExitCode.SAVED_AND_STOPPED)
    return None
