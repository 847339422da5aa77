"""What a check has found, and what all findings together mean for the node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ddpjob_rank.console import say, warn
from ddpjob_rank.errors import DeviceFailedError, TrainerError
from ddpjob_rank.exit_codes import ExitCode


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    """Worth a line in the log."""
    WARN = "warn"
    """Training can go on, but may suffer."""
    FAIL = "fail"
    """Training cannot go on."""


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
    """Numbers of the nodes that it is about; empty: the node that reports it, or no particular node."""
    device: bool = False
    """For a failure: whether a GPU is broken, which is not the job's fault."""


class PreflightError(TrainerError):
    """The machines are not fit for training; other machines, or the same ones later, may be."""

    cause = "PreflightFailed"
    exit_code = ExitCode.PREFLIGHT_RETRY

    def __init__(self, message: str, nodes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes
        """Which nodes are at fault, if that is known."""


class PreflightNeverError(PreflightError):
    """No machine can be fit for training until somebody changes something, such as the job."""

    exit_code = ExitCode.PREFLIGHT_NEVER


class DeviceFailedAtPreflightError(PreflightError):
    """A GPU is broken: the job needs another machine, and is not at fault."""

    cause = DeviceFailedError.cause


def verdict(findings: Sequence[Finding]) -> PreflightError | None:
    """The error to which the findings lead; None if none of them is a failure.

    A failure that no retry can cure takes precedence: the retry would only meet it again.
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
    """Logs the findings that do not end the run; failures are left to `verdict`."""
    for finding in findings:
        if finding.level is Level.OK:
            say(f"preflight: {finding.message}")
        elif finding.level is Level.WARN:
            warn(f"preflight: {finding.message}")
