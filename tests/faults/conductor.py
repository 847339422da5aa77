"""Lets a job live its life under a plan, and tells in what it was not as it should be."""

import asyncio
import math
import re
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import aiohttp

from tests.plant import Plant

from . import oracle
from .faults import Armed, Gone, HalfOpen, Truncate
from .life import NAME, Life
from .obstacles import Obstacle
from .oracle import Account
from .plan import Family, Happening, Plan
from .proxy import Record
from .scene import PATIENCE_SECONDS, POLL_SECONDS, Scene, a_scene
from .witness import NeverError

LAST_LINES = 80
A_BUG = re.compile("this is a bug|Traceback|never retrieved|never awaited")
"""The operator's own words for an error that nobody has foreseen, and Python's."""
QUIET_SECONDS = 4.0
"""A status that can wait is written within three seconds."""
SILENCE_SECONDS = 150.0
"""A watch that is silent is given up after 70 s by kopf and 90 s by us, and the machine may be busy."""


@dataclass
class Outcome:
    """What came of a plan."""

    plan: Plan
    account: Account = field(default_factory=Account)
    seconds: dict[str, float] = field(default_factory=dict)
    """What each stage took."""
    wrong: list[str] = field(default_factory=list)
    """In sentences; empty where all is well."""
    story: str = ""
    """What to look at."""


async def live(
    plan: Plan, plant: Plant, upstream: aiohttp.ClientSession, undisturbed: Awaitable[Account] | None
) -> Outcome:
    """A whole life. Without an account of an undisturbed one, this is it."""
    outcome = Outcome(plan)
    with_clock = plan.obstacle is not None and plan.obstacle.clock
    async with a_scene(plant, upstream, *plan.flags, with_clock=with_clock) as scene:
        armed = [Armed(fault) for fault in plan.faults]
        scene.proxy.arm(*armed)
        try:
            began = asyncio.get_running_loop().time()
            await scene.until_it_watches()
            outcome.seconds["start"] = asyncio.get_running_loop().time() - began
            await _stages(plan, scene, outcome)
        except NeverError as error:
            outcome.wrong.append(str(error))
        usual = await undisturbed if undisturbed is not None else outcome.account
        outcome.wrong += _verdict(plan, scene, outcome.account, usual)
        outcome.wrong += [f"the fault never struck: {one.fault}" for one in armed if not one.fired]
        if plan.obstacle and not plan.obstacle.proved(scene):
            outcome.wrong.append(f"nothing has come of {plan.obstacle}")
        outcome.wrong += [f"the old list was never read: {kind}" for kind in scene.proxy.untold()]
        outcome.story = _story(scene, outcome)
    return outcome


async def _stages(plan: Plan, scene: Scene, outcome: Outcome) -> None:
    """The stages of a life; where a job is made anew, that one's life."""
    clock = asyncio.get_running_loop()
    life = plan.life.stages
    stages = list(life)
    lives = 1
    while stages:
        stage = stages.pop(0)
        if stage.name == plan.after and not scene.proxy.remembered:  # Else a moment of its own was planned.
            await scene.remember()
        hindered = plan.obstacle if plan.obstacle and plan.obstacle.stage == stage.name else None
        if hindered:
            await hindered.put(scene)
        began = clock.time()
        await stage.act(scene)
        if hindered:
            await _felt(hindered, scene)
            began = clock.time()
        await scene.witness.until(stage.name, stage.reached, PATIENCE_SECONDS)
        outcome.seconds[stage.name] = clock.time() - began
        if stage.name == plan.after and lives == 1:
            await _happen(plan, scene, outcome)
            if plan.happens in {Happening.REMADE, Happening.REMADE_UNSEEN}:
                outcome.account.ends.clear()
                stages, lives = list(life[1:]), 2
                await scene.witness.until("run again", life[0].reached, PATIENCE_SECONDS)
                outcome.account.ends[life[0].name] = oracle.end_of(scene.witness)
                continue
        if stage is life[-2]:
            await _struck(scene)
            await _watches_again(scene)
            await scene.until_it_has_looked()
            await _rest(scene)
            idle = await _renew(scene)
            made_by = scene.witness.job()["metadata"]["uid"]
        if stage is not life[-1]:
            outcome.account.ends[stage.name] = oracle.end_of(scene.witness)
    await scene.proxy.drained()
    await scene.witness.until("nothing any more", life[-1].reached, PATIENCE_SECONDS)
    outcome.wrong += oracle.needless(scene.proxy.log, idle, began)
    outcome.account.made, outcome.account.gone = oracle.objects(scene.witness.history, made_by)
    outcome.account.said = oracle.events_of(scene.proxy.log)


async def _struck(scene: Scene) -> None:
    """Until faults have struck whose moment comes by itself, however soon a life is over: at an event, or a list."""
    waiting = [one for one in scene.proxy.armed if one.fault.on.resource == "events" or one.fault.on.verb == "list"]
    await scene.proxy.until(lambda: all(one.fired for one in waiting), PATIENCE_SECONDS)
    await scene.proxy.drained()  # What strikes may kill the operator a moment later.


