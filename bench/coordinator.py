"""`python -m bench.coordinator`: the load of rank 0's supervisor in a large gang, and how soon its orders reach all.

The coordinator is the real one, in its own process and with the real control port. The followers of all other nodes
are connections from another process over loopback. They use the real protocol: each reports the progress of 8 ranks
at the usual interval, and obeys. The times include the work of all followers, which is done in turn here, but in
parallel on real nodes, so the times are upper bounds. Each of the two processes needs a core.
"""

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from ddpjob_supervisor.gang.control import control_port
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService
from ddpjob_supervisor.gang.judging import Limits
from ddpjob_supervisor.gang.link import Link, LinkLostError, LocalLink, connect
from ddpjob_supervisor.gang.membership import beat_seconds
from ddpjob_supervisor.gang.messages import Beats, End, Failed, Hello, Idle, Start, Stop
from ddpjob_supervisor.gang.rendezvous import RELEASE, Rendezvous
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.page.answers import Answers
from ddpjob_supervisor.page.status import Status
from ddpjob_supervisor.watch.beat import Beat

from tests.support.ports import hold_port

NODES = (32, 128, 256)
PROCESSES = 8
SECRET = b"a secret of this job's supervisors"
HOST = "127.0.0.1"
SECONDS = 8.0
FAILURES = 9
PATIENCE_SECONDS = 60.0


@dataclass
class Follower:
    """A simulated node, which obeys immediately and reports ranks that train."""

    node: int
    link: Link
    told: Callable[[Start | Stop], None]
    attempt: int = 0
    step: int = 0
    beating: asyncio.Task[None] | None = field(default=None, repr=False)

    async def follow(self, seconds: float) -> None:
        """Obeys messages until the connection is lost."""
        self.beating = asyncio.create_task(self._beat(seconds))
        try:
            while True:
                match await self.link.receive():
                    case Start() as start:
                        self.attempt, self.step = start.attempt, 0
                        self.told(start)
                    case Stop() as stop:
                        self.told(stop)
                    case _:
                        pass
        except LinkLostError:
            self.beating.cancel()

    def fail(self) -> None:
        """Reports that one of its ranks was killed."""
        self.link.send(Failed(self.attempt, "Application"))

    def idle(self, *, failed: bool = False) -> None:
        """Reports that none of its ranks is running any more."""
        first, now = self.node * PROCESSES, time.time()
        ends = [End(first + local, 137, now) for local in range(PROCESSES)]
        if failed:
            ends[0] = End(first, 137, now, "Application", "killed by SIGKILL")
        self.link.send(Idle(self.attempt, tuple(ends), progressed=True))

    async def _beat(self, seconds: float) -> None:
        await asyncio.sleep(seconds * (self.node % 64) / 64)  # Spreads the reports of the nodes over the interval.
        ranks = range(self.node * PROCESSES, (self.node + 1) * PROCESSES)
        while True:
            self.step += 1
            self.link.send(Beats(self.attempt, tuple(self._of(rank).to_dict() for rank in ranks), tuple(ranks)))
            await asyncio.sleep(seconds)

    def _of(self, rank: int) -> Beat:
        return Beat(
            rank,
            self.attempt,
            "training",
            step=self.step,
            step_age=0.125,
            reports=True,
            epoch=3,
            total_steps=100_000,
            loss=0.1234567,
            samples=65_536,
            step_seconds=0.25,
            seconds={"data": 0.01, "forward": 0.08, "backward": 0.14, "communication": 0.03, "optimizer": 0.02},
            memory_bytes=12_345_678_901,
        )


