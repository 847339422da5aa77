"""What a node's supervisor tells of its ranks, with ranks that are any processes."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest
from ddpjob_trainer.heartbeat import EMPTY, SLOTS, Record, encode
from ddpjob_trainer.supervisor.gang.follower import Follower, beat_seconds
from ddpjob_trainer.supervisor.gang.link import LocalLink
from ddpjob_trainer.supervisor.gang.messages import Examine, Examined, Start
from ddpjob_trainer.supervisor.gang.rendezvous import Rendezvous
from ddpjob_trainer.supervisor.gang.settings import Settings
from ddpjob_trainer.supervisor.starting.program import Program
from ddpjob_trainer.supervisor.starting.ranks import Place, Rank

DEADLINE_SECONDS = 30


class Sleepers:
    """Starts processes that only sleep."""

    zygote: int | None = None

    def __init__(self) -> None:
        self.processes: list[asyncio.subprocess.Process] = []
        self.ranks: list[Rank] = []

    @property
    def pids(self) -> set[int]:
        return {process.pid for process in self.processes}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            await process.wait()

    async def ready(self) -> None:
        pass

    async def start(self, _: Place) -> Rank:
        process = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
        self.processes.append(process)
        self.ranks.append(Rank(process.pid))
        return self.ranks[-1]


Scene = Callable[[Follower, Sleepers], Awaitable[None]]


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))

    async def play(scene: Scene) -> None:
        settings = Settings(processes=2)
        fit = asyncio.create_task(asyncio.sleep(0))
        async with Sleepers() as sleepers, asyncio.timeout(DEADLINE_SECONDS):
            follower = Follower(
                settings,
                Program(module=False, name="train.py"),
                sleepers,
                Rendezvous(settings),
                fit=fit,
                env=os.environ,
                directory=tmp_path,
            )
            await scene(follower, sleepers)
            if follower._running is not None:
                follower._running.cancel()
                await asyncio.wait([follower._running])
            follower._heartbeats.close()

    return lambda scene: asyncio.run(play(scene))


def test_of_a_rank_that_has_ended_it_says_so(follow: Callable[[Scene], None]) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        link = LocalLink()
        follower._link, leader = link, link.other_end()
        follower._heed(Start(1, 0, {}))
        while follower._crew is None or len(follower._crew.pids) < 2:  # noqa: ASYNC110  (nothing tells of a start)
            await asyncio.sleep(0.01)
        sleepers.ranks[1].ended.set_result(0)
        follower._heed(Examine(1))
        told = await leader.receive()
        assert isinstance(told, Examined)
        states = {finding["process"]: finding["state"] for finding in told.findings}
        assert (states[0] in {"S", "R"}, states[1]) == (True, "X"), states

    follow(scene)


def test_nothing_of_the_last_attempt_is_told_of_the_next(follow: Callable[[Scene], None]) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        told = encode(1, Record(process=0, attempt=1, step=7), b"")
        path, slot = follower._heartbeats.path(0), SLOTS[1]
        path.write_bytes(EMPTY[:slot] + told + EMPTY[slot + len(told) :])
        assert [beat["step"] for beat in follower.beats()] == [7]
        follower._heed(Start(2, 0, {}))
        assert (follower.attempt, follower.beats()) == (2, ())

    follow(scene)


@pytest.mark.parametrize(
    ("processes", "seconds"), [(1, 0.5), (2000, 0.5), (4000, 1.0), (8000, 2.0), (1_000_000, 2.0)]
)
def test_in_a_large_world_each_node_tells_less_often(processes: int, seconds: float) -> None:
    assert beat_seconds(processes) == seconds
