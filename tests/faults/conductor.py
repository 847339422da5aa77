"""Runs the life of a job under a plan, and finds out in which respects it was wrong."""

import asyncio
import math
import re
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus

import aiohttp

from tests.plant import Plant
from tests.support.waiting import patience

from . import oracle
from .faults import Armed, Gone, HalfOpen, Truncate
from .life import NAME, Life
from .obstacles import Obstacle
from .oracle import Account
from .plan import Family, Happening, Plan
from .proxy import Record
from .rig import PATIENCE_SECONDS, POLL_SECONDS, Rig, a_rig
from .witness import Manifest, NeverError

LAST_LINES = 80
A_BUG = re.compile("this is a bug|Traceback|never retrieved|never awaited")
"""The operator's own words for an unforeseen error, and Python's."""
QUIET_SECONDS = 4.0
"""A status that can wait is written within three seconds."""
SILENCE_SECONDS = 150.0
"""kopf gives up a silent watch after 70 s, and we do after 90 s. The machine may also be busy."""

LATE_SECONDS = 12.0
"""A write that can wait comes at most ten seconds after the last such status. An operator that began with an old view
may also have to take something back."""


@dataclass
class Outcome:
    """The result of a plan."""

    plan: Plan
    account: Account = field(default_factory=Account)
    seconds: dict[str, float] = field(default_factory=dict)
    """How many seconds each stage took."""
    wrong: list[str] = field(default_factory=list)
    """Everything that was wrong, in sentences; empty if nothing was."""
    story: str = ""
    """The requests, changes and logs to look at if something was wrong."""


async def live(
    plan: Plan, plant: Plant, upstream: aiohttp.ClientSession, undisturbed: Awaitable[Account] | None
) -> Outcome:
    """Runs a whole life. With `undisturbed` None, this is the undisturbed life with which others are compared."""
    outcome = Outcome(plan)
    with_clock = plan.obstacle is not None and plan.obstacle.clock
    async with a_rig(plant, upstream, *plan.flags, with_clock=with_clock) as rig:
        armed = [Armed(fault) for fault in plan.faults]
        rig.proxy.arm(*armed)
        try:
            began = asyncio.get_running_loop().time()
            await rig.until_it_watches()
            outcome.seconds["start"] = asyncio.get_running_loop().time() - began
            await _stages(plan, rig, outcome)
        except NeverError as error:
            outcome.wrong.append(str(error))
        usual = await undisturbed if undisturbed is not None else outcome.account
        outcome.wrong += _verdict(plan, rig, outcome.account, usual)
        outcome.wrong += [f"the fault never struck: {one.fault}" for one in armed if not one.fired]
        if plan.obstacle and not plan.obstacle.proved(rig):
            outcome.wrong.append(f"nothing has come of {plan.obstacle}")
        outcome.wrong += [f"the old list was never read: {kind}" for kind in rig.proxy.untold()]
        outcome.story = _story(rig, outcome)
    return outcome


