"""What a node's supervisor tells of its ranks, with ranks that are any processes."""

import asyncio
import hashlib
import json
import math
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.machine import interface
from ddpjob_rank.reporting import copy_handover
from ddpjob_rank.reporting.heartbeat import COUNTED, COUNTED_ANEW, EMPTY, SLOTS, Record
from ddpjob_rank.reporting.result import held_mark
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.gang import local_ranks, membership, node_attempt
from ddpjob_supervisor.gang.exit_verdict import Membership, Verdict, of_ranks
from ddpjob_supervisor.gang.link import LocalLink
from ddpjob_supervisor.gang.membership import Follower, beat_seconds
from ddpjob_supervisor.gang.messages import (
    Beats,
    Bring,
    Code,
    CodeRevision,
    End,
    Examine,
    Examined,
    Failed,
    Farewell,
    Finish,
    Finished,
    HeldProgram,
    Hello,
    Idle,
    Incident,
    Leave,
    Leaving,
    Located,
    Look,
    Looked,
    Message,
    Past,
    Start,
    Stop,
)
from ddpjob_supervisor.gang.node_attempt import NodeSetup
from ddpjob_supervisor.gang.rendezvous import Rendezvous
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.gpu.nvml import Nvml
from ddpjob_supervisor.history.history import NodeHistory
from ddpjob_supervisor.node.copy_holder import CopyHolder
from ddpjob_supervisor.node.ranks import Launch, Rank, StartError, exit_code
from ddpjob_supervisor.node.run_packages import RunPackages
from ddpjob_supervisor.node.sent_code import SentCode
from ddpjob_supervisor.node.strays import Strays
from ddpjob_supervisor.node.warm import Warm
from ddpjob_supervisor.watch import nvidia_driver
from ddpjob_supervisor.watch.blame import Observation
from ddpjob_supervisor.watch.heartbeats import Heartbeats

from tests.support.heartbeats import slot_of
from tests.support.waiting import patience
from tests.unit.supervisor.gpu.driver import Driver

DEADLINE_SECONDS = 30


class Sleepers:
    """Starts processes that only sleep."""

    zygote: int | None = None

    def __init__(self) -> None:
        self.processes: list[asyncio.subprocess.Process] = []
        self.ranks: list[Rank] = []
        self.launches: list[Launch] = []
        self.company: list[int] = []
        """How many others ran when one was started."""
        self._watching: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> set[int]:
        return {process.pid for process in self.processes}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*self._watching)

    async def ready(self) -> None:
        pass

    async def start(self, launch: Launch) -> Rank:
        self.launches.append(launch)
        self.company.append(sum(not rank.ended.done() for rank in self.ranks))
        process = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
        self.processes.append(process)
        self.ranks.append(Rank(process.pid))
        self._watching.append(asyncio.create_task(self._watch(process, self.ranks[-1])))
        return self.ranks[-1]

    async def _watch(self, process: asyncio.subprocess.Process, rank: Rank) -> None:
        code = await process.wait()
        if not rank.ended.done():
            rank.ended.set_result(exit_code(code))


Scene = Callable[[Follower, Sleepers], Awaitable[None]]
Follow = Callable[..., None]
"""Plays a scene, for a supervisor with these settings."""


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follow:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "report"))

    monkeypatch.setenv("NODE_RANK", "0")

    async def play(scene: Scene, place: dict[str, Any]) -> None:
        settings = Settings(processes=2, **place)
        fit = asyncio.create_task(asyncio.sleep(0))
        async with Sleepers() as sleepers, asyncio.timeout(patience(DEADLINE_SECONDS)):
            program, heartbeats = Program(module=False, name="train.py"), Heartbeats(tmp_path, 2)
            with CopyHolder(tmp_path / "0.copy") as copy:
                beside = (os.environ, tmp_path, heartbeats, Strays(sleepers), copy, SentCode(), RunPackages())
                node = NodeSetup(settings, program, sleepers, Rendezvous(settings), fit, *beside)
                follower = Follower(node)
                await scene(follower, sleepers)
            if follower._running is not None:
                follower._running.task.cancel()
                await asyncio.wait([follower._running.task])
            heartbeats.close()

    return lambda scene, **place: asyncio.run(play(scene, place))


