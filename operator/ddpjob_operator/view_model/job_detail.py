"""A job in full: what a screen of one job shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ddpjob_operator.api import DDPJob, State
from ddpjob_operator.engine import text_of
from ddpjob_operator.text import one_line

from .curves import Curve, clock_of, curves_of
from .description import Around, lines_of
from .interruptions import Interruption, interruptions_of
from .job_row import JobKey, JobRow, job_row
from .losses import last_loss_alone
from .masking import without_secrets
from .pods_seen import PodSeen
from .rank_rows import RankRow, rank_rows, slowest
from .records import Records
from .start_tree import Branch, start_moments, start_tree

TRAINING = frozenset({"Running", "Stalled", "Stopping", "Done"})
"""The phases of a gang that has met."""

AT_REST = frozenset({State.SUSPENDING, State.SUSPENDED})
"""The states in which no start is going on."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The incidents of a job on an axis from its beginning until its end, or until now."""

    began: datetime
    until: datetime
    incidents: Sequence[Interruption]
    """In the order of their numbers. Each text is one line, without control characters."""

    @classmethod
    def of(cls, began: datetime, until: datetime, incidents: Iterable[Interruption]) -> "TimeAxis":
        """The axis of incidents whose texts others have written."""
        shown = (
            replace(one, cause=one_line(one.cause), message=one_line(without_secrets(one.message)))
            for one in incidents
        )
        return cls(began, until, tuple(shown))

    def place(self, incident: Interruption) -> float:
        """Where an incident is on the axis, from 0, the beginning, to 1."""
        whole = (self.until - self.began).total_seconds()
        share = (incident.time - self.began).total_seconds() / whole if whole > 0 else 0.0
        return min(1.0, max(0.0, share))


@dataclass(frozen=True, slots=True)
class JobDetail:
    """What a screen of one job shows."""

    row: JobRow
    lines: Mapping[str, str]
    """The job in words, by label, each as one line."""
    ranks: Sequence[RankRow] = ()
    slowest: RankRow | None = None
    """The rank that the others wait for, if it is known."""
    start: Sequence[Branch] = ()
    """The parts of the present attempt's start; empty if nothing is known of it."""
    axis: TimeAxis | None = None
    """None if it is unknown when the job began."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """By name; the loss is first, if there is one."""
    clock: Curve = field(default_factory=Curve)
    """By step, in how many seconds after the axis' beginning it was finished."""
    no_curves: str = ""
    """Why there are no curves, or why they begin late, as one line; empty if that is not known to be so."""


def job_detail(
    job: DDPJob,
    key: JobKey,
    now: datetime,
    around: Around,
    *,
    page: Any = None,
    pods: Iterable[PodSeen] = (),
    recorded: Records | None = None,
    printed: Records | None = None,
    no_curves: str = "",
) -> JobDetail:
    """A job in full at the time `now`.

    `page` is the status page of rank 0's supervisor as JSON, `pods` are those of the present attempt, and `recorded`
    is its training so far; `no_curves` says why it is missing. `printed` is what its log shows of it. What cannot be
    had is left out.
    """
    present, records, status = [*pods], recorded or Records(), job.status
    loss = last_loss_alone(status, around.logged) if around.logged else None
    row = job_row(job, key, now, around.made, loss)
    ranks = rank_rows(job, page, present)
    began, ended = _in_utc(around.made or status.start_time), _in_utc(status.completion_time)
    axis = None
    if began is not None:
        axis = TimeAxis.of(began, ended or now, interruptions_of(status.incidents, records))
    times = start_moments(status, around.made, present, _met(page))
    return JobDetail(
        row=row,
        lines={label: one_line(text) for label, text in lines_of(job, now, around, wide=False).items() if text},
        ranks=ranks,
        slowest=slowest(ranks),
        start=() if status.finished or status.state in AT_REST or not status.attempt else start_tree(times, now),
        axis=axis,
        curves=curves_of(records, printed),
        clock=Curve() if began is None else clock_of(records, began),
        no_curves=one_line(no_curves),
    )


def _in_utc(time: datetime | None) -> datetime | None:
    """A time as UTC has it; None if there is none, or if UTC has no such year."""
    try:
        return time and time.astimezone(UTC)
    except OverflowError:
        return None


def _met(page: Any) -> datetime | None:
    """When the gang has met, according to its status page; None if that is unknown."""
    if not isinstance(page, Mapping) or page.get("phase") not in TRAINING:
        return None
    try:
        found = datetime.fromisoformat(text_of(page.get("since")))
    except ValueError:
        return None
    return _in_utc(found) if found.tzinfo else None
