"""Plans in which others, the cluster's rules or the clock stand in a job's way."""

from collections.abc import Iterator
from dataclasses import replace

from . import obstacles
from .obstacles import Obstacle
from .plan import ALIKE, Differs, Family, Plan

BLOCKED = Differs("that it was blocked, and no longer is, is told", ends=frozenset({"conditions.Blocked"}))
MADE_AGAIN = Differs(
    "a Service that is nobody's is deleted by hand, and made again",
    {"services": 1},
    frozenset({"conditions.Blocked"}),
)
LOOSE = Differs(
    "pods are made with another setting, and that it was blocked is told", ends=BLOCKED.ends | {"podSecurity"}
)
UNRESTRICTED = ("--pod-security=none",)
HELD_SECONDS = 6.0
"""So long some refusals last: long enough to tell who asks again and again."""
STARTS = ("run", "restart", "resume", "scale")
"""Stages in which a gang comes up."""


def _plan(name: str, family: Family, obstacle: Obstacle, differs: Differs = ALIKE, *flags: str) -> Plan:
    return Plan(name, family, f"before: {obstacle.stage}", obstacle=obstacle, flags=flags, differs=differs)


def _refusals() -> Iterator[Plan]:
    for stage in STARTS:
        pods = 2 if stage == "scale" else 1
        quota = replace(obstacles.quota(stage, pods), held=HELD_SECONDS if stage == "run" else 0.0)
        yield _plan(f"quota-in-mid-gang-at-{stage}", Family.REFUSED, quota, BLOCKED)
    for level in ("baseline", "restricted"):
        security = obstacles.pod_security("run", level)
        yield _plan(f"pod-security-{level}", Family.REFUSED, security)
    for stage in ("run", "restart"):
        violated = obstacles.pod_security_violated(stage)
        yield _plan(f"pod-security-violated-at-{stage}", Family.REFUSED, violated, LOOSE, *UNRESTRICTED)
        denies, dead = obstacles.denying_webhook(stage), obstacles.dead_webhook(stage)
        denies = replace(denies, held=HELD_SECONDS if stage == "run" else 0.0)
        yield _plan(f"webhook-denies-pods-at-{stage}", Family.REFUSED, denies, BLOCKED)
        yield _plan(f"webhook-does-not-answer-at-{stage}", Family.REFUSED, dead)
    yield _plan("limit-range-changes-pods", Family.REFUSED, obstacles.limit_range("run"))


def _ownership() -> Iterator[Plan]:
    yield _plan("foreign-service", Family.OWNED, obstacles.foreign_service("run"), BLOCKED)
    for stage, incarnation in (("restart", 2), ("resume", 3)):
        for rank in (0, 1):
            pod = replace(obstacles.foreign_pod(stage, rank, incarnation), held=HELD_SECONDS if rank == 1 else 0.0)
            yield _plan(f"foreign-pod-{rank}-at-{stage}", Family.OWNED, pod, BLOCKED)
    for stage in ("restart", "resume"):
        service = obstacles.disowned_service(stage)
        yield _plan(f"service-without-owner-at-{stage}", Family.OWNED, service, MADE_AGAIN)
    for stage in ("run", "restart", "scale"):
        yield _plan(f"two-operators-from-{stage}-on", Family.OWNED, obstacles.second_operator(stage))


def _clock() -> Iterator[Plan]:
    for stage in (*STARTS, "suspend", "finish"):
        for name, hours in (("forwards", 1), ("back", -1)):
            yield _plan(f"clock-{name}-before-{stage}", Family.CLOCK, obstacles.clock_step(stage, hours))


HINDERED = (*_refusals(), *_ownership(), *_clock())
