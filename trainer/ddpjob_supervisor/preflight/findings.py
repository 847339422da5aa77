"""The result of a check, and what all results together mean for the node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ddpjob_rank.console import say, warn
from ddpjob_rank.errors import DeviceFailedError, TrainerError
from ddpjob_rank.exit_codes import ExitCode


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    """Worth a line in the log."""
    WARN = "warn"
    """Training is possible, but may suffer."""
    FAIL = "fail"
    """Training is not possible."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    message: str
    """One sentence: what is wrong, and what to do about it."""
    retry: bool = True
    """Whether another try may succeed after this failure, perhaps on another machine."""
    nodes: tuple[int, ...] = ()
    """The numbers of the nodes that the finding is about; empty for the node that reports it, or for no particular
    node."""
    device: bool = False
    """Whether the failure is a broken GPU, which is not the job's fault."""


class PreflightError(TrainerError):
    """The machines are not fit for training now. Other machines, or the same machines later, may be fit."""

    cause = "PreflightFailed"
    exit_code = ExitCode.PREFLIGHT_RETRY

    def __init__(self, message: str, nodes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes
        """The numbers of the nodes that are at fault, if they are known."""


class PreflightNeverError(PreflightError):
    """No machine can be fit for training until somebody changes something, such as the job."""

    exit_code = ExitCode.PREFLIGHT_NEVER


class DeviceFailedAtPreflightError(PreflightError):
    """A GPU is broken. The job needs another machine, and is not at fault."""

    cause = DeviceFailedError.cause


def verdict(findings: Sequence[Finding]) -> PreflightError | None:
    """The error that follows from the findings; None if none of them is a failure.

    Failures that no retry can cure take precedence: if there are any, only they decide.
    """
    failed = [finding for finding in findings if finding.level is Level.FAIL]
    never = [finding for finding in failed if not finding.retry]
    deciding = never or failed
    if not deciding:
        return None
    kind = PreflightNeverError if never else PreflightError
    nodes = sorted({node for finding in deciding for node in finding.nodes})
    if any(finding.device for finding in deciding):
        kind = DeviceFailedAtPreflightError
    return kind("; ".join(finding.message for finding in deciding), tuple(nodes))


def log(findings: Iterable[Finding]) -> None:
    """Logs the findings that do not end the run. Failures are left to `verdict`."""
    for finding in findings:
        if finding.level is Level.OK:
            say(f"preflight: {finding.message}")
        elif finding.level is Level.WARN:
            warn(f"preflight: {finding.message}")
