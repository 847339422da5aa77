"""Lets a job live its life under a plan, and tells in what it was not as it should be."""

import asyncio
import math
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from functools import partial

import aiohttp

from tests.plant import Plant

from . import oracle
from .faults import Armed, Gone, HalfOpen, Truncate
from .life import NAME, Life
from .obstacles import Obstacle
from .oracle import Account
from .plan import Happening, Plan
from .proxy import Record
from .scene import PATIENCE_SECONDS, POLL_SECONDS, Scene, a_scene
from .witness import NeverError

LAST_LINES = 80
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
        if stage.name == plan.after:
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
                continue
        if stage is life[-2]:
            await _struck(scene)
            await _watches_again(scene)
            idle = await _renew(scene)
            made_by = scene.witness.job()["metadata"]["uid"]
        if stage is not life[-1]:
            outcome.account.ends[stage.name] = oracle.end_of(scene.witness)
    await scene.proxy.drained()
    await scene.witness.until("nothing any more", life[-1].reached, PATIENCE_SECONDS)
    outcome.wrong += _needless(scene, idle, began)
    outcome.account.made, outcome.account.gone = oracle.objects(scene.witness.history, made_by)


async def _struck(scene: Scene) -> None:
    """Until faults have struck whose moment comes by itself, however soon a life is over: at an event, or a list."""
    waiting = [one for one in scene.proxy.armed if one.fault.on.resource == "events" or one.fault.on.verb == "list"]
    await scene.proxy.until(lambda: all(one.fired for one in waiting), PATIENCE_SECONDS)


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
            idle = await _renew(scene)
            await scene.until_it_has_looked_again()
            outcome.wrong += _needless(scene, idle)
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


def _needless(scene: Scene, process: int, changed: float = math.inf) -> Iterator[str]:
    """What a process has written so far that found nothing to do, until it deletes the job because its time is over.

    Once a user has changed the job, its status says that this is known.
    """
    for record in scene.proxy.log:
        call = record.call
        if record.process == process and call.writes:
            if (call.verb, call.resource) == ("delete", "ddpjobs"):
                return
            if call.subresource == "status" and record.began > changed:
                continue
            yield f"a new process on a job that needs nothing writes: {record}"


def _verdict(plan: Plan, scene: Scene, mine: Account, usual: Account) -> list[str]:
    """All oracles."""
    log, history = scene.proxy.log, scene.witness.history
    return [
        *oracle.differences(mine, usual, plan.differs),
        *oracle.two_of_one_rank(history),
        *oracle.former_uids(history, log),
        *oracle.unconditional(log),
        *oracle.hot_loops(log),
        *oracle.impatient(log),
        *(f"the operator ended by itself: {words}" for words in scene.ended[plan.differs.exits :]),
        *(_uneventful(plan.life, log) if not plan.faults and plan.happens is None and plan.obstacle is None else ()),
    ]


def _uneventful(life: Life, log: list[Record]) -> Iterator[str]:
    """The writes of an undisturbed life are those of the table, each once; a status may come once more."""
    done = [record for record in log if record.call.writes and record.call.resource != "events" and record.done]
    for row in life.writes:
        times = sum(row.on.covers(record.call) for record in done)
        if times < row.on.nth or (times > 1 and row.on.subresource != "status"):
            yield f"in the table of writes: {row.name}; written {times} times"
    for record in done:
        if not any(row.on.covers(record.call) for row in life.writes):
            yield f"not in the table of writes: {record}"


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
