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
    """Training can go on, and may suffer."""
    FAIL = "fail"
    """Training cannot go on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says."""

    check: str
    level: Level
    message: str
    """One sentence: what is wrong, and what to do about it."""
    retry: bool = True
    """Of a failure: whether another try, perhaps on another machine, may go better."""
    nodes: tuple[int, ...] = ()
    """Those that it is about, by number; none: the node that says it, or none in particular."""
    device: bool = False
    """Of a failure: whether a GPU is broken, which is no fault of the job."""


class PreflightError(TrainerError):
    """The machines are not fit; other ones, or the same ones later, may be."""

    cause = "PreflightFailed"
    exit_code = ExitCode.PREFLIGHT_RETRY

    def __init__(self, message: str, nodes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes
        """Which nodes are at fault, if that is known."""


class PreflightNeverError(PreflightError):
    """No machine could be fit: something must be changed first."""

    exit_code = ExitCode.PREFLIGHT_NEVER


class DeviceFailedAtPreflightError(PreflightError):
    """A GPU is broken: another machine is needed, and it is no fault of the job."""

    cause = DeviceFailedError.cause


def verdict(findings: Sequence[Finding]) -> PreflightError | None:
    """The failure that the findings amount to, if any.

    What never gets better takes precedence over what may: a retry would only meet it again.
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
    """Reports what does not end the run; failures are left to the verdict."""
    for finding in findings:
        if finding.level is Level.OK:
            say(f"preflight: {finding.message}")
        elif finding.level is Level.WARN:
            warn(f"preflight: {finding.message}")