class Gang:
    """The followers of all nodes but node 0. Counts how many of them have received the last message."""

    def __init__(self) -> None:
        self.followers: list[Follower] = []
        self._starts = 0
        self._stops = 0
        self._all = asyncio.Event()

    def told(self, message: Start | Stop) -> None:
        """Counts a follower that has received a message."""
        self._starts += isinstance(message, Start)
        self._stops += isinstance(message, Stop)
        if max(self._starts, self._stops) == len(self.followers):
            self._all.set()

    async def all_know(self) -> float:
        """Waits until all followers have received the same message. Returns the time, from time.perf_counter()."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._all.wait()
        self._all.clear()
        self._starts = self._stops = 0
        return time.perf_counter()


async def _lead(nodes: int, port: int, pipe: Connection) -> None:
    """Runs rank 0's supervisor, the follower on its own node, and a status page that receives each report."""
    settings = Settings(
        uid="uid",
        nodes=nodes,
        processes=PROCESSES,
        in_a_job=True,
        control_port=port,
        listen=HOST,
        peers=(f"{HOST}:{port}",),
        limits=Limits(restarts=1000),
        secret=SECRET,
    )
    rendezvous, service = Rendezvous(settings), CoordinatorService(settings)
    nothing: Any = None  # There are neither ranks nor a zygote.
    status = Status(settings, nothing, service, rendezvous, nothing)
    answers = Answers(status.document)
    answers._waiting.add(asyncio.Event())  # This has the effect of an operator that always has a request open.
    service.on_change, service.on_beats = answers.changed, status.add
    link = LocalLink()

    def obey(message: Start | Stop) -> None:
        if isinstance(message, Stop):
            own.idle()

    own = Follower(0, link, obey)
    async with control_port(settings, rendezvous, nothing, service):
        tasks = [
            asyncio.create_task(service.look_after()),
            asyncio.create_task(service.serve(link.other_end(), Hello("uid", 0, 1, 1, port, RELEASE))),
            asyncio.create_task(own.follow(beat_seconds(nodes * PROCESSES))),
        ]
        pipe.send(None)
        while not any(task.done() for task in tasks):
            await asyncio.to_thread(pipe.recv)
            pipe.send((time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def _coordinator(nodes: int, port: int, pipe: Connection) -> None:
    asyncio.run(_lead(nodes, port, pipe))


def _row(nodes: int) -> str:
    """The row of the table for one size of gang."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    port = hold_port()
    process = context.Process(target=_coordinator, args=(nodes, port, there), daemon=True)
    process.start()
    here.recv()
    try:
        return asyncio.run(_measure(nodes, port, here))
    finally:
        process.kill()
        process.join()


async def _measure(nodes: int, port: int, pipe: Connection) -> str:
    gang = Gang()
    _, empty = _asked(pipe)
    seconds = beat_seconds(nodes * PROCESSES)
    for node in range(1, nodes):
        link = await connect(f"{HOST}:{port}")
        await link.say_first(Hello("uid", node, 1, 1, port, RELEASE), SECRET)
        gang.followers.append(Follower(node, link, gang.told))
    following = [asyncio.create_task(follower.follow(seconds)) for follower in gang.followers]
    await gang.all_know()
    await asyncio.sleep(2.0)
    before, began = _asked(pipe)[0], time.perf_counter()
    await asyncio.sleep(SECONDS)
    share = (_asked(pipe)[0] - before) / (time.perf_counter() - began)
    stops: list[float] = []
    starts: list[float] = []
    for number in range(FAILURES):
        failed = gang.followers[number % len(gang.followers)]
        began = time.perf_counter()
        failed.fail()
        stops.append(await gang.all_know() - began)
        *rest, last = [one for one in gang.followers if one is not failed]
        failed.idle(failed=True)
        for one in rest:
            one.idle()
        # By now the coordinator has handled these, so that only the last node's message is timed.
        await asyncio.sleep(0.5)
        began = time.perf_counter()
        last.idle()
        starts.append(await gang.all_know() - began)
        await asyncio.sleep(0.2)
    _, memory = _asked(pipe)
    for task in following:
        task.cancel()
    return (
        f"| {nodes} | {nodes * PROCESSES:,} | {seconds:.2f} s | {share:.1%} | {_ms(stops)} | {_ms(starts)}"
        f" | {memory:.0f} MiB, {memory - empty:.0f} more than alone |"
    )


def _asked(pipe: Connection) -> tuple[float, float]:
    """The CPU seconds of the coordinator, and its peak memory in MiB."""
    pipe.send(None)
    seconds, memory = pipe.recv()
    return seconds, memory


def _ms(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:.0f} ms, at most {max(times) * 1000:.0f}"


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.coordinator", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES, help=f"sizes of gangs (default: {NODES})")
    print("| Nodes | Ranks | Reports every | Coordinator's core | A failure → all are told to stop |", end="")
    print(" The last node's end → all are told to start | Memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for nodes in parser.parse_args().nodes:
        print(_row(nodes), flush=True)


if __name__ == "__main__":
    main()
