"""A job in one line: what a table of jobs shows of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from ddpjob_operator.api import DDPJob, DDPJobStatus, State
from ddpjob_operator.text import one_line

from .description import between_steps, cause_first, is_before_first_step, slow_nodes, waiting
from .losses import loss_in
from .masking import without_secrets

LONGEST = 1024
"""A text is cut off after this many characters."""
UNKNOWN = "Unknown"
"""The state of a job of which only a history is left that does not say how it ended."""
MOVING = frozenset({State.PENDING, State.QUEUED, State.STARTING, State.RESTARTING, State.SUSPENDING, State.STALLED})
"""The states whose message says what the job waits for."""
TROUBLE = (State.FAILED, State.STALLED, UNKNOWN)
"""The states of a job that a person has to look at, the worst first."""
NOT_FINITE = frozenset({"nan", "inf", "infinity"})
"""Losses in small letters, without a sign."""


class Origin(StrEnum):
    """Where a job is known from."""

    HERE = "here"
    """It is a run on this machine."""
    CLUSTER = "cluster"
    HISTORY = "history"
    """Only what its supervisors have kept is left of it."""


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Identifies a job among those of all origins."""

    origin: Origin
    namespace: str
    name: str
    uid: str
    """On this machine, where jobs of different directories may have the same uid, the directory."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """What a table shows of a job. Each text is one line, without control characters; it may contain any markup."""

    key: JobKey
    state: str
    message: str = ""
    """What the job is doing or waiting for, in one sentence."""
    why: str = ""
    """Why the job does not go on: whom or what it waits for, or of what it failed; empty if all is well.

    Example:
        `attempt 2 begins in 8 s`, `waits for node 3 on gpu-7 (2.5 x)`, `OutOfMemory: no memory left; rank 1 failed`.
    """
    ready: str = ""
    """The nodes that are ready, of all nodes: `2/2`."""
    progress: str = ""
    """How far training has come: `30%, saving`."""
    percent: float | None = None
    eta: str = ""
    """The time until training is finished: `1h5m`. Empty if the job has finished, or if the time is unknown."""
    eta_seconds: int | None = None
    samples_per_second: float | None = None
    loss: str = ""
    """The last loss that is known, as a number, or as `NaN` or `Infinity`."""
    restarts: int = 0
    """Restarts that counted against the budget."""
    disruptions: int = 0
    """Restarts that did not count."""
    goodput: float | None = None
    """As of `goodput`."""
    made: datetime | None = None
    """When the job was created."""
    ended: datetime | None = None
    """When the job succeeded or failed; None if it has done neither, or if the time is unknown."""
    finished: bool = False

    @property
    def name(self) -> str:
        """The job's name."""
        return self.key.name

    @property
    def needs_a_look(self) -> bool:
        """Whether a person may want to look at the job.

        It has failed, or cannot be read; or it has not ended, and it waits, stands still, lacks nodes, was restarted,
        or has a loss that is not a finite number.

        Example:
            >>> JobRow(JobKey(Origin.CLUSTER, "team", "digits", "u"), "Running", loss="NaN").needs_a_look
            True
        """
        if self.state in {State.FAILED, UNKNOWN} and self.key.origin != Origin.HISTORY:
            return True
        ready, _, nodes = self.ready.partition("/")
        troubled = self.state in MOVING or ready != nodes or self.restarts or self.disruptions
        return not self.finished and bool(troubled or self.loss.lower().lstrip("-") in NOT_FINITE)


def job_row(job: DDPJob, key: JobKey, now: datetime, made: datetime | None = None, loss: str | None = None) -> JobRow:
    """The row of a job at the time `now`.

    `made` is when it was created. `loss` is its last loss, if another source than its status knows it better.
    """
    status, known = job.status, job.status.progress
    return JobRow(
        key=key,
        state=_text(status.state),
        message=_text(status.message),
        why=_text(awaited(job, now) or (cause_first(status) if status.state in TROUBLE else "")),
        ready=_text(status.display.ready),
        progress=_text(", ".join(filter(None, (status.display.progress, *between_steps(status))))),
        percent=known.percent if known else None,
        eta="" if status.finished else _text(status.display.eta),
        eta_seconds=known.eta_seconds if known and not status.finished else None,
        samples_per_second=known.samples_per_second if known and not status.finished else None,
        loss=_text(loss or loss_in(status) or ""),
        restarts=status.restarts,
        disruptions=status.disruptions,
        goodput=goodput(status, now),
        made=made or status.start_time,
        ended=status.completion_time,
        finished=status.finished,
    )


def kept_row(key: JobKey, result: str, began: float) -> JobRow:
    """The row of a job of which a history is left. It began `began` seconds after the epoch; 0: unknown."""
    made = datetime.fromtimestamp(began, UTC) if began else None
    return JobRow(key, _text(result) or UNKNOWN, made=made, finished=bool(result))


def unreadable_row(key: JobKey, why: str) -> JobRow:
    """The row of a job that cannot be read, which says why."""
    return JobRow(key, UNKNOWN, _text(why), why=_text(why))


def newest_first(row: JobRow) -> tuple[bool, float, JobKey]:
    """The key by which rows are sorted: unfinished jobs first, the newest first; then what ended, the last first."""
    moment = row.ended or row.made
    return row.finished, -moment.timestamp() if moment else 0.0, row.key


def told_states(rows: Iterable[JobRow]) -> list[tuple[str, int]]:
    """How many jobs are in each state: first the states of trouble, then the most frequent ones."""
    counts = Counter(row.state for row in rows).most_common()
    return sorted(counts, key=lambda one: TROUBLE.index(one[0]) if one[0] in TROUBLE else len(TROUBLE))


def awaited(job: DDPJob, now: datetime) -> str:
    """Whom or what a job waits for at the time `now`, in words; empty if it is training or has ended."""
    status = job.status
    if status.finished:
        return ""
    if status.state in MOVING:
        return cause_first(status)
    if status.state != State.RUNNING:
        return ""
    if is_before_first_step(job):
        return waiting(status, now)
    if slow := slow_nodes(job)[:1]:
        return f"waits for {slow[0]}"
    return ", ".join(between_steps(status))


def goodput(status: DDPJobStatus, now: datetime) -> float | None:
    """The share of the time since a job's start in which steps finished that no earlier attempt had finished.

    It is estimated: as many steps as were finished, each in the usual time of the recent ones. None if there is no
    step yet, or if the job was resumed, because its status does not say how long it ran before.

    Example:
        A job that started ten minutes ago, and has finished 1,000 steps of 0.5 s, has a goodput of 0.83.
    """
    steps, progress = status.bookkeeping.steps, status.progress
    if progress is None or progress.recounts or not progress.step_seconds or status.resumed:
        return None
    if steps.earliest is None or steps.furthest is None or status.start_time is None:
        return None
    seconds = ((status.completion_time or now) - status.start_time).total_seconds()
    useful = (steps.furthest - steps.earliest + 1) * progress.step_seconds
    return min(1.0, useful / seconds) if seconds > 0 else None


def _text(text: str) -> str:
    shown = one_line(without_secrets(text[: LONGEST + 1]))
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
