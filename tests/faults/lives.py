"""Lives of jobs, and the operator's writes in them.

A table of undisturbed lives, in which each row is a place for faults.

In the long life, a job of two nodes is created, runs, loses rank 1, restarts, is suspended, resumed, scaled to three
nodes, finishes, and is deleted when its time is over. In the brief life it has a NetworkPolicy, is suspended, resumed
without the policy, ends at its deadline, and is deleted. In the elastic life it wants three nodes, finds one and
gives it back, is suspended, resumed with another NetworkPolicy, continues with two nodes, grows when there is a
third, finishes, and is deleted. In the timed life it finds one node, runs with two, rank 1 finishes, then rank 0
does, the job is kept, and is deleted. All of this has time limits, none of which is reached. In the cancelled life it
is cancelled while it runs, ends as Failed with its pods, and is deleted; in the life that is cancelled at rest it is
suspended before. In the life in a queue of Kueue it waits until it is admitted, is evicted, admitted again, scaled to
one node, suspended, resumed, admitted a third time, finishes, and is deleted.
"""

from . import acts
from .calls import QUEUED
from .faults import On
from .life import Life, Row, Stage
from .witness import Witness

WITH_PATIENCE = {"scheduleTimeoutSeconds": 600, "network": {"statusPort": 9999}}
"""Also needs another NetworkPolicy, which permits requests to the status port."""


def _long(first: int = 1) -> tuple[Stage, ...]:
    """The stages of the long life, if this attempt is the first that runs."""
    return (
        Stage("run", acts.submit, acts.running(first, 2)),
        Stage("restart", acts.rank_1_fails, acts.running(first + 1, 2)),
        Stage("suspend", acts.change(suspend=True), acts.suspended),
        Stage("resume", acts.change(suspend=False), acts.running(first + 2, 2)),
        Stage("scale", acts.change(nodes=3), acts.running(first + 3, 3)),
        Stage("finish", acts.all_ranks_finish, acts.succeeded),
        Stage("expire", acts.change(ttlSecondsAfterFinished=0), Witness.nothing),
    )


_STAGES = _long()
_BRIEF_STAGES = (
    Stage("run", acts.submit_closed, acts.running(1, 2)),
    Stage("suspend", acts.change(suspend=True), acts.suspended),
    Stage("resume", acts.change(suspend=False, network={"policy": "Disabled"}), acts.running(2, 2)),
    Stage("deadline", acts.let_time_be_over, acts.failed),
    _STAGES[-1],
)
_ELASTIC_STAGES = (
    Stage("give-back", acts.submit_elastic, acts.given_back),
    Stage("suspend", acts.change(suspend=True), acts.suspended),
    Stage("shrink", acts.make_room(2, suspend=False, **WITH_PATIENCE), acts.looking_out(4, 2)),
    Stage("grow", acts.make_room(3, elastic={"shrinkAfterSeconds": 600}), acts.running(5, 3)),
    *_STAGES[-2:],
)
_TIMED_STAGES = (
    Stage("wait", acts.held(acts.submit_timed), acts.half_placed),
    Stage("run", acts.make_room(2), acts.running(1, 2)),
    Stage("linger", acts.held(acts.rank_1_finishes), acts.half_done),
    Stage("finish", acts.all_ranks_finish, acts.succeeded),
    Stage("keep", acts.held(acts.nothing), acts.succeeded),
    _STAGES[-1],
)
_CANCELLED_STAGES = (_STAGES[0], Stage("cancel", acts.change(cancel=True), acts.failed), _STAGES[-1])
_CANCELLED_AT_REST_STAGES = (
    _STAGES[0],
    Stage("suspend", acts.change(suspend=True), acts.suspended),
    *_CANCELLED_STAGES[1:],
)
_QUEUED_STAGES = (
    Stage("enter", acts.submit_queued, acts.queued),
    Stage("admit", acts.queue_admits, acts.known_to_run(1, 2)),
    Stage("evict", acts.queue_evicts, acts.queued),
    Stage("readmit", acts.queue_admits, acts.known_to_run(2, 2)),
    Stage("shrink", acts.change(nodes=1), acts.known_to_run(3, 1)),
    Stage("suspend", acts.change(suspend=True), acts.out_of_queue),
    Stage("resume", acts.change(suspend=False), acts.queued),
    Stage("start-over", acts.queue_admits, acts.known_to_run(4, 1)),
    Stage("finish", acts.all_ranks_finish, acts.known_to_have_succeeded),
    _STAGES[-1],
)


