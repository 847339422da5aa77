"""Two ranks over gloo, of which one does not come to the collective: both are asked, and the right one is named."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.running.program import program_of
from ddpjob_supervisor.gpu import flight_recorder
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.node.ranks import Launch, Rank
from ddpjob_supervisor.node.starters import Starter
from ddpjob_supervisor.node.warm import Warm
from ddpjob_supervisor.node.zygote_process import Preload
from ddpjob_supervisor.watch.blame import Observation, blame
from ddpjob_supervisor.watch.heartbeats import Heartbeats
from ddpjob_supervisor.watch.procfs import Process
from ddpjob_supervisor.watch.stacks import collect

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.ranks import world

DEADLINE_SECONDS = 60

Found = dict[int, dict[str, Any]]

PRELUDE = """
import ctypes, os, sys, time
import torch
import torch.distributed as dist

os.chdir(os.path.dirname(__file__))
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def ready(): open("ready", "w").close()
"""

LOOP = """
for step in range(1, 10):
    if step == 3 and dist.get_rank() == 1:
        stuck()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""

SLEEPS = "def stuck(): ready(); time.sleep(1000)"
SPINS = "def stuck(): ready(); sum(range(10**18))"
"""In C, and with the interpreter's lock."""

STOPS = "def stuck(): ready(); os.kill(os.getpid(), 19)"

WAITS_IN_THE_KERNEL = """
CLONE3, CLONE_VFORK, SIGCHLD = 435, 0x4000, 17
def stuck():
    arguments = (ctypes.c_uint64 * 11)(CLONE_VFORK, 0, 0, 0, SIGCHLD)
    if ctypes.CDLL(None).syscall(CLONE3, arguments, 88) == 0:
        ready()
        time.sleep(1000)
"""
"""As in a read from a server that is gone only SIGKILL is heard, here until the child ends: clone(2), CLONE_VFORK."""

WAITS_FOR_DATA = """
class Shard(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): ready(); time.sleep(1000)

def stuck():
    next(iter(torch.utils.data.DataLoader(Shard(), num_workers=1, multiprocessing_context="fork")))
"""

ENDS_LATE = """
import atexit
atexit.register(lambda: (ready(), time.sleep(1000)))
def stuck(): sys.exit()
"""


@dataclass
class Pair:
    """Both ranks of a script that is stuck."""

    directory: Path
    heartbeats: Heartbeats
    ranks: list[Rank]

    async def stuck(self, state: str) -> Found:
        """What each was found doing, once rank 1 is stuck in that state, and rank 0 has come to wait for it."""
        await self._until(lambda: self._ready.exists() and Process.of(self.ranks[1].pid).state == state)
        begun = time.monotonic()
        while not (found := await self._collect(0)).collective:
            assert time.monotonic() < begun + patience(DEADLINE_SECONDS), (
                f"rank 0 does not come to the collective: {found}"
            )
        return {0: found, 1: await self._collect(1)}

    async def _collect(self, rank: int) -> Observation:
        return await collect(self.ranks[rank].pid, rank, self.heartbeats.path(rank), 7)

    async def _until(self, happens: Callable[[], bool]) -> None:
        begun = time.monotonic()
        while not happens():
            assert not any(rank.ended.done() for rank in self.ranks), "a rank has ended: see its output"
            states = [Process.of(rank.pid) for rank in self.ranks]
            assert time.monotonic() < begun + patience(DEADLINE_SECONDS), (
                f"rank 1 is not stuck, ready: {self._ready.exists()}, {states}"
            )
            await asyncio.sleep(0.02)

    @property
    def _ready(self) -> Path:
        return self.directory / "ready"

    def story(self, rank: int) -> str:
        """What was kept of a rank."""
        return (self.directory / f"checkpoints/stalls/attempt-7/rank-{rank}.txt").read_text()


