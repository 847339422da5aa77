"""Plans in which other people, the cluster's rules or the clock hinder a job."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from . import obstacles
from .dates import Wrong
from .lives import ELASTIC, TIMED
from .obstacles import Obstacle
from .plan import ALIKE, BLOCKED, Differs, Family, Plan

MADE_AGAIN = Differs(
    "a Service that is nobody's is deleted by hand, and recreated",
    {"services": 1},
    frozenset({"conditions.Blocked"}),
)
POLICY_MADE_AGAIN = Differs(
    "a NetworkPolicy that is nobody's is deleted by hand, and recreated",
    {"networkpolicies": 1},
    frozenset({"conditions.Blocked"}),
)
RELEASED = Differs(
    "a pod that is nobody's counts as taken away, and is deleted by hand",
    ends=frozenset({"incidents", "restarts", "disruptions", "bookkeeping", "pods"}),
)
LOOSE = Differs(
    "pods are made with another setting, and that it was blocked is told", ends=BLOCKED.ends | {"podSecurity"}
)
TIMED_UNDISTURBED = Plan("undisturbed-timed-life", Family.NONE, life=TIMED)
UNRESTRICTED = ("--pod-security=none",)
HELD_SECONDS = 6.0
"""How long some refusals last, which is long enough to find operators that retry too often."""
STARTS = ("run", "restart", "resume", "scale")
"""Stages in which a gang starts."""
WRONG_DATES = (
    *product((Wrong.ANSWERS, Wrong.CONNECTIONS), ("wait", "linger"), ("ahead", "behind")),
    (Wrong.ALL, "linger", "ahead"),
    # Objects written during this time get old dates, and expire as soon as the clock is right again.
    (Wrong.ALL, "finish", "behind"),
)
"""Which dates are wrong, the stage before which this begins, and the direction."""


def _plan(name: str, family: Family, obstacle: Obstacle, differs: Differs = ALIKE, *flags: str) -> Plan:
    return Plan(name, family, f"before: {obstacle.stage}", obstacle=obstacle, flags=flags, differs=differs)


def _refusals() -> Iterator[Plan]:
    for stage in STARTS:
        quota = replace(obstacles.quota(stage), held=HELD_SECONDS if stage == "run" else 0.0)
        yield _plan(f"quota-in-mid-gang-at-{stage}", Family.REFUSED, quota, BLOCKED)
    for level in ("baseline", "restricted"):
        security = obstacles.pod_security("run", level)
        yield _plan(f"pod-security-{level}", Family.REFUSED, security)
    for stage in ("run", "restart"):
        violated = obstacles.pod_security_violated(stage)
        yield _plan(f"pod-security-violated-at-{stage}", Family.REFUSED, violated, LOOSE, *UNRESTRICTED)
        held = HELD_SECONDS if stage == "run" else 0.0
        denies, dead = obstacles.denying_webhook(stage), obstacles.dead_webhook(stage)
        yield _plan(f"webhook-denies-pods-at-{stage}", Family.REFUSED, replace(denies, held=held), BLOCKED)
        yield _plan(f"webhook-does-not-answer-at-{stage}", Family.REFUSED, replace(dead, held=held), BLOCKED)
    yield _plan("limit-range-changes-pods", Family.REFUSED, obstacles.limit_range("run"))


def _ownership() -> Iterator[Plan]:
    for stage, incarnation in (("restart", 2), ("resume", 3)):
        for rank in (0, 1):
            pod = replace(obstacles.foreign_pod(stage, rank, incarnation), held=HELD_SECONDS if rank == 1 else 0.0)
            yield _plan(f"foreign-pod-{rank}-at-{stage}", Family.OWNED, pod, BLOCKED)
    yield _plan("foreign-podgroup", Family.OWNED, obstacles.foreign_group("resume", incarnation=3), BLOCKED)
    for stage in ("restart", "resume"):
        service = obstacles.disowned_service(stage)
        yield _plan(f"service-without-owner-at-{stage}", Family.OWNED, service, MADE_AGAIN)
    for stage in ("shrink", "grow"):
        policy = obstacles.disowned_policy(stage)
        plan = _plan(f"networkpolicy-without-owner-at-{stage}", Family.OWNED, policy, POLICY_MADE_AGAIN)
        yield replace(plan, life=ELASTIC)
    for rank in (0, 1):
        pod = obstacles.disowned_pod("restart", rank, incarnation=1)
        yield _plan(f"pod-{rank}-without-owner", Family.OWNED, pod, RELEASED)
    for stage in ("run", "restart", "scale"):
        yield _plan(f"two-operators-from-{stage}-on", Family.OWNED, obstacles.second_operator(stage))


def _leadership() -> Iterator[Plan]:
    """Plans with a Lease. All others have none, so that a process that replaces a killed one need not wait for it."""
    for what, obstacle in (
        ("killed-leader", obstacles.killed_leader("scale")),
        ("late-renewal", obstacles.late_renewal("restart")),
    ):
        name = f"{what}-before-{obstacle.stage}"
        yield _plan(name, Family.LEASE, obstacle, ALIKE, "--leader-elect", f"--lease-name={name}")


def _clock() -> Iterator[Plan]:
    for stage in (*STARTS, "suspend", "finish"):
        for name, hours in (("forwards", 1), ("back", -1)):
            yield _plan(f"clock-{name}-before-{stage}", Family.CLOCK, obstacles.clock_step(stage, hours))
    for which, stage, word in WRONG_DATES:
        hours = {"ahead": 1, "behind": -1}[word]
        wrong = obstacles.wrong_dates(stage, which, hours, restart=stage == "wait")
        yield replace(_plan(f"{'-'.join(which.split())}-{word}-before-{stage}", Family.CLOCK, wrong), life=TIMED)


HINDERED = (*_refusals(), *_ownership(), *_leadership(), *_clock())