def _pod(stage: str, verb: str, rank: int, incarnation: int) -> Row:
    return Row(stage, f"{verb}-pod-{rank}-of-{incarnation}", On(verb, "pods", place=(rank, incarnation)))


def _status(stage: str, name: str, says: str, nth: int = 1) -> Row:
    return Row(stage, f"status-{name}", On("patch", "ddpjobs", "status", word=says, nth=nth))


def _group(stage: str, nth: int) -> tuple[Row, ...]:
    """An attempt's Workload, which comes first, and its PodGroup. Those of the last attempt are deleted then."""
    kinds = ("workload", "podgroup")
    made = (Row(stage, f"create-{kind}-{nth}", On("create", f"{kind}s", nth=nth)) for kind in kinds)
    gone = (Row(stage, f"delete-{kind}-{nth - 1}", On("delete", f"{kind}s", nth=nth - 1)) for kind in kinds)
    return (*made, *(gone if nth > 1 else ()))


_MARK = On("patch", "ddpjobs")
"""The write that marks the job as finished in its metadata."""


def _first_attempt(*after_the_group: Row) -> tuple[Row, ...]:
    """The writes until two pods run; some of them depend on the life."""
    return (
        _status("run", "start-1", "attempt-1-Pending"),
        *_group("run", 1),
        *after_the_group,
        Row("run", "create-service", On("create", "services")),
        Row("run", "create-secret", On("create", "secrets")),
        _pod("run", "create", 0, 1),
        _pod("run", "create", 1, 1),
        _status("run", "created-1", "attempt-1-*-created"),
        _status("run", "running-1", "attempt-1-Running-created"),
    )