async def _stages(plan: Plan, rig: Rig, outcome: Outcome) -> None:
    """Runs the stages of a life. If the job is recreated, its life starts again."""
    clock = asyncio.get_running_loop()
    life = plan.life.stages
    stages = list(life)
    lives = 1
    while stages:
        stage = stages.pop(0)
        # If a state is remembered already, a fault of the plan has chosen that moment.
        if stage.name == plan.after and not rig.proxy.remembered:
            await rig.remember()
        hindered = plan.obstacle if plan.obstacle and plan.obstacle.stage == stage.name else None
        if hindered:
            await hindered.put(rig)
        began = clock.time()
        await stage.act(rig)
        if hindered:
            await _felt(hindered, rig)
            began = clock.time()
        await rig.witness.until(stage.name, stage.reached, PATIENCE_SECONDS)
        outcome.seconds[stage.name] = clock.time() - began
        if stage.name == plan.after and lives == 1:
            before = oracle.end_of(rig.witness)
            await _happen(plan, rig, outcome)
            if plan.happens in {Happening.REMADE, Happening.REMADE_UNSEEN}:
                outcome.account.ends.clear()
                stages, lives = list(life[1:]), 2
                await rig.witness.until("run again", life[0].reached, PATIENCE_SECONDS)
                outcome.account.ends[life[0].name] = oracle.end_of(rig.witness)
                continue
            await _same_again(rig, before)
        if stage is life[-2]:
            await _struck(rig)
            await _watches_again(rig)
            await rig.until_it_has_looked()
            await _rest(rig)
            idle = await _renew(rig)
            made_by = rig.witness.job()["metadata"]["uid"]
        if stage is not life[-1]:
            outcome.account.ends[stage.name] = oracle.end_of(rig.witness)
    await rig.proxy.drained()
    await rig.witness.until("nothing any more", life[-1].reached, PATIENCE_SECONDS)
    outcome.wrong += oracle.needless(rig.proxy.log, idle, began)
    outcome.account.made, outcome.account.gone = oracle.objects(rig.witness.history, made_by)
    outcome.account.said = oracle.events_of(rig.proxy.log)


async def _same_again(rig: Rig, before: Manifest) -> None:
    """Waits until the stage has ended as it had before.

    If it never does, a later comparison of the ends reports that.
    """
    with suppress(NeverError):
        await rig.witness.until("the same again", lambda there: oracle.end_of(there) == before, LATE_SECONDS)


async def _struck(rig: Rig) -> None:
    """Waits for faults whose moment comes even after the last stage: at an event, or at a list."""
    waiting = [one for one in rig.proxy.armed if one.fault.on.resource == "events" or one.fault.on.verb == "list"]
    await rig.proxy.until(lambda: all(one.fired for one in waiting), PATIENCE_SECONDS)
    await rig.proxy.drained()  # A fault may kill the operator only a moment later.


async def _rest(rig: Rig) -> None:
    """Waits until two operators that do not know of each other have stopped writing."""
    if len(rig.at_work) < 2:
        return
    for _ in range(math.ceil(PATIENCE_SECONDS / QUIET_SECONDS)):
        before = len(rig.proxy.log)
        await asyncio.sleep(QUIET_SECONDS)
        writes = [record for record in rig.proxy.log[before:] if record.call.writes]
        if not writes:
            return
    raise NeverError(f"they do not come to rest: {'; '.join(map(str, writes))}")


async def _watches_again(rig: Rig) -> None:
    """Waits until each watch that was broken has been followed by a new watch, and not just by lists."""
    for one in rig.proxy.armed:
        broken = one.fault.on.verb == "watch" or isinstance(one.fault.effect, Gone | Truncate | HalfOpen)
        if broken and one.fired:
            await rig.proxy.until(partial(_is_open, rig, one.fault.on.resource, one.fired[-1]), SILENCE_SECONDS)


def _is_open(rig: Rig, kind: str, since: float) -> bool:
    return any(
        (record.call.verb, record.call.resource, record.status) == ("watch", kind, 200) and record.answered > since
        for record in rig.proxy.log
    )