class Pairs:
    """Starts pairs."""

    def __init__(self, runner: asyncio.Runner, warm: Starter, directory: Path) -> None:
        self._runner = runner
        self._warm = warm
        self._directory = directory
        self.started: list[Pair] = []

    def __call__(self, script: str, method: str = "warm") -> Pair:
        (self._directory / "train.py").write_text(PRELUDE + script + LOOP)
        pair = self._runner.run(self._start(self._warm if method == "warm" else Cold()))
        self.started.append(pair)
        return pair

    async def _start(self, starter: Starter) -> Pair:
        port, heartbeats = hold_port(), Heartbeats(self._directory, 2)
        program = program_of([str(self._directory / "train.py")])
        places = [
            Launch(
                program,
                {
                    **os.environ,
                    **world(rank, 2, port),
                    **flight_recorder.settings(None, os.environ),  # As a supervisor does; needed up to torch 2.8.
                    "DDPJOB_HEARTBEAT": str(heartbeats.path(rank)),
                    "DDPJOB_ATTEMPT": "7",
                },
            )
            for rank in range(2)
        ]
        return Pair(self._directory, heartbeats, [await starter.start(place) for place in places])


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def warm(runner: asyncio.Runner) -> Iterator[Warm]:
    starter = Warm(Preload(["torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo"]))
    runner.run(starter.__aenter__())
    yield starter
    runner.run(starter.__aexit__())


@pytest.fixture
def pairs(runner: asyncio.Runner, warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pairs]:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    pairs = Pairs(runner, warm, tmp_path)
    yield pairs

    async def end(pair: Pair) -> None:
        for rank in pair.ranks:
            rank.kill()
        await asyncio.gather(*(rank.ended for rank in pair.ranks))
        pair.heartbeats.close()

    for pair in pairs.started:
        runner.run(end(pair))


@pytest.mark.parametrize(
    ("script", "method", "state", "said"),
    [
        (SLEEPS, "warm", "S", "it is in stuck (train.py:11)"),
        pytest.param(
            *(SLEEPS, "cold", "S", "it is in stuck (train.py:11)"),
            marks=pytest.mark.full("ranks answer in the same way, whichever way they are started"),
        ),
        (SPINS, "warm", "R", "it is in stuck (train.py:11)"),
        (STOPS, "warm", "T", "it is stopped (state T)"),
        (WAITS_IN_THE_KERNEL, "warm", "D", "it is in stuck (train.py:15) (state D: waits for a disk or a device)"),
        (WAITS_FOR_DATA, "warm", "S", "it is in stuck (train.py:17), in "),
    ],
    ids=["sleeps", "sleeps, started cold", "spins in C", "stopped", "waits in the kernel", "waits for data"],
)
def test_the_one_that_does_not_come_is_named(
    pairs: Pairs, runner: asyncio.Runner, *, script: str, method: str, state: str, said: str
) -> None:
    found = runner.run(pairs(script, method).stuck(state))
    rank, sentence = blame(found, 2)
    assert rank == 1, (sentence, found)
    assert sentence.startswith(f"rank 1 did not enter the collective: {said}"), found


def test_both_stacks_are_kept_with_what_the_ranks_have_exchanged(pairs: Pairs, runner: asyncio.Runner) -> None:
    pair = pairs(SLEEPS)
    found = runner.run(pair.stuck("S"))
    assert found[0].sequences["0 gloo"] == found[1].sequences["0 gloo"] + 1, found
    assert (found[0].collective or "").startswith("gloo:"), found
    assert "in _engine_run_backward" in pair.story(0)
    assert f"{found[0].collective} " in pair.story(0)
    assert "waits" in pair.story(0).splitlines()[-1]
    assert 'train.py", line 11 in stuck' in pair.story(1)


def test_a_worker_that_the_rank_waits_for_is_asked_as_well(pairs: Pairs, runner: asyncio.Runner) -> None:
    pair = pairs(WAITS_FOR_DATA)
    runner.run(pair.stuck("S"))
    assert "in __getitem__" in pair.story(1), pair.story(1)


def test_a_rank_says_that_its_program_has_ended(pairs: Pairs, runner: asyncio.Runner) -> None:
    found = runner.run(pairs(ENDS_LATE).stuck("S"))
    assert (found[1].activity, found[1].step) == ("ending", 2)


def test_a_rank_that_nobody_has_prepared_is_left_alone(runner: asyncio.Runner, tmp_path: Path) -> None:
    async def look() -> tuple[Observation, int]:
        sleeper = await asyncio.create_subprocess_exec("sleep", "1000")
        found = await collect(sleeper.pid, 0, tmp_path / "no-heartbeat", 1)
        sleeper.terminate()
        return found, await sleeper.wait()

    found, code = runner.run(look())
    assert (found.silent, found.where, code) == (False, None, -signal.SIGTERM)