_WRITES = (
    *_first_attempt(),
    _status("restart", "restart-2", "attempt-2-Restarting"),
    _pod("restart", "delete", 0, 1),
    _status("restart", "start-2", "attempt-2-Restarting", nth=2),
    *_group("restart", 2),
    _pod("restart", "create", 0, 2),
    _pod("restart", "create", 1, 2),
    _status("restart", "created-2", "attempt-2-*-created"),
    _status("restart", "running-2", "attempt-2-Running-created"),
    _status("suspend", "suspending", "attempt-2-Suspending*"),
    _pod("suspend", "delete", 0, 2),
    _pod("suspend", "delete", 1, 2),
    _status("suspend", "suspended", "attempt-2-Suspended"),
    _status("resume", "start-3", "attempt-3-Pending"),
    *_group("resume", 3),
    _pod("resume", "create", 0, 3),
    _pod("resume", "create", 1, 3),
    _status("resume", "created-3", "attempt-3-*-created"),
    _status("resume", "running-3", "attempt-3-Running-created"),
    _status("scale", "restart-4", "attempt-4-Restarting"),
    _pod("scale", "delete", 0, 3),
    _pod("scale", "delete", 1, 3),
    _status("scale", "start-4", "attempt-4-Restarting", nth=2),
    *_group("scale", 4),
    _pod("scale", "create", 0, 4),
    _pod("scale", "create", 1, 4),
    _pod("scale", "create", 2, 4),
    _status("scale", "created-4", "attempt-4-*-created"),
    _status("scale", "running-4", "attempt-4-Running-created"),
    _status("finish", "succeeded", "attempt-4-Succeeded*"),
    Row("finish", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)
"""The writes of the long life, in their order. Wherever pods are created, the operator tries to create the Secret
again, because it must not read Secrets, and is refused because the Secret exists. A status about the pods' progress
may be written once more, or together with the next status."""


_SUSPENDED = (
    _status("suspend", "suspending", "attempt-1-Suspending*"),
    _pod("suspend", "delete", 0, 1),
    _pod("suspend", "delete", 1, 1),
    _status("suspend", "suspended", "attempt-1-Suspended"),
)
_BRIEF_WRITES = (
    *_first_attempt(Row("run", "create-networkpolicy", On("create", "networkpolicies"))),
    *_SUSPENDED,
    _status("resume", "start-2", "attempt-2-Pending"),
    *_group("resume", 2),
    Row("resume", "delete-networkpolicy", On("delete", "networkpolicies")),
    _pod("resume", "create", 0, 2),
    _pod("resume", "create", 1, 2),
    _status("resume", "created-2", "attempt-2-*-created"),
    _status("resume", "running-2", "attempt-2-Running-created"),
    _pod("deadline", "patch", 0, 2),
    _pod("deadline", "patch", 1, 2),
    _status("deadline", "failing", "attempt-2-Running-created", nth=2),
    _status("deadline", "failed", "attempt-2-Failed*"),
    Row("deadline", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)


_CANCELLED_WRITES = (
    *_first_attempt(),
    _pod("cancel", "patch", 0, 1),
    _pod("cancel", "patch", 1, 1),
    _status("cancel", "cancelling", "attempt-1-Running-created", nth=2),
    _status("cancel", "cancelled", "attempt-1-Failed*"),
    Row("cancel", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)
_CANCELLED_AT_REST_WRITES = (
    *_first_attempt(),
    *_SUSPENDED,
    _status("cancel", "cancelled-at-rest", "attempt-1-Failed*"),
    Row("cancel", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)


_ELASTIC_WRITES = (
    _status("give-back", "start-1", "attempt-1-Pending"),
    *_group("give-back", 1),
    Row("give-back", "create-networkpolicy", On("create", "networkpolicies")),
    Row("give-back", "create-service", On("create", "services")),
    Row("give-back", "create-secret", On("create", "secrets")),
    *(_pod("give-back", "create", rank, 1) for rank in range(3)),
    _status("give-back", "given-back", "attempt-2-*"),
    *(_pod("give-back", "delete", rank, 1) for rank in range(3)),
    _status("suspend", "suspended", "attempt-2-Suspended"),
    Row("shrink", "delete-former-networkpolicy", On("delete", "networkpolicies")),
    _status("shrink", "start-3", "attempt-3-Pending"),
    *_group("shrink", 2),
    Row("shrink", "create-next-networkpolicy", On("create", "networkpolicies", nth=2)),
    *(_pod("shrink", "create", rank, 3) for rank in range(3)),
    _status("shrink", "shrunk", "attempt-4-Restarting"),
    *(_pod("shrink", "delete", rank, 3) for rank in range(3)),
    _status("shrink", "start-4", "attempt-4-Restarting", nth=2),
    *_group("shrink", 3),
    *(_pod("shrink", "create", rank, 4) for rank in range(2)),
    _status("shrink", "created-4", "attempt-4-*-created"),
    _status("shrink", "running-4", "attempt-4-Running-created"),
    Row("shrink", "create-reserve", On("create", "pods", place=(2, 4))),
    _status("grow", "seen", "attempt-4-Running-created", nth=2),
    _status("grow", "grown", "attempt-5-Restarting"),
    *(_pod("grow", "delete", rank, 4) for rank in range(2)),
    Row("grow", "delete-reserve", On("delete", "pods", place=(2, 4))),
    _status("grow", "start-5", "attempt-5-Restarting", nth=2),
    *_group("grow", 4),
    *(_pod("grow", "create", rank, 5) for rank in range(3)),
    _status("grow", "created-5", "attempt-5-*-created"),
    _status("grow", "running-5", "attempt-5-Running-created"),
    _status("finish", "succeeded", "attempt-5-Succeeded*"),
    Row("finish", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)


_TIMED_WRITES = (
    _status("wait", "start-1", "attempt-1-Pending"),
    *_group("wait", 1),
    Row("wait", "create-service", On("create", "services")),
    Row("wait", "create-secret", On("create", "secrets")),
    *(_pod("wait", "create", rank, 1) for rank in range(2)),
    _status("wait", "created-1", "attempt-1-*-created"),
    _status("run", "running-1", "attempt-1-Running-created"),
    _status("finish", "succeeded", "attempt-1-Succeeded*"),
    Row("finish", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)


def _tells(stage: str, word: str, nth: int = 1) -> Row:
    return Row(stage, f"queue-{word}-{nth}", On("patch", QUEUED, "status", word=word, nth=nth))


_QUEUED_WRITES = (
    _status("enter", "queued-0", "attempt-0-Queued"),
    Row("enter", "enter-queue-1", On("create", QUEUED)),
    _status("admit", "start-1", "attempt-1-Pending"),
    *_group("admit", 1),
    Row("admit", "create-service", On("create", "services")),
    Row("admit", "create-secret", On("create", "secrets")),
    *(_pod("admit", "create", rank, 1) for rank in range(2)),
    _status("admit", "created-1", "attempt-1-*-created"),
    _status("admit", "running-1", "attempt-1-Running-created"),
    _tells("admit", "PodsReady"),
    _status("evict", "stopping", "attempt-1-Queued"),
    *(_pod("evict", "delete", rank, 1) for rank in range(2)),
    _status("evict", "stopped", "attempt-1-Queued", nth=2),
    _tells("evict", "free"),
    _status("readmit", "start-2", "attempt-2-Pending"),
    *_group("readmit", 2),
    *(_pod("readmit", "create", rank, 2) for rank in range(2)),
    _status("readmit", "created-2", "attempt-2-*-created"),
    _status("readmit", "running-2", "attempt-2-Running-created"),
    _tells("readmit", "PodsReady", 2),
    _status("shrink", "restart-3", "attempt-3-Restarting"),
    *(_pod("shrink", "delete", rank, 2) for rank in range(2)),
    Row("shrink", "resize-place", On("patch", QUEUED)),
    _status("shrink", "start-3", "attempt-3-Restarting", nth=2),
    *_group("shrink", 3),
    _pod("shrink", "create", 0, 3),
    _status("shrink", "created-3", "attempt-3-*-created"),
    _status("shrink", "running-3", "attempt-3-Running-created"),
    _status("suspend", "suspending", "attempt-3-Suspending*"),
    _pod("suspend", "delete", 0, 3),
    _status("suspend", "suspended", "attempt-3-Suspended"),
    Row("suspend", "leave-queue", On("delete", QUEUED)),
    _status("resume", "queued-3", "attempt-3-Queued"),
    Row("resume", "enter-queue-2", On("create", QUEUED, nth=2)),
    _status("start-over", "start-4", "attempt-4-Pending"),
    *_group("start-over", 4),
    _pod("start-over", "create", 0, 4),
    _status("start-over", "created-4", "attempt-4-*-created"),
    _status("start-over", "running-4", "attempt-4-Running-created"),
    _tells("start-over", "PodsReady", 3),
    _status("finish", "succeeded", "attempt-4-Succeeded*"),
    _tells("finish", "Finished"),
    Row("finish", "mark-job", _MARK),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)

LONG = Life("long", _STAGES, _WRITES)
LONG_FROM_SECOND_ATTEMPT = Life(LONG.name, _long(first=2), ())
"""The long life if a first attempt is given up. It is compared with the long life in which nothing goes wrong."""
IN_QUEUE = Life("queued", _QUEUED_STAGES, _QUEUED_WRITES)
TIMED = Life("timed", _TIMED_STAGES, _TIMED_WRITES, more_statuses=3 * acts.CHANGES)
BRIEF = Life("brief", _BRIEF_STAGES, _BRIEF_WRITES)
CANCELLED = Life("cancelled", _CANCELLED_STAGES, _CANCELLED_WRITES)
CANCELLED_AT_REST = Life("cancelled-at-rest", _CANCELLED_AT_REST_STAGES, _CANCELLED_AT_REST_WRITES)
ELASTIC = Life("elastic", _ELASTIC_STAGES, _ELASTIC_WRITES)

EVENTS = (
    *(
        Row(stage, f"event-{reason}", On("create", "events", word=reason))
        for stage, reason in (
            ("run", "Created"),
            ("run", "Running"),
            ("restart", "Restarting"),
            ("suspend", "Suspended"),
            ("finish", "Complete"),
        )
    ),
    Row("restart", "event-again", On("patch", "events")),
)
"""Kubernetes events. They are written in the background: when something is first reported, and when it is
repeated."""
