"""What a job adds to the operator's metrics: starts, restarts, steps, and how it spends its time.

All counts follow from the difference between two statuses. A status write names the job's resource version, so each
change is written, and counted, by exactly one operator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ddpjob_operator.api import Cause, ConditionType, DDPJobStatus, Progress, RestartAction, State
from ddpjob_operator.api.reasons import FROM_OUTSIDE

from .incidents.judgement import CAME_UP_BEFORE, DEFAULTS
from .incidents.price import restored_at
from .reports import Phase
from .snapshot import Snapshot


class TimeKind(StrEnum):
    """In what a job spends the time in which it has its Kubernetes nodes."""

    GOODPUT = "goodput"
    """Steps finish that no earlier attempt has finished."""
    ACCELERATOR_INITIALIZATION = "accelerator_initialization"
    """All pods are scheduled, and not all of them run yet: images are pulled, volumes mounted."""
    PROGRAM_STARTUP = "program_startup"
    """All pods run, and the attempt has not finished a step yet."""
    CHECKPOINT_SAVE = "unproductive_checkpoint_save_time"
    """The ranks wait until a checkpoint is saved."""
    EVALUATION = "evaluation"
    """The program evaluates its model."""
    WASTED_PROGRESS = "wasted_progress_from_disruption"
    """Steps finish that an earlier attempt had finished, but not saved."""
    INFRASTRUCTURE_RECOVERY = "infrastructure_recovery_from_disruption"
    """From an incident until all pods run again."""
    STALLED = "stalled"
    """The supervisors report that no step finishes any more."""
    OTHER = "other"
    """The job saves and stops because it is suspended, it is held and runs no program, or nobody can count its
    steps."""


class StartPart(StrEnum):
    """The parts of a job's start, one after the other, after its submission or resumption."""

    QUEUED = "queued"
    """Until the operator creates the pods."""
    SCHEDULED = "scheduled"
    """Until all pods are scheduled."""
    PULLED = "pulled"
    """Until all pods run."""
    MET = "met"
    """Until all supervisors have met, and the preflight has passed."""
    FIRST_STEP = "first_step"
    """Until the first step is finished."""


FREE_CAUSES = tuple(cause for cause in Cause if DEFAULTS.get(cause) is RestartAction.RESTART_FREE)
"""The causes of restarts that do not count, unless one of the user's rules says otherwise."""

COUNTED_CAUSES = tuple(
    cause for cause in Cause if DEFAULTS.get(cause) is RestartAction.RESTART or cause in CAME_UP_BEFORE
)
"""The causes of restarts that count, unless one of the user's rules says otherwise."""

KINDS = {
    State.STARTING: TimeKind.ACCELERATOR_INITIALIZATION,
    State.STALLED: TimeKind.STALLED,
    State.RESTARTING: TimeKind.INFRASTRUCTURE_RECOVERY,
    State.SUSPENDING: TimeKind.OTHER,
}
"""The kind of time of each state in which a job has Kubernetes nodes, except Running."""

WAITING = frozenset({State.PENDING, State.QUEUED, State.STARTING, State.RESTARTING})
"""The states in which a job waits until it runs."""

ACTIVITIES = {"Evaluating": TimeKind.EVALUATION, "Saving": TimeKind.CHECKPOINT_SAVE}


STEPS_PER_SECOND = 10_000
"""The largest number of steps per second that is counted for a job. Its supervisor may report any number, which would
spoil the sums over all jobs."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job spends its time from now on, and what about it may need a person."""

    kind: TimeKind | None = None
    """None if the job has no Kubernetes nodes, or not all that it needs to start."""
    gpus: int = 0
    """How many GPUs its pods hold."""
    step_since: datetime | None = None
    """When the last step finished or, if none has in this attempt, when all pods ran. None if nobody counts steps."""
    saved_since: datetime | None = None
    """When the last checkpoint was saved or, if none was since the start, when all pods ran. None if the job is not
    known to save."""
    waits_since: datetime | None = None
    """Since when the job waits until it runs. None if it does not."""
    budget_used: float = 0.0
    """The share of its restart budget that the job has used."""
    budget_restored: datetime | None = None
    """When the budget is restored if the job goes on as it does; None if it does not run, or finishes no step."""
    diverged: bool = False
    """Whether the loss is not a finite number, or the job has failed because it diverged."""
    stalled: bool = False
    """Whether no step finishes any more, or the job has failed because of that."""
    ended: datetime | None = None
    """When the job finished."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a change of a job's status adds to the counters of its namespace."""

    restart: str = ""
    """The cause of a restart that counts against the budget; empty if there was none."""
    disruption: str = ""
    """The cause of a restart that does not count."""
    finished: str = ""
    """The job's final state, if the job has finished."""
    steps: int = 0
    """Steps that were finished, the repeated ones included."""
    repeated_steps: int = 0
    starts: tuple[tuple[StartPart, float], ...] = ()
    """The parts of the start that are over, each with its seconds."""