async def _rest(scene: Scene) -> None:
    """Until two operators who do not know of each other have both come to rest."""
    if len(scene.at_work) < 2:
        return
    for _ in range(math.ceil(PATIENCE_SECONDS / QUIET_SECONDS)):
        before = len(scene.proxy.log)
        await asyncio.sleep(QUIET_SECONDS)
        writes = [record for record in scene.proxy.log[before:] if record.call.writes]
        if not writes:
            return
    raise NeverError(f"they do not come to rest: {'; '.join(map(str, writes))}")


async def _watches_again(scene: Scene) -> None:
    """Until each watch that was broken has been followed by another one, and not by readings of everything alone."""
    for one in scene.proxy.armed:
        broken = one.fault.on.verb == "watch" or isinstance(one.fault.effect, Gone | Truncate | HalfOpen)
        if broken and one.fired:
            await scene.proxy.until(partial(_is_open, scene, one.fault.on.resource, one.fired[-1]), SILENCE_SECONDS)


def _is_open(scene: Scene, kind: str, since: float) -> bool:
    return any(
        (record.call.verb, record.call.resource, record.status) == ("watch", kind, 200) and record.answered > since
        for record in scene.proxy.log
    )


async def _felt(obstacle: Obstacle, scene: Scene) -> None:
    """Until it is; then it is taken away."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not obstacle.felt(scene):  # noqa: ASYNC110  Some are seen in the log of requests alone.
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NeverError(f"nothing is felt of {obstacle}; there is:\n{scene.witness}") from None
    await asyncio.sleep(obstacle.held)
    await obstacle.lift(scene)


async def _happen(plan: Plan, scene: Scene, outcome: Outcome) -> None:
    match plan.happens:
        case Happening.RESTART:
            await scene.crash()
            await scene.until_it_watches()
            await scene.until_it_has_looked_again()
            outcome.wrong += oracle.needless(scene.proxy.log, scene.proxy.process)
        case Happening.TRAVEL_BACK:
            scene.proxy.travel_back()
            await scene.crash()
            await scene.until_it_has_looked()
        case Happening.REMADE:
            await _remake(plan.life, scene)
        case Happening.REMADE_UNSEEN:
            scene.kill_operator()
            await _remake(plan.life, scene)
            scene.start_operator()


async def _remake(life: Life, scene: Scene) -> None:
    former = scene.witness.job()["metadata"]["uid"]
    await scene.delete("ddpjobs", NAME)
    await life.stages[0].act(scene)
    await scene.witness.until(
        "made anew", lambda there: bool(job := there.job()) and job["metadata"]["uid"] != former, PATIENCE_SECONDS
    )


async def _renew(scene: Scene) -> int:
    """A new process has looked at a job that needs nothing. Returns its number."""
    await scene.proxy.drained()
    await scene.stop_operator()
    scene.start_operator()
    await scene.until_it_watches()
    await scene.until_it_has_looked()
    return scene.proxy.process


def _verdict(plan: Plan, scene: Scene, mine: Account, usual: Account) -> list[str]:
    """All oracles."""
    log, history = scene.proxy.log, scene.witness.history
    return [
        *oracle.differences(mine, usual, plan.differs),
        *oracle.two_of_one_rank(history),
        *oracle.former_uids(history, log),
        *oracle.unconditional(log),
        *oracle.hot_loops(log),
        *oracle.quarrels(history, log),
        *oracle.impatient(log),
        *oracle.ended(scene.ended, plan.differs.last_words),
        *(
            f"a bug: {line}"
            for operator in scene.operators
            for line in operator.log.splitlines()
            if A_BUG.search(line)
        ),
        *(oracle.unsaid(mine, usual) if plan.family is Family.LOST else ()),
        *(_uneventful(plan.life, log) if not plan.faults and plan.happens is None and plan.obstacle is None else ()),
    ]


def _uneventful(life: Life, log: list[Record]) -> Iterator[str]:
    """The writes of an undisturbed life are those of the table, each once; one status may come once more.

    None but a status is refused.
    """
    done = [record for record in log if record.call.writes and record.call.resource != "events" and record.done]
    for row in life.writes:
        times = sum(row.on.covers(record.call) for record in done)
        alike = sum(replace(one.on, nth=1) == replace(row.on, nth=1) for one in life.writes)
        if times < row.on.nth or (times > alike and row.on.subresource != "status"):
            yield f"in the table of writes: {row.name}; written {times} times"
    statuses = sum(record.call.subresource == "status" for record in done)
    usual = sum(row.on.subresource == "status" for row in life.writes)
    if statuses > usual + 1:
        yield f"{statuses} statuses; in the table {usual}"
    for record in done:
        if not any(row.on.covers(record.call) for row in life.writes):
            yield f"not in the table of writes: {record}"
    for record in log:
        if record.call.writes and record.call.subresource != "status" and not record.done:
            yield f"refused, though nothing stands in its way: {record}"


def _story(scene: Scene, outcome: Outcome) -> str:
    requests = [str(record) for record in scene.proxy.log]
    changes = [str(change) for change in scene.witness.history]
    said = [line for operator in scene.operators for line in operator.log.splitlines()]
    told = [f"{time:9.3f} {call}" for time, call in scene.proxy.told]
    took = [f"{stage} {seconds:.1f} s" for stage, seconds in outcome.seconds.items()]
    parts = {
        "stages": took,
        "requests": requests,
        "what there was": changes,
        "what watches told": told,
        "the operators": said,
    }
    return "\n".join(line for title, lines in parts.items() for line in (f"-- {title}", *lines[-LAST_LINES:]))
