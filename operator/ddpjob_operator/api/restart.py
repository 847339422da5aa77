"""The field `spec.restart`, in which a user decides what happens when a rank fails."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .causes import Cause
from .model import Model
from .numbers import PositiveSeconds, Seconds

MAX_RULES = 20
MAX_MATCHES = 32
LAST_EXIT_CODE = 255


class RestartAction(StrEnum):
    """What happens after an incident."""

    RESTART = "Restart"
    """The gang starts again, and the restart counts against maxRestarts."""
    RESTART_FREE = "RestartFree"
    """The gang starts again, and only maxDisruptions limits how often."""
    FAIL = "Fail"
    """The job fails."""


class RestartMode(StrEnum):
    """How a gang starts again."""

    IN_PLACE = "InPlace"
    """Processes are replaced and pods stay. Only lost pods are replaced."""
    RECREATE = "Recreate"
    """All pods are replaced."""


class Signal(StrEnum):
    """Signals of Linux, in the order of their numbers from 1 (signal(7))."""

    HUP = "SIGHUP"
    INT = "SIGINT"
    QUIT = "SIGQUIT"
    ILL = "SIGILL"
    TRAP = "SIGTRAP"
    ABRT = "SIGABRT"
    BUS = "SIGBUS"
    FPE = "SIGFPE"
    KILL = "SIGKILL"
    USR1 = "SIGUSR1"
    SEGV = "SIGSEGV"
    USR2 = "SIGUSR2"
    PIPE = "SIGPIPE"
    ALRM = "SIGALRM"
    TERM = "SIGTERM"
    STKFLT = "SIGSTKFLT"
    CHLD = "SIGCHLD"
    CONT = "SIGCONT"
    STOP = "SIGSTOP"
    TSTP = "SIGTSTP"
    TTIN = "SIGTTIN"
    TTOU = "SIGTTOU"
    URG = "SIGURG"
    XCPU = "SIGXCPU"
    XFSZ = "SIGXFSZ"
    VTALRM = "SIGVTALRM"
    PROF = "SIGPROF"
    WINCH = "SIGWINCH"
    IO = "SIGIO"
    PWR = "SIGPWR"
    SYS = "SIGSYS"

    @property
    def number(self) -> int:
        """The signal's number."""
        return list(Signal).index(self) + 1


def signal_name(number: int) -> str:
    """Returns a signal's name as in rules and the status, such as `SIGKILL`, or `SIG34` if it has no name."""
    names: tuple[str, ...] = tuple(Signal)
    return names[number - 1] if number <= len(names) else f"SIG{number}"


_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_SET = {"x-kubernetes-list-type": "set", "uniqueItems": True}


class ExitCodesOperator(StrEnum):
    """Which exit codes a rule matches, as in the `podFailurePolicy` of a Job."""

    IN = "In"
    NOT_IN = "NotIn"


class ExitCodes(Model):
    """Exit codes of the trainer container, in the form of `onExitCodes` in a Job's `podFailurePolicy`."""

    operator: ExitCodesOperator
    """In: the exit code is one of `values`. NotIn: the exit code is none of `values`. A rank without an exit code
    matches neither, nor does a rank that exited with 0."""
    values: Annotated[
        tuple[Annotated[int, Field(ge=1, le=LAST_EXIT_CODE)], ...],
        Field(min_length=1, max_length=LAST_EXIT_CODE, json_schema_extra=_SET),
    ]
    """Exit codes from 1 to 255, each once."""

    def matches(self, code: int | None) -> bool:
        """Whether a rank with this exit code matches. A rank without an exit code (None) never matches."""
        return bool(code) and (code in self.values) is (self.operator is ExitCodesOperator.IN)

    def matching(self) -> Iterator[int]:
        """Yields all exit codes that match, in ascending order."""
        return filter(self.matches, range(1, LAST_EXIT_CODE + 1))


class RestartRule(Model):
    """What to do about some incidents. A rule matches when each of its fields matches the rank that failed first."""

    exit_codes: ExitCodes | None = None
    """Exit codes of the trainer container: `{operator: In, values: [3, 64]}`. Pods that the cluster takes away have
    exit codes too; add `causes: [Application]` to exclude them."""
    signals: Annotated[
        tuple[Signal, ...] | None, Field(min_length=1, max_length=MAX_MATCHES, json_schema_extra=_ATOMIC)
    ] = None
    """Signals that ended the trainer, by name: `[SIGBUS, SIGSEGV]`."""
    causes: Annotated[
        tuple[Cause, ...] | None, Field(min_length=1, max_length=MAX_MATCHES, json_schema_extra=_ATOMIC)
    ] = None
    """Why the rank failed, as in `status.incidents[0].cause`."""
    action: RestartAction
    """Restart: the gang starts again, which counts. RestartFree: it starts again, which does not count. Fail: the job
    fails."""


class Restart(Model):
    """Whether, how often, how soon and how gently a failed gang starts again."""

    mode: RestartMode = RestartMode.IN_PLACE
    """InPlace: the supervisors start the processes again inside their pods, within a second; only lost pods are
    replaced. Recreate: all pods are replaced, as they always are when the image has no supervisor."""
    in_place_restarts: Annotated[int, Field(ge=0, le=10_000)] = 5
    """With mode InPlace: after this many restarts in place within windowSeconds, all pods are replaced."""
    max_restarts: Annotated[int, Field(ge=0, le=10_000)] = 6
    """How many incidents are answered with a restart before the job fails; counted again from 0 after windowSeconds
    of healthy running. An incident counts once, however many ranks it took down."""
    max_disruptions: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """How many incidents are answered with a restart that does not count against maxRestarts before the job fails;
    counted again from 0 after windowSeconds of healthy running. Without a value there is no limit."""
    window_seconds: PositiveSeconds = 3600
    """Once all ranks have run for this long without an incident, all of maxRestarts is available again."""
    backoff_seconds: Seconds = 1
    """Wait before the first restart. It doubles with every further incident, until training gets further than at the
    last incident or has been healthy for windowSeconds."""
    max_backoff_seconds: Seconds = 300
    """The longest wait before a restart."""
    grace_period_seconds: Seconds = 5
    """Time from SIGTERM to SIGKILL for the survivors of a failed gang, which have nothing left to save; at least one
    second."""
    rules: Annotated[tuple[RestartRule, ...], Field(max_length=MAX_RULES, json_schema_extra=_ATOMIC)] = ()
    """What to do about which incident. The first rule that matches decides; if none matches, the defaults apply."""