def standing(snapshot: Snapshot, status: DDPJobStatus, created: datetime | None = None) -> Standing:
    """Returns what the metrics need to know of a job with this status. `created` is when the job was created."""
    if status.finished:
        cause = _failed_for(status)
        if cause not in {Cause.DIVERGED, Cause.STALLED}:
            return Standing()
        return Standing(
            diverged=cause == Cause.DIVERGED, stalled=cause == Cause.STALLED, ended=status.completion_time
        )
    kind, spec = _kind(snapshot, status), snapshot.job.spec
    gpus = spec.gpus_per_node(snapshot.settings.gpu_resources) if kind else 0
    trains = status.state in {State.RUNNING, State.STALLED}
    budget = status.bookkeeping.budget.used
    return Standing(
        kind=kind,
        gpus=gpus and gpus * sum(pod.node_name is not None and pod.active for pod in snapshot.pods),
        step_since=_step_since(status) if trains else None,
        saved_since=_saved_since(snapshot, status) if trains else None,
        waits_since=_waits_since(status, created) if status.state in WAITING else None,
        budget_used=budget and budget / max(1, spec.restart.max_restarts),
        budget_restored=restored_at(spec, status) if budget else None,
        diverged=status.is_true(ConditionType.LOSS_NOT_FINITE) and status.state != State.SUSPENDED,
        stalled=status.state == State.STALLED,
    )


def counted(snapshot: Snapshot, after: DDPJobStatus, created: datetime | None = None) -> Counts:
    """Returns what the change from the snapshot's status to `after` adds. `created` is when the job was created."""
    before = snapshot.job.status
    cause = after.incidents[0].cause if after.incidents else ""
    steps, repeated = _steps(snapshot, after)
    return Counts(
        # A restart that turns out to be a disruption is counted as both: a counter cannot go back.
        restart=cause if after.restarts > before.restarts else "",
        disruption=cause if after.disruptions > before.disruptions else "",
        finished=after.state if after.finished and not before.finished else "",
        steps=steps,
        repeated_steps=repeated,
        starts=tuple((part, max(0.0, seconds)) for part, seconds in _start(snapshot, before, after, created)),
    )


def _kind(snapshot: Snapshot, status: DDPJobStatus) -> TimeKind | None:
    if status.state == State.RUNNING:
        if snapshot.report is not None and snapshot.report.phase is Phase.HOLDING:
            return TimeKind.OTHER
        supervised = status.bookkeeping.supervised or snapshot.job.spec.supervisor is not None
        return _kind_of_running(status, supervised=supervised)
    if status.state == State.STARTING:
        placed = sum(pod.node_name is not None for pod in snapshot.pods)
        return KINDS[State.STARTING] if placed >= (status.nodes or 1) else None
    return next((kind for state, kind in KINDS.items() if state == status.state), None)


def _kind_of_running(status: DDPJobStatus, *, supervised: bool) -> TimeKind:
    progress = status.progress
    if progress is None or not _is_of_attempt(progress, status):
        awaited = supervised and not status.is_true(ConditionType.AWAITING_FIRST_STEP)
        return TimeKind.PROGRAM_STARTUP if awaited else TimeKind.OTHER
    if progress.activity in ACTIVITIES:
        return ACTIVITIES[progress.activity]
    furthest = status.bookkeeping.steps.furthest
    if progress.step is None or furthest is None or progress.recounts:
        return TimeKind.GOODPUT
    return TimeKind.WASTED_PROGRESS if progress.step < furthest else TimeKind.GOODPUT


def _is_of_attempt(progress: Progress, status: DDPJobStatus) -> bool:
    """Whether the present attempt has finished a step. An old supervisor does not report of which attempt it is."""
    return progress.attempt is None or progress.attempt >= status.attempt


