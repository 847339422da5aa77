"""Plans in which something goes wrong between a job and its queue, at each write that is meant for Kueue.

Kueue itself does not run: the acts of the life write what Kueue would write (`acts.py`). Jobs with the real Kueue,
and an operator that is killed again and again, are in `tests/scheduling/test_kueue_crashes.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from . import obstacles
from .calls import EVENT, QUEUED
from .faults import Answer, Crash, Drop, Effect, Fault, Hang, Lost, On
from .lives import IN_QUEUE
from .plan import ALIKE, BLOCKED, Differs, Family, Plan

PLACE = "place in a queue"
UNDISTURBED = Plan("undisturbed-in-a-queue", Family.NONE, life=IN_QUEUE)

WRITES = tuple(row for row in IN_QUEUE.writes if row.on.resource == QUEUED)
ONE_OF_EACH = frozenset(
    {
        "enter-queue-1",
        "queue-PodsReady-1",
        "queue-free-1",
        "resize-place",
        "leave-queue",
        "queue-Finished-1",
    }
)
"""One write of each kind."""
ANSWERS: Mapping[str, Effect] = {
    "403": Answer(403, "Forbidden"),
    "409": Answer(409, "Conflict"),
    "422": Answer(422, "Invalid"),
    # The server's answer if Kueue's webhook, which converts between the versions of its kinds, does not answer.
    "500": Answer(500, "InternalError"),
    "hang": Hang(),
}
REFUSALS = frozenset({"403", "422"})
FOR_A_WHILE_SECONDS = 6.0
"""Long enough to find an operator that retries too often."""
UNSEEN = {
    "admitted": On(EVENT, QUEUED, word="seen", nth=1),
    "evicted": On(EVENT, QUEUED, word="seen", nth=3),
}
"""Events of a watch on the job's place. Between these two, the operator has written that all pods are ready."""


def _plan(name: str, family: Family, on: On, effect: Effect, differs: Differs = ALIKE) -> Plan:
    return Plan(name, family, PLACE, (Fault(on, effect),), life=IN_QUEUE, differs=differs)


def _plans() -> Iterator[Plan]:
    yield UNDISTURBED
    for row in WRITES:
        yield _plan(f"crash-before-{row.name}", Family.CRASH, row.on, Crash(after=False))
        yield _plan(f"crash-after-{row.name}", Family.CRASH, row.on, Crash(after=True))
        yield _plan(f"lost-answer-{row.name}", Family.LOST, row.on, Lost())
        for name, effect in ANSWERS.items() if row.name in ONE_OF_EACH else ():
            differs = BLOCKED if name in REFUSALS else ALIKE
            yield _plan(f"{name}-on-{row.name}", Family.ERROR, row.on, effect, differs)
        if row.name in ONE_OF_EACH and row.on.verb != "delete":
            lasting = replace(row.on, seconds=FOR_A_WHILE_SECONDS)
            yield _plan(f"403-for-a-while-on-{row.name}", Family.ERROR, lasting, ANSWERS["403"], BLOCKED)
    for name, on in UNSEEN.items():
        yield _plan(f"unseen-{name}", Family.UNSEEN, on, Drop())
    for verb in ("list", "watch"):
        yield _plan(
            f"503-on-{verb}-of-places", Family.WATCH, On(verb, QUEUED, times=3), Answer(503, "Unavailable", 1)
        )


DELETED = Differs("a place in a queue that is deleted by hand is recreated", {QUEUED: 1})
PLANS = (
    *_plans(),
    Plan(
        "place-deleted-by-hand",
        Family.OWNED,
        PLACE,
        obstacle=obstacles.deleted_place("admit"),
        differs=DELETED,
        life=IN_QUEUE,
    ),
)
