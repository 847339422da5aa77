"""All plans: what is broken where, in which way."""

from .faults import Crash, Fault, Lost
from .life import EVENTS, WRITES, Row
from .plan import Family, Plan

UNDISTURBED = Plan("undisturbed", Family.NONE)


def _crashes(row: Row) -> tuple[Plan, ...]:
    """The operator dies with this write before it, and with it done."""
    return tuple(
        Plan(f"crash-{side}-{row.name}", Family.CRASH, row.stage, (Fault(row.on, Crash(after=side == "after")),))
        for side in ("before", "after")
    )


def _lost(row: Row) -> Plan:
    """The operator never hears that this write was done."""
    return Plan(f"lost-answer-{row.name}", Family.LOST, row.stage, (Fault(row.on, Lost()),))


PLANS = (
    UNDISTURBED,
    *(plan for row in (*WRITES, *EVENTS) for plan in _crashes(row)),
    *(_lost(row) for row in (*WRITES, *EVENTS)),
)