def _step_since(status: DDPJobStatus) -> datetime | None:
    progress, running = status.progress, status.condition(ConditionType.RUNNING)
    if progress is None or progress.last_step_time is None or running is None:
        return None
    return max(progress.last_step_time, running.last_transition_time)


def _saved_since(snapshot: Snapshot, status: DDPJobStatus) -> datetime | None:
    if snapshot.job.spec.checkpoint is None and status.checkpoint is None:
        return None
    saved = status.checkpoint.time if status.checkpoint else None
    return max(filter(None, (saved, status.first_run_time)), default=None)


def _waits_since(status: DDPJobStatus, created: datetime | None) -> datetime | None:
    """Returns when the job last ran, was resumed or, if neither, was created."""
    ended = (status.condition(kind) for kind in (ConditionType.RUNNING, ConditionType.SUSPENDED))
    moments = (one.last_transition_time for one in ended if one is not None and one.status != "True")
    return max(filter(None, (created, *moments)), default=None)


def _failed_for(status: DDPJobStatus) -> str:
    """Returns the cause of the incident after which the job failed; empty if it did not fail because of one."""
    failed, last = status.condition(ConditionType.FAILED), status.last_incident
    return last.cause if failed is not None and failed.reason not in FROM_OUTSIDE and last is not None else ""


def _steps(snapshot: Snapshot, after: DDPJobStatus) -> tuple[int, int]:
    """Returns how many steps have been finished, and how many of these an earlier attempt had finished.

    At most as many as can be made since the last report.
    """
    before = snapshot.job.status
    since = before.bookkeeping.steps.time or after.first_run_time or snapshot.now
    possible = STEPS_PER_SECOND * (1 + max(0, int((snapshot.now - since).total_seconds())))
    steps, repeated = _reported_steps(before, after)
    return min(steps, possible), min(repeated, possible)


def _reported_steps(before: DDPJobStatus, after: DDPJobStatus) -> tuple[int, int]:
    last, latest = before.progress, after.progress
    if latest is None or latest is last:
        return 0, 0
    same = last if last is not None and last.attempt == latest.attempt else None
    if latest.step is None:
        counted_before = same.steps_since_restart if same else None
        return max(0, (latest.steps_since_restart or 0) - (counted_before or 0)), 0
    begin = same.step if same else latest.first_step and latest.first_step - 1
    if begin is None:  # Nobody reported where the attempt began.
        return 0, 0
    furthest = 0 if latest.recounts else before.bookkeeping.steps.furthest or 0
    return max(0, latest.step - begin), max(0, min(latest.step, furthest) - begin)


def _start(
    snapshot: Snapshot, before: DDPJobStatus, after: DDPJobStatus, created: datetime | None
) -> Iterator[tuple[StartPart, float]]:
    start, ran = after.start_time, after.first_run_time
    if start is None:
        return
    if after.attempt > before.attempt:
        since = _queued_since(before, created)
        if since is not None:
            yield StartPart.QUEUED, (start - since).total_seconds()
    if ran is None:
        return
    if before.first_run_time is None:
        placed = max((pod.scheduled_at for pod in snapshot.pods if pod.scheduled_at is not None), default=None)
        if placed is not None:
            placed = min(placed, ran)
            yield StartPart.SCHEDULED, (placed - start).total_seconds()
            yield StartPart.PULLED, (ran - placed).total_seconds()
    stepped, report = _first_step(after), snapshot.report
    if stepped is not None and _first_step(before) is None and report is not None and report.phase is Phase.RUNNING:
        met = min(max(report.since, ran), stepped)
        yield StartPart.MET, (met - ran).total_seconds()
        yield StartPart.FIRST_STEP, (stepped - met).total_seconds()


def _queued_since(before: DDPJobStatus, created: datetime | None) -> datetime | None:
    """Returns since when the job has waited to start; None if it was suspended: when it was resumed is not known."""
    queued = before.condition(ConditionType.QUEUED)
    if queued is not None and queued.status == "True":
        return queued.last_transition_time
    return created if before.attempt == 0 and before.condition(ConditionType.SUSPENDED) is None else None


def _first_step(status: DDPJobStatus) -> datetime | None:
    """Returns when a step was first finished after the job started or was resumed."""
    since, ran = status.progress.since if status.progress else None, status.first_run_time
    return since if since is not None and ran is not None and since >= ran else None