async def _felt(obstacle: Obstacle, rig: Rig) -> None:
    """Waits until an obstacle has had its effect, and then removes it."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not obstacle.felt(rig):  # noqa: ASYNC110  Some effects are visible only in the log of requests.
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NeverError(f"nothing is felt of {obstacle}; there is:\n{rig.witness}") from None
    await asyncio.sleep(obstacle.held)
    await obstacle.lift(rig)


async def _happen(plan: Plan, rig: Rig, outcome: Outcome) -> None:
    match plan.happens:
        case Happening.RESTART:
            await rig.crash()
            await rig.until_it_watches()
            await rig.until_it_has_looked_again()
            outcome.wrong += oracle.needless(rig.proxy.log, rig.proxy.process)
        case Happening.TRAVEL_BACK:
            rig.proxy.travel_back()
            await rig.crash()
            await rig.until_it_has_looked()
        case Happening.REMADE:
            await _remake(plan.life, rig)
        case Happening.REMADE_UNSEEN:
            rig.kill_operator()
            await _remake(plan.life, rig)
            rig.start_operator()


async def _remake(life: Life, rig: Rig) -> None:
    former = rig.witness.job()["metadata"]["uid"]
    await rig.delete("ddpjobs", NAME)
    await life.stages[0].act(rig)
    await rig.witness.until(
        "made anew", lambda there: bool(job := there.job()) and job["metadata"]["uid"] != former, PATIENCE_SECONDS
    )


async def _renew(rig: Rig) -> int:
    """Starts a new process, and waits until it has handled a job that needs nothing. Returns the process's number."""
    await rig.proxy.drained()
    await rig.stop_operator()
    rig.start_operator()
    await rig.until_it_watches()
    await rig.until_it_has_looked()
    return rig.proxy.process


def _verdict(plan: Plan, rig: Rig, mine: Account, usual: Account) -> list[str]:
    """Everything that any of the checks in `oracle` finds."""
    log, history = rig.proxy.log, rig.witness.history
    return [
        *oracle.differences(mine, usual, plan.differs),
        *oracle.two_of_one_rank(history),
        *oracle.former_uids(history, log),
        *oracle.unconditional(log),
        *oracle.hot_loops(log, patience(oracle.AT_ONCE_SECONDS)),
        *oracle.quarrels(history, log),
        *oracle.impatient(log),
        *oracle.ended(rig.ended),
        *(f"a bug: {line}" for operator in rig.operators for line in operator.log.splitlines() if A_BUG.search(line)),
        *(oracle.unsaid(mine, usual) if plan.family is Family.LOST else ()),
        *(oracle.two_leaders(log) if plan.family is Family.LEASE else ()),
        *(_uneventful(plan.life, log) if not plan.faults and plan.happens is None and plan.obstacle is None else ()),
    ]


def _uneventful(life: Life, log: list[Record]) -> Iterator[str]:
    """Checks that an undisturbed life makes the writes of the table, each once.

    Only two statuses may be written one more time.

    No write may be refused, except for a status, and a Secret that already exists.
    """
    done = [record for record in log if record.call.writes and record.call.resource != "events" and record.done]
    for row in life.writes:
        times = sum(row.on.covers(record.call) for record in done)
        alike = sum(replace(one.on, nth=1) == replace(row.on, nth=1) for one in life.writes)
        if times < row.on.nth or (times > alike and row.on.subresource != "status"):
            yield f"in the table of writes: {row.name}; written {times} times"
    statuses = sum(record.call.subresource == "status" for record in done)
    usual = sum(row.on.subresource == "status" for row in life.writes)
    if statuses > usual + life.more_statuses + 2:
        yield f"{statuses} statuses; in the table {usual}"
    for record in done:
        if not any(row.on.covers(record.call) for row in life.writes):
            yield f"not in the table of writes: {record}"
    for record in log:
        there_already = record.call.resource == "secrets" and record.status == HTTPStatus.CONFLICT
        if record.call.writes and record.call.subresource != "status" and not record.done and not there_already:
            yield f"refused, though nothing stands in its way: {record}"


def _story(rig: Rig, outcome: Outcome) -> str:
    requests = [str(record) for record in rig.proxy.log]
    changes = [str(change) for change in rig.witness.history]
    said = [line for operator in rig.operators for line in operator.log.splitlines()]
    told = [f"{time:9.3f} {call}" for time, call in rig.proxy.told]
    took = [f"{stage} {seconds:.1f} s" for stage, seconds in outcome.seconds.items()]
    parts = {
        "stages": took,
        "requests": requests,
        "what there was": changes,
        "what watches told": told,
        "the operators": said,
    }
    return "\n".join(line for title, lines in parts.items() for line in (f"-- {title}", *lines[-LAST_LINES:]))
