"""The leader with one member, which is in the same process as rank 0's own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ddpjob_trainer.supervisor.gang.coordinator import Phase
from ddpjob_trainer.supervisor.gang.leader import Leader
from ddpjob_trainer.supervisor.gang.link import LocalLink
from ddpjob_trainer.supervisor.gang.messages import Beats, Examine, Examined, Hello, Message, Start, Stop
from ddpjob_trainer.supervisor.gang.settings import Settings

DEADLINE_SECONDS = 30
BEAT: dict[str, Any] = {"process": 0, "attempt": 1, "activity": "training", "step": 5, "stepAge": 0.1}


class Told:
    """What a member is told."""

    def __init__(self, link: LocalLink) -> None:
        self._link = link

    async def until(self, kind: type[Message]) -> None:  # type: ignore[type-arg]
        while not isinstance(await self._link.receive(), kind):
            pass


Scene = Callable[[Leader, LocalLink, Told], Awaitable[None]]


def lead(scene: Scene) -> None:
    """Plays a scene of one member and its leader, which ends with the scene."""

    async def all_of_it() -> None:
        leader, link = Leader(Settings(uid="u")), LocalLink()
        serving = asyncio.create_task(leader.serve(link.other_end(), Hello("u", 0, 1, 1, 29502, "r")))
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await scene(leader, link, Told(link))
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await leader.close()
        assert serving.cancelled(), serving.exception()

    asyncio.run(all_of_it())


@pytest.mark.parametrize(
    "finding",
    [
        {"process": 0, "state": "S", "where": "train.py:9", "temperature": 90},
        {"process": 0, "state": ["S"]},
        {"process": 0, "state": "S", "step": "5", "sequences": None},
    ],
    ids=["a field of a newer version", "a list for text", "other things inside"],
)
def test_a_stalled_attempt_ends_whatever_was_found(finding: dict[str, Any]) -> None:
    async def scene(leader: Leader, member: LocalLink, told: Told) -> None:
        await told.until(Start)
        leader.coordinator.found_stalled(0.0, 1.0)
        leader._act()
        await told.until(Examine)
        member.send(Examined(1, (finding,)))
        await told.until(Stop)
        stall = leader.coordinator.stall
        assert leader.coordinator.phase is Phase.STOPPING
        assert stall
        assert stall.message

    lead(scene)


def test_beats_are_passed_on_with_the_node_that_they_came_from() -> None:
    async def scene(leader: Leader, member: LocalLink, told: Told) -> None:
        passed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        leader.on_beats = lambda attempt, beats: passed.set_result((attempt, list(beats)))
        await told.until(Start)
        member.send(Beats(0, (BEAT,)))
        member.send(Beats(1, (BEAT,)))
        assert await passed == (1, [{**BEAT, "node": 0}])
        assert leader.beats() == {0: {**BEAT, "node": 0}}

    lead(scene)