def test_of_a_rank_that_has_ended_it_says_so(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        link = LocalLink()
        follower._link, coordinator = link, link.other_end()
        follower._handle(Start(1, 0, {}))
        await ranks_run(follower, 1)
        sleepers.ranks[1].ended.set_result(0)
        follower._handle(Examine(1))
        told = await coordinator.receive()
        assert isinstance(told, Examined)
        states = {observation.rank: observation.state for observation in told.observations}
        assert (states[0] in {"S", "R"}, states[1]) == (True, "X"), states

    follow(scene)


def test_nothing_of_the_last_attempt_is_told_of_the_next(follow: Follow) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        follower._handle(Start(1, 0, {}))
        told = slot_of(1, Record(rank=0, attempt=1, step=7))
        path, slot = follower._node.heartbeats.path(0), SLOTS[1]
        path.write_bytes(EMPTY[:slot] + told + EMPTY[slot + len(told) :])
        assert [beat["step"] for beat in follower.beats()] == [7]
        follower._handle(Start(2, 0, {}))
        assert (follower.attempt, follower.beats()) == (2, ())

    follow(scene)


def test_a_start_tells_where_the_others_are(follow: Follow) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        others = {"0": "10.0.0.1:29502", "1": "10.0.0.2:29502"}
        follower._handle(Start(1, 0, others))
        assert follower._node.rendezvous.members == others, "they are told of a new rank 0"

    follow(scene)


async def ranks_run(follower: Follower, attempt: int) -> None:
    def run() -> bool:
        running = follower._running
        return running is not None and running.start.attempt == attempt and len(running.ranks.pids) == 2

    while not run():  # noqa: ASYNC110  (nothing tells of a start)
        await asyncio.sleep(0.01)


async def ranks_end(follower: Follower) -> None:
    while follower.running:  # noqa: ASYNC110  (nothing tells of it)
        await asyncio.sleep(0.01)


def coordinators_end(follower: Follower) -> LocalLink:
    """The coordinator's end of a connection."""
    link = LocalLink()
    follower._link = link
    return link.other_end()


async def first_attempt(follower: Follower) -> LocalLink:
    """The coordinator's end of a connection by which it has started the ranks, once they run."""
    coordinator = coordinators_end(follower)
    follower._handle(Start(1, 0, {}))
    await ranks_run(follower, 1)
    return coordinator


async def said_besides_beats(coordinator: LocalLink) -> Message:
    while isinstance(told := await coordinator.receive(), Beats):
        pass
    return told


def test_two_attempts_never_run_at_once(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        await first_attempt(follower)
        follower._handle(Start(2, 0, {}))
        await ranks_run(follower, 2)
        assert [rank.ended.done() for rank in sleepers.ranks] == [True, True, False, False]
        assert max(sleepers.company) < 2
        assert follower._link is not None
        assert follower._link._there.empty(), "what became of the former one is nobody's question"  # type: ignore[attr-defined]
        follower._handle(Stop(2))
        await asyncio.gather(*(rank.ended for rank in sleepers.ranks))

    follow(scene)


def test_a_coordinator_that_is_behind_starts_nothing(follow: Follow) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        follower._handle(Start(3, 0, {}))
        follower._handle(Start(2, 0, {}))
        assert follower.attempt == 3

    follow(scene)


def test_each_attempt_tells_each_of_its_ranks_what_is_its_own_and_says_why_it_begins_where_that_is_known(
    follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinators_end(follower)
        for attempt in (1, 2, 3):
            follower._handle(Start(attempt, 0, {}, Past(incidents=(KILLED_IN_1,) if attempt > 1 else ())))
            await ranks_run(follower, attempt)
        follower._handle(Stop(3))
        await asyncio.gather(*(rank.ended for rank in sleepers.ranks))
        told = sorted((one.env["DDPJOB_ATTEMPT"], one.env["LOCAL_RANK"]) for one in sleepers.launches)
        assert told == [(str(attempt), str(local)) for attempt in (1, 2, 3) for local in (0, 1)]
        beats = {local: str(follower._node.heartbeats.path(local)) for local in (0, 1)}
        assert beats[0] != beats[1]
        assert all(one.env["DDPJOB_HEARTBEAT"] == beats[int(one.env["LOCAL_RANK"])] for one in sleepers.launches)

        follower._handle(Start(5, 0, {}, Past(incidents=(STALLED_IN_4,))))
        follower._handle(Start(7, 0, {}, Past(incidents=(RAISED_IN_6,))))

    follow(scene)
    said = [line for line in capsys.readouterr().out.splitlines() if "begins" in line]
    assert said == [
        "attempt 2 begins in place: rank 1 failed at step 7: Application: killed by SIGKILL",
        "attempt 3 begins",
        "attempt 5 begins in place: all ranks failed: Stalled: the cause was not found: no rank makes progress",
        "attempt 7 begins in place: rank 1 failed after 2 steps: Application: ValueError: no",
    ]


STALLED_IN_4 = Incident(
    4, 0, End(0, 203, 1.0, "Stalled", "the cause was not found: no rank makes progress"), tied=True
)
RAISED_IN_6 = Incident(6, 0, End(1, 1, 1.0, "Application", "no", "ValueError", counted_steps=2))
KILLED_IN_1 = Incident(1, 0, End(1, 137, 1.0, "Application", "killed by SIGKILL", None, 7))


@pytest.mark.parametrize("held", [False, True])
def test_ranks_learn_whether_their_gang_is_held(follow: Follow, *, held: bool) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinators_end(follower)
        follower._handle(Start(1, 0, {}, program=HeldProgram(("train.py",), "ab12", "alice") if held else None))
        assert held_mark(follower._node.heartbeats.path(0)).exists() is held

    follow(scene)


def test_the_secrets_of_a_run_on_a_hold_are_hidden_before_its_ranks_start(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: list[object] = []
    monkeypatch.setattr(NodeHistory, "hide", lambda _, env: hidden.append(env))

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinators_end(follower)
        follower._handle(Start(1, 0, {}, program=HeldProgram(("train.py",), "ab12", "alice", {"TOKEN": "x"})))
        assert (hidden, sleepers.launches) == ([{"TOKEN": "x"}], [])

    follow(scene)


def test_a_run_that_is_interrupted_does_not_wait_until_its_code_is_unpacked(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def unpacked(*_: str) -> Path:
        begun.set()
        goes_on.wait()
        raise StartError("nobody is to hear of this any more")

    monkeypatch.setattr(SentCode, "has", lambda *_: True)
    monkeypatch.setattr(SentCode, "unpacked", unpacked)

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = coordinators_end(follower)
        follower._handle(Start(1, 0, {}, program=HeldProgram(("train.py",), "ab12", "alice")))
        await asyncio.to_thread(begun.wait)
        follower._handle(Stop(1))
        told = await said_besides_beats(coordinator)
        goes_on.set()
        assert isinstance(told, Idle)
        assert [end.exit_code for end in told.ends] == [137, 137]
        assert sleepers.launches == []

    follow(scene)


def test_where_nobody_leads_any_more_a_rank_that_fails_takes_the_others_of_its_node_with_it(
    follow: Follow,
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        await first_attempt(follower)
        follower._handle(Farewell())
        sleepers.processes[1].terminate()
        assert await follower._exit_code == 143
        assert sleepers.ranks[0].ended.result() == 137

    follow(scene)


def test_a_node_that_is_done_goes_once_the_coordinator_knows(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        for rank in sleepers.ranks:
            rank.ended.set_result(0)
        assert await said_besides_beats(coordinator) == Finished(1)
        assert not follower._exit_code.done()
        follower._handle(Farewell())
        assert await follower._exit_code == 0

    follow(scene)


def test_one_that_is_to_go_goes_once_its_ranks_have_saved(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        follower.request(signal.SIGTERM)
        for rank in sleepers.ranks:
            rank.ended.set_result(205)
        assert await said_besides_beats(coordinator) == Leaving()
        assert isinstance(await said_besides_beats(coordinator), Idle)
        assert await follower._exit_code == 205

    follow(scene)


@pytest.mark.parametrize("left", ["the coordinator", "nobody"])
def test_ranks_that_clean_up_are_not_ended_because_others_are(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.setattr(Rank, "send_signal", lambda *_: None)  # These take their time.

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        await first_attempt(follower)
        follower.request(signal.SIGTERM)
        if left == "nobody":
            follower._link = None
        follower._handle(Stop(1))
        sleepers.ranks[1].ended.set_result(3)
        await asyncio.sleep(0.05)
        assert not sleepers.ranks[0].ended.done()

    follow(scene)


@pytest.mark.parametrize("lost", [False, True])
def test_one_that_is_to_go_before_the_coordinator_knows_does_not_say_that_it_was_done(
    follow: Follow, *, lost: bool
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        if lost:
            follower._link = None
            follower._membership = Membership.LEAVING
        for rank in sleepers.ranks:
            rank.ended.set_result(0)
        if not lost:
            assert await said_besides_beats(coordinator) == Finished(1)
            follower.request(signal.SIGTERM)
        assert await follower._exit_code == 205

    follow(scene)


@pytest.mark.parametrize(("leaving", "code"), [(True, 205), (False, 0)], ids=["to go", "done"])
def test_one_that_is_to_go_or_done_and_finds_no_coordinator_any_more_goes(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, code: int, *, leaving: bool
) -> None:
    links = [LocalLink()]

    async def reach(*_: object) -> LocalLink:
        return links.pop() if links else await asyncio.Future()

    monkeypatch.setattr(Rendezvous, "reach", reach)
    if not leaving:  # Who is to go waits for nobody.
        monkeypatch.setattr(membership, "DONE_SECONDS", 0.05)

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator, following = links[0].other_end(), asyncio.create_task(follower.follow(0))
        coordinator.send(Start(1, 0, {}))
        await ranks_run(follower, 1)
        if leaving:
            follower._membership = Membership.LEAVING
        for rank in sleepers.ranks:
            rank.ended.set_result(0)
        while await coordinator.receive() != Finished(1):
            pass
        await coordinator.close()
        assert await following == code

    follow(scene)


def test_where_nobody_leads_any_more_a_lost_peer_is_no_reason_beside_another(tmp_path: Path) -> None:
    lost, failed = End(0, 1, 1.0, "PeerLost", "a peer"), End(1, 3, 2.0, "Application", "its own")
    verdict = of_ranks((lost, failed))
    assert verdict == Verdict(3, failed)
    verdict.report(1, None, tmp_path / "report")
    assert "its own" in (tmp_path / "report").read_text()


def test_ranks_that_nothing_ends_do_not_keep_their_supervisor(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "KILLED_SECONDS", 0.05)
    monkeypatch.setattr(membership, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(Rank, "kill", lambda _: None)

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        link = LocalLink()
        coordinator, following = link.other_end(), asyncio.create_task(follower.follow(0, link))
        coordinator.send(Start(1, 0, {}))
        await ranks_run(follower, 1)
        sleepers.ranks[0].ended.set_result(0)
        while (await coordinator.receive()) != Beats(1, (), running=(1,)):
            pass
        coordinator.send(Leave(Incident(1, 0, End(1, 203, 1.0, "Stalled", "SIGKILL has not ended rank 1"))))
        assert await following == 203

    follow(scene)


def test_who_is_stopped_while_its_node_is_still_looked_at_need_not_wait_for_that(
    follow: Follow,
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = coordinators_end(follower)
        looking: Any = asyncio.create_task(asyncio.Event().wait())
        follower._node = replace(follower._node, fit=looking)
        follower._handle(Start(1, 0, {}))
        follower._handle(Stop(1))
        assert await coordinator.receive() == Idle(1, ())
        assert sleepers.ranks == []
        looking.cancel()

    follow(scene)


def test_that_a_rank_cannot_be_looked_at_is_told_and_not_taken_for_silence(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def collect(_: int, process: int, *__: object) -> Observation:
        if process:
            raise PermissionError("no look at /proc")
        return Observation(process, "S")

    monkeypatch.setattr(node_attempt, "collect", collect)

    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        follower._handle(Examine(1))
        told = await coordinator.receive()
        assert isinstance(told, Examined)
        assert [(one.rank, one.state) for one in told.observations] == [(0, "S"), (1, None)]

    follow(scene)
    assert "warning: cannot inspect rank 1: PermissionError: no look at /proc\n" in capsys.readouterr().err


@pytest.mark.parametrize(("backend", "node", "asked"), [("nccl", 0, 1), ("nccl", 1, 0), ("gloo", 0, 0)])
def test_the_ras_of_nccl_is_asked_on_one_node_before_what_was_found_is_told(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, backend: str, node: int, asked: int
) -> None:
    addresses: list[str] = []

    async def asks(address: str, _: int) -> None:
        await asyncio.sleep(0.05)
        addresses.append(address)

    monkeypatch.setenv("DDPJOB_BACKEND", backend)
    monkeypatch.setattr(node_attempt, "collect_from_ras", asks)

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        follower._handle(Examine(1))
        while not isinstance(await coordinator.receive(), Examined):
            pass
        told = [launch.env.get("NCCL_RAS_ADDR") for launch in sleepers.launches]
        assert addresses == told[:1] * asked
        assert len({*told}) == 1, "all ranks of a node listen at one address"

    follow(scene, node=node, nodes=2)


def test_when_ranks_hang_the_driver_is_asked_for_gpus_that_broke_and_a_driver_that_hangs_too_holds_nobody(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    nvml = Nvml(driver)
    monkeypatch.setattr(nvidia_driver, "nvml", lambda: nvml)
    never = threading.Event()

    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        driver.events = [(1, 79)]
        follower._handle(Examine(1))
        broken, told = await coordinator.receive(), await coordinator.receive()
        assert isinstance(broken, Failed)
        assert broken.end is not None
        assert (broken.cause, broken.end.rank, broken.waited) == ("DeviceFailed", 1, False)
        assert isinstance(told, Examined)
        monkeypatch.setattr(local_ranks, "DEVICE_SECONDS", 0.05)
        monkeypatch.setattr(driver, "nvmlDeviceGetCount", never.wait)
        follower._handle(Examine(1))
        assert isinstance(await coordinator.receive(), Examined)

    try:
        follow(scene)
    finally:
        never.set()


def test_while_ranks_run_a_gpu_that_is_slowed_down_is_told_once_and_shown_with_its_rank(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml = Nvml(Driver())
    monkeypatch.setattr(nvidia_driver, "nvml", lambda: nvml)
    monkeypatch.setattr(membership, "GPU_SECONDS", 0.01)

    async def scene(follower: Follower, _: Sleepers) -> None:
        await first_attempt(follower)
        for process in range(2):
            told = slot_of(1, Record(rank=process, attempt=1, step=7))
            path, slot = follower._node.heartbeats.path(process), SLOTS[1]
            path.write_bytes(EMPTY[:slot] + told + EMPTY[slot + len(told) :])
        watching = asyncio.create_task(follower._watch_gpus())
        while not follower._current or not follower._current._slowed:  # noqa: ASYNC110  (nothing tells it)
            await asyncio.sleep(0.01)
        assert [beat.get("slowed") for beat in follower.beats()] == [None, "GPU 1 is slowed down: it is too hot"]
        await asyncio.sleep(0.1)
        watching.cancel()

    follow(scene)
    assert capsys.readouterr().err.count("warning: rank 1: GPU 1 is slowed down: it is too hot\n") == 1


def test_a_rank_that_is_stopped_is_reported_so(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        await first_attempt(follower)
        for process in range(2):
            told = slot_of(1, Record(rank=process, attempt=1, step=7, step_at=0.0))
            path, slot = follower._node.heartbeats.path(process), SLOTS[1]
            path.write_bytes(EMPTY[:slot] + told + EMPTY[slot + len(told) :])
        sleepers.processes[1].send_signal(signal.SIGSTOP)
        while [beat.get("stopped") for beat in follower.beats()] != [None, "T"]:  # noqa: ASYNC110  (nothing tells it)
            await asyncio.sleep(0.01)

    follow(scene)


def test_a_rank_that_is_stopped_before_it_has_reported_anything_is_reported_so(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        await first_attempt(follower)
        assert follower.beats() == ()
        sleepers.processes[1].send_signal(signal.SIGSTOP)
        while not follower.beats():  # noqa: ASYNC110  (nothing tells it)
            await asyncio.sleep(0.01)
        assert follower.beats() == ({"rank": 1, "attempt": 1, "activity": "starting", "stopped": "T"},)
        sleepers.processes[1].send_signal(signal.SIGCONT)
        while follower.beats():  # noqa: ASYNC110  (nothing tells it)
            await asyncio.sleep(0.01)

    follow(scene)


@pytest.mark.parametrize(
    ("processes", "seconds"), [(1, 0.5), (1000, 0.5), (2000, 1.0), (4000, 2.0), (1_000_000, 2.0)]
)
def test_in_a_large_world_each_node_tells_less_often(processes: int, seconds: float) -> None:
    assert beat_seconds(processes) == seconds


@pytest.mark.parametrize(("node", "cause", "code"), [(0, "ConfigError", 2), (1, "PeerLost", 204)])
def test_a_pod_that_is_to_end_names_the_rank_that_failed_first_be_it_its_own(
    follow: Follow, tmp_path: Path, node: int, cause: str, code: int
) -> None:
    """Whichever pod the operator hears of first."""
    incident = Incident(1, node, End(2 * node, 2, 7.0, "ConfigError", "no such workload", None, 40), True, 1, (3,))

    async def scene(follower: Follower, _: Sleepers) -> None:
        follower._handle(Leave(incident))
        assert await follower._exit_code == code

    follow(scene)
    report = json.loads((tmp_path / "report").read_text())
    assert (report["cause"], report["exitCode"], report["step"]) == (cause, code, 40)
    assert report["incident"] == incident.to_document()


def test_the_last_steps_are_told_before_the_end(follow: Follow) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        told = slot_of(1, Record(rank=0, attempt=1, step=400))
        path, slot = follower._node.heartbeats.path(0), SLOTS[1]
        path.write_bytes(EMPTY[:slot] + told + EMPTY[slot + len(told) :])
        for rank in sleepers.ranks:
            rank.ended.set_result(0)
        last, then = await coordinator.receive(), await coordinator.receive()
        assert isinstance(last, Beats)
        assert ([beat["step"] for beat in last.beats], then) == ([400], Finished(1))

    follow(scene)


TWO_MACHINES = {"0": ":29502", "1": "[fd00::2]:29502"}


@pytest.mark.parametrize(
    ("members", "leads_out", "own", "told"),
    [
        pytest.param(TWO_MACHINES, False, None, "eth5fd00::2", id="its host name leads nowhere"),
        pytest.param(TWO_MACHINES, True, None, None, id="gloo finds it by itself"),
        pytest.param(TWO_MACHINES, False, "ib0", "ib0", id="the user has set it"),
        pytest.param({"0": "127.0.0.1:29502"}, False, None, None, id="one machine"),
    ],
)
def test_ranks_are_told_the_interface_that_leads_to_the_others_where_gloo_would_not_find_it(
    members: dict[str, str],
    own: str | None,
    told: str | None,
    follow: Follow,
    monkeypatch: pytest.MonkeyPatch,
    *,
    leads_out: bool,
) -> None:
    monkeypatch.setattr(interface, "name_leads_out", lambda: leads_out)
    monkeypatch.setattr(interface, "interface_towards", lambda own, hosts: own and f"eth{len(own)}{hosts[-1]}")
    monkeypatch.setattr(node_attempt, "address_towards", lambda master, port: f"{master}{port}"[-5:])
    if own:
        monkeypatch.setenv(interface.VARIABLE, own)

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinators_end(follower)
        follower._handle(Start(1, 4567, members))
        await ranks_run(follower, 1)
        assert {launch.env.get(interface.VARIABLE) for launch in sleepers.launches} == {told}

    follow(scene, master_addr="10.0.0.1", nodes=len(members))


@pytest.mark.parametrize(
    ("record", "step", "counted"),
    [
        ({}, 400, None),
        ({"counted": COUNTED_ANEW}, None, 400),
        ({"counted": COUNTED, "first_step": 301.0}, None, 100),
        ({"counted": COUNTED}, None, None),
        ({"step": math.nan, "counted": COUNTED}, None, None),
    ],
    ids=["reported", "counted anew", "counted on", "told by a bar", "none"],
)
def test_how_far_a_failed_rank_had_got_is_told_with_its_end(
    follow: Follow, record: dict[str, float], step: int | None, counted: int | None
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        told = slot_of(1, Record(**{"rank": 0, "attempt": 1, "step": 400, "counted": 0, **record}))
        path, slot = follower._node.heartbeats.path(0), SLOTS[1]
        path.write_bytes(EMPTY[:slot] + told + EMPTY[slot + len(told) :])
        for rank in sleepers.ranks:
            rank.ended.set_result(3)
        while not isinstance(idle := await coordinator.receive(), Idle):
            pass
        assert (idle.ends[0].step, idle.ends[0].counted_steps) == (step, counted)

    follow(scene)


def test_the_terminal_is_kept_for_the_program(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPJOB_ATTACH", "0")

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinators_end(follower)
        for attempt, check in ((1, True), (2, False)):
            follower._handle(Start(attempt, 0, {}, check=check))
            await ranks_run(follower, attempt)
        assert [launch.env.get("DDPJOB_ATTACH") for launch in sleepers.launches] == [None, None, "0", "0"]

    follow(scene)


MOVED = Start(1, 0, {}, order=(0, 2, 1, 3))


def test_its_ranks_are_those_of_its_place_in_the_order(follow: Follow, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = coordinators_end(follower)
        follower._handle(MOVED)
        await ranks_run(follower, 1)
        env = [launch.env for launch in sleepers.launches]
        assert [(one["RANK"], one["LOCAL_RANK"], one["NODE_RANK"]) for one in env] == [
            ("4", "0", "2"),
            ("5", "1", "2"),
        ]
        follower._handle(Stop(1))
        told = await said_besides_beats(coordinator)
        assert isinstance(told, Idle)
        assert [end.rank for end in told.ends] == [4, 5]

    follow(scene, node=1, nodes=4)
    assert "attempt 1: node 1 has rank 4, 5" in capsys.readouterr().out


def test_without_an_order_they_are_those_of_its_number_again(
    follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        follower._handle(MOVED)
        follower._handle(Start(2, 0, {}))
        assert follower._current is not None
        assert follower._current.numbers == [2, 3]

    follow(scene, node=1, nodes=4)
    assert "attempt 2: node" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("start", "stays"),
    [(Start(1, 0, {}), True), (Start(1, 0, {}, order=(1, 0)), False), (Start(1, 0, {}, check=True), True)],
)
def test_a_copy_of_a_checkpoint_stays_while_rank_0_is_on_this_node(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start, *, stays: bool
) -> None:
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(tmp_path / "0"))

    async def scene(follower: Follower, _: Sleepers) -> None:
        copy = follower._node.copy
        assert copy_handover.keep("s3://b/step-1", os.memfd_create("state"), os.memfd_create("manifest"))
        copy._read()
        assert copy.holds
        follower._handle(start)
        assert copy.holds is stays

    follow(scene, nodes=2)


def test_a_report_names_the_node_where_the_rank_does_not_show_it(follow: Follow, tmp_path: Path) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinators_end(follower)
        follower._handle(MOVED)
        follower._handle(Leave(Incident(1, 2, End(2, 1, 1.0, "Application", "no data"))))
        assert await follower._exit_code == 204

    follow(scene, node=1, nodes=4)
    report = json.loads((tmp_path / "report").read_text())
    assert (report["rank"], report["node"], report["message"]) == (4, 1, "rank 2 (node 2) failed: Application")
    assert (report["incident"]["node"], report["incident"]["rank"]) == (2, 2)


def test_it_says_in_which_domain_it_is_at_first_and_after_each_attempt_that_had_an_order(
    follow: Follow, tmp_path: Path
) -> None:
    file = tmp_path / "domain"

    async def scene(follower: Follower, _: Sleepers) -> None:
        assert follower.hello(0).domain == ""
        file.write_text("rack-1\n")
        assert follower.hello(0).domain == "rack-1"
        file.write_text("rack-2")
        coordinator = coordinators_end(follower)
        for start in (MOVED, Start(2, 0, {})):
            follower._handle(start)
            await ranks_run(follower, start.attempt)
            follower._handle(Stop(start.attempt))
            if start.order:
                assert await said_besides_beats(coordinator) == Located("rack-2")
            assert isinstance(await said_besides_beats(coordinator), Idle)

    follow(scene, node=1, nodes=4, domain_file=file)


def test_it_tells_one_coordinator_of_the_incident_that_only_the_operator_knows(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        said: list[str] = []

        async def reach(hello: Hello) -> LocalLink:
            said.append(hello.incident)
            return LocalLink()

        monkeypatch.setattr(follower._node.rendezvous, "reach", reach)
        for _time in range(3):  # It loses the connection before an attempt has begun.
            await follower._reach(0)
        assert said == ["{}", "", ""]

    follow(scene, node=1, nodes=4, incident="{}")


def test_without_a_file_it_is_in_none(follow: Follow) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        assert follower.hello(0).domain is None
        await follower.locate()

    follow(scene)


def test_it_waits_for_its_domain_no_longer_than_its_ranks_would_wait_for_their_imports(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = asyncio.Event()
    monkeypatch.setattr(Sleepers, "ready", lambda _: imported.wait())
    file = tmp_path / "domain"

    async def scene(follower: Follower, _: Sleepers) -> None:
        locating = asyncio.create_task(follower.locate())
        await asyncio.sleep(0.1)
        assert not locating.done()
        imported.set()
        await locating
        imported.clear()
        locating = asyncio.create_task(follower.locate())
        await asyncio.sleep(0.1)
        file.write_text("rack-1")
        await locating

    follow(scene, domain_file=file)


@pytest.mark.parametrize(
    ("ends", "place", "fit", "code"),
    [
        (None, {}, True, 143),
        (None, {"idle_seconds": 600.0}, True, 205),
        ((0, 0), {}, True, 205),
        ((0, 1), {}, True, 143),
        ((0, 1), {"idle_seconds": 600.0}, True, 205),
        ("run", {}, False, 143),
        ("run", {"idle_seconds": 600.0}, False, 143),
    ],
    ids=["no ranks", "a hold without any", "done", "failed", "a hold after a failure", "not fit", "a hold not fit"],
)
def test_who_is_told_to_stop_and_runs_no_ranks_goes_at_once(
    follow: Follow, ends: tuple[int, int] | str | None, place: dict[str, Any], code: int, *, fit: bool
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        coordinator = coordinators_end(follower)
        if ends:
            follower._handle(Start(1, 0, {}))
            await ranks_run(follower, 1)
            for rank, end in zip(sleepers.ranks, ends, strict=False):
                if not isinstance(end, str):
                    rank.ended.set_result(end)
        if ends and ends != "run":
            await ranks_end(follower)
        looking: Any = asyncio.create_task(asyncio.Event().wait())
        if not fit:
            follower._node = replace(follower._node, fit=looking)
        assert (follower.told_to_stop, follower.told_at) == (False, None)
        follower.request(signal.SIGTERM)
        assert follower.told_to_stop
        assert follower.told_at is not None
        assert follower._exit_code.result() == code
        while await coordinator.receive() != Leaving():
            pass
        looking.cancel()

    follow(scene, **place)


@pytest.mark.parametrize(("ends", "code"), [((0, 0), 0), ((0, 3), None), (None, None)])
def test_without_an_operator_nobody_takes_a_lost_coordinators_place(
    follow: Follow, ends: tuple[int, int] | None, code: int | None
) -> None:
    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        link = LocalLink()
        coordinator, following = link.other_end(), asyncio.create_task(follower.follow(0, link))
        coordinator.send(Start(1, 0, {}))
        await ranks_run(follower, 1)
        for rank, end in zip(sleepers.ranks, ends or (), strict=False):
            rank.ended.set_result(end)
        if ends:
            await ranks_end(follower)
        await coordinator.close()
        if code is None:
            with pytest.raises(PeerLostError, match=r"^rank 0's supervisor is gone, and its ranks with it$"):
                await following
            assert all(rank.ended.done() for rank in sleepers.ranks)
        else:
            assert await following == code

    follow(scene, joining_seconds=60.0)


def test_what_is_said_of_another_attempt_is_not_heeded(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []
    monkeypatch.setattr(Rank, "send_signal", lambda _, number: signals.append(number))

    async def scene(follower: Follower, sleepers: Sleepers) -> None:
        for message in (Stop(0), Finish(0), Look(0), Examine(0)):  # There is none.
            follower._handle(message)
        await first_attempt(follower)
        for attempt in (0, 2):
            for message in (Stop(attempt), Finish(attempt), Look(attempt), Examine(attempt)):
                follower._handle(message)
        assert (signals, follower._looking, follower._examining) == ([], None, None)
        assert follower._running is not None
        assert not follower._running.ranks.told_to_stop
        follower._handle(Finish(1))
        assert signals.count(signal.SIGTERM) == 2
        assert not any(rank.ended.done() for rank in sleepers.ranks)

    follow(scene)


def test_what_ranks_do_is_told_to_who_only_looks(follow: Follow) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinator = await first_attempt(follower)
        follower._handle(Look(1))
        told = await said_besides_beats(coordinator)
        assert isinstance(told, Looked)
        assert (told.attempt, [seen.rank for seen in told.observations]) == (1, [0, 1])

    follow(scene)


ARCHIVE = b"an archive of code"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (ARCHIVE, None),
        (None, "cannot get the code from rank 0's node: rank 0's supervisor does not have it"),
        (b"other code", "cannot get the code from rank 0's node: the code that arrived is not the code that was an"),
    ],
    ids=["whole", "not there", "not what was announced"],
)
def test_code_comes_from_the_coordinator_piece_by_piece(follow: Follow, sent: bytes | None, said: str | None) -> None:
    digest = hashlib.sha256(ARCHIVE).hexdigest()

    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinator, fetching = coordinators_end(follower), asyncio.create_task(follower._fetch(digest))
        asked: list[int] = []
        while not fetching.done():
            asking = asyncio.create_task(coordinator.receive())
            await asyncio.wait([asking, fetching], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                asking.cancel()
                break
            bring = asking.result()
            assert isinstance(bring, Bring)
            assert bring.digest == digest
            asked.append(bring.offset)
            follower._handle(Code(digest, bring.offset + 1, b"of another question"))
            piece = sent if sent is None else sent[bring.offset : bring.offset + 7]
            follower._handle(Code(digest, bring.offset, piece))
            follower._handle(Code(digest, bring.offset, b"twice"))
            await asyncio.sleep(0)
        if said is None:
            await fetching
            assert asked == [0, 7, 14, len(ARCHIVE)]
            await follower._fetch(digest)  # It is here.
            assert follower._node.code.piece(digest, 0) == ARCHIVE
        else:
            with pytest.raises(StartError, match=f"^{said}"):
                await fetching
        follower._handle(Code(digest, 0, b"that nobody has asked for"))

    follow(scene)


@pytest.mark.parametrize(("node", "leads"), [(0, True), (1, False)])
def test_new_code_is_told_and_kept_by_one_node_for_all(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], node: int, *, leads: bool
) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(NodeHistory, "note", lambda _, *words, **how: noted.append((*words, how)))
    code = CodeRevision(3, "c" * 64, "alice", attempt=2)

    async def scene(follower: Follower, _: Sleepers) -> None:
        coordinators_end(follower)
        follower._handle(Start(2, 0, {}, Past(code=code, incidents=(KILLED_IN_1,))))
        follower._handle(Start(3, 0, {}, Past(code=code)))

    follow(scene, node=node, nodes=2)
    said = [line for line in capsys.readouterr().out.splitlines() if "begins" in line]
    assert said == ["attempt 2 begins in place: new code cccccccccccc, sent by alice", "attempt 3 begins"]
    kept = [one for one in noted if one[0] == membership.CODE_REPLACED]
    assert kept == (
        [(membership.CODE_REPLACED, 2, {"hurry": True, "revision": 3, "digest": "c" * 64, "by": "alice"})]
        if leads
        else []
    )


@pytest.mark.parametrize(
    ("node", "place", "said"),
    [
        (1, {"joining_seconds": 60.0}, "node 1 failed: Stalled: it is stopped"),
        (0, {"joining_seconds": 60.0}, ""),
        (1, {}, ""),
    ],
    ids=["another node", "its own", "the operator says it"],
)
def test_without_an_operator_each_node_says_which_one_failed(
    follow: Follow, capsys: pytest.CaptureFixture[str], node: int, place: dict[str, Any], said: str
) -> None:
    async def scene(follower: Follower, _: Sleepers) -> None:
        follower._handle(Leave(Incident(1, node, End(2 * node, 203, 1.0, "Stalled", "it is stopped"))))
        await follower._exit_code

    follow(scene, nodes=2, **place)
    assert (said in capsys.readouterr().err) if said else "failed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "warm", "node", "late"),
    [
        ({"MKL_NUM_THREADS": "2"}, True, 0, ["MKL_NUM_THREADS"]),
        ({"MKL_NUM_THREADS": "2", "TORCHDYNAMO_VERBOSE": "1"}, True, 0, ["MKL_NUM_THREADS", "TORCHDYNAMO_VERBOSE"]),
        ({"MKL_NUM_THREADS": "7"}, True, 0, []),
        ({"OMP_NUM_THREADS": "2"}, True, 0, []),
        ({"NCCL_DEBUG": "INFO"}, True, 0, []),
        ({"MKL_NUM_THREADS": "2"}, False, 0, []),
        ({"MKL_NUM_THREADS": "2"}, True, 1, []),
        (None, True, 0, []),
    ],
    ids=["late", "two", "the same", "in time for each rank", "of no import", "cold", "another node", "a job"],
)
def test_a_variable_of_a_run_that_comes_too_late_for_pytorch_is_told_by_one_node(
    env: dict[str, str] | None, node: int, late: list[str], capsys: pytest.CaptureFixture[str], *, warm: bool
) -> None:
    start = Start(1, 0, {}, program=None if env is None else HeldProgram(("train.py",), "ab12", "alice", env))
    starter = object.__new__(Warm) if warm else Sleepers()
    setup = SimpleNamespace(settings=Settings(node=node), starter=starter, env={"MKL_NUM_THREADS": "7"})
    attempt: Any = SimpleNamespace(start=start, _node=setup)
    node_attempt.NodeAttempt._warn_of_late_variables(attempt)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" comes too late: ")[0].split()[-1] for line in said] == late
