"""The coordinator with one member, which is in the same process as rank 0's own."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.machine import listening
from ddpjob_rank.recording.event import Event
from ddpjob_supervisor.gang import coordinator_service
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService
from ddpjob_supervisor.gang.link import Link, LocalLink
from ddpjob_supervisor.gang.messages import (
    Announce,
    Beats,
    Examine,
    Examined,
    Failed,
    HeldProgram,
    Hello,
    History,
    Idle,
    Leaving,
    Look,
    Looked,
    Message,
    Past,
    Start,
    Stop,
    Welcome,
)
from ddpjob_supervisor.gang.ring import Ring
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.gang.states import Attempt, Holding, Phase, Stopping
from ddpjob_supervisor.watch import learned_limits
from ddpjob_supervisor.watch.blame import Observation

from tests.support.waiting import patience

from .gangs import WELL

DEADLINE_SECONDS = 30
FIRST_OF_THE_SYSTEM = 32_768
"""The least port that Linux gives out by itself (net.ipv4.ip_local_port_range)."""
PLACES = ("load (train.py:4)", "step (train.py:9)")
BEAT: dict[str, Any] = {"rank": 0, "attempt": 1, "activity": "training", "step": 5, "stepAge": 0.1}


class Told:
    """What a member is told."""

    def __init__(self, link: LocalLink) -> None:
        self._link = link

    async def until(self, kind: type[Message]) -> None:  # type: ignore[type-arg]
        while not isinstance(await self._link.receive(), kind):
            pass


Scene = Callable[[CoordinatorService, LocalLink, Told], Awaitable[None]]


def lead(scene: Scene, **settings: Any) -> None:
    """Plays a scene of one member and its coordinator, which ends with the scene."""

    async def all_of_it() -> None:
        service, link = CoordinatorService(Settings(uid="u", **settings)), LocalLink()
        serving = asyncio.create_task(service.serve(link.other_end(), Hello("u", 0, 1, 1, 29502, "r")))
        try:
            async with asyncio.timeout(patience(DEADLINE_SECONDS)):
                await scene(service, link, Told(link))
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await service.close()
        assert serving.cancelled(), serving.exception()

    asyncio.run(all_of_it())


@pytest.mark.parametrize("state", ["S", "a state of a newer kernel", None])
def test_a_stalled_attempt_ends_whatever_was_found(state: str | None) -> None:
    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        await told.until(Start)
        service.coordinator.found_stalled(0.0, 1.0)
        service._act()
        await told.until(Examine)
        member.send(Examined(1, (Observation(0, state),)))
        await told.until(Stop)
        stall = service.coordinator.current.stall
        assert service.coordinator.phase is Phase.STOPPING
        assert stall
        assert stall.message

    lead(scene)


@pytest.mark.parametrize(("counted", "step"), [(False, 31), (True, None)], ids=["reported", "counted"])
def test_a_stall_has_the_step_that_a_rank_reported_but_none_that_was_only_counted(
    step: int | None, *, counted: bool
) -> None:
    async def all_of_it() -> None:
        service = CoordinatorService(Settings(uid="u"))
        service.coordinator.joined(0, Hello("u", 0, 1, 1, 29502, "r"), "", 0.0)
        service.coordinator.found_stalled(0.0, 1.0)
        service.coordinator.said(0, Examined(1, (Observation(0, "S", step=31, counted=counted),)), 2.0)
        service._blame()
        state = service.coordinator.state
        assert isinstance(state, Stopping)
        assert state.verdict is not None
        assert state.verdict.end.step == step

    asyncio.run(all_of_it())


def test_who_stalls_a_gang_is_named_with_the_node_where_ranks_follow_placement() -> None:
    async def all_of_it() -> None:
        service = CoordinatorService(Settings(uid="u", nodes=3))
        coordinator = service.coordinator
        for node, domain in enumerate("aba"):
            coordinator.joined(node, Hello("u", node, 1, 1, 29502, "r", domain=domain), "", 0.0)
        coordinator.found_stalled(0.0, 1.0)
        for node, process in enumerate(coordinator.current.ring.first_rank(node) for node in range(3)):
            observation = Observation(process, "T" if node == 1 else "S", communicates=True)
            coordinator.said(node, Examined(1, (observation,)), 2.0)
        service._blame()
        stall = coordinator.current.stall
        assert stall is not None
        assert (stall.node, stall.rank) == (1, 2)
        assert stall.message.startswith("rank 2 (node 1) did not enter the collective: it is stopped")

    asyncio.run(all_of_it())


def test_beats_are_passed_on_with_the_node_that_they_came_from() -> None:
    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        passed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        service.on_beats = lambda attempt, beats: passed.set_result((attempt, list(beats)))
        await told.until(Start)
        member.send(Beats(0, (BEAT,)))
        member.send(Beats(1, (BEAT,)))
        assert await passed == (1, [{**BEAT, "node": 0}])
        assert service.beats() == {0: {**BEAT, "node": 0}}

    lead(scene)


class Lingering(LocalLink):
    """A connection that takes its time to close."""

    def __init__(self) -> None:
        super().__init__()
        self.may_close = asyncio.Event()

    async def close(self) -> None:
        await self.may_close.wait()
        await super().close()


def test_a_member_that_comes_again_while_the_last_one_joins_is_started_once() -> None:
    async def scene() -> list[Message]:
        service, first, again = CoordinatorService(Settings(uid="u", nodes=3)), Lingering(), LocalLink()
        serving = []
        for node, link in [(0, LocalLink()), (1, first), (1, again.other_end()), (2, LocalLink())]:
            serving.append(asyncio.create_task(service.serve(link, Hello("u", node, 1, 1, 29502, "r"))))
            await asyncio.sleep(0)
        first.may_close.set()
        for _ in range(5):
            await asyncio.sleep(0)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await service.close()
        assert (service.coordinator.phase, service.coordinator.attempt) == (Phase.RUNNING, 1)
        heard = []
        while (message := again._here.get_nowait()) is not None:
            heard.append(message)
        return heard

    assert [type(message) for message in asyncio.run(scene())] == [Welcome, Start]


def test_of_all_that_it_says_to_all_each_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Message] = []

    def send_all(links: Iterable[Link], message: Message) -> None:
        made.append(message)
        for link in links:
            link.send(message)

    monkeypatch.setattr("ddpjob_supervisor.gang.coordinator_service.send_all", send_all)

    async def scene() -> None:
        service = CoordinatorService(Settings(uid="u", nodes=50))
        serving = [
            asyncio.create_task(service.serve(LocalLink(), Hello("u", node, 1, 1, 29502, "r"))) for node in range(50)
        ]
        await asyncio.sleep(0)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    asyncio.run(scene())
    (start,) = made
    assert isinstance(start, Start)
    assert len(start.members) == 50


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1", None])
def test_a_port_for_the_next_attempt_is_found_on_any_address(listen: str | None) -> None:
    if listen == "::1" and not _has("::1"):
        pytest.skip("no IPv6 here")
    service = CoordinatorService(Settings(listen=listen))
    ports = {service._port() for _ in range(3)}
    assert len(ports) == 3
    assert max(ports) < FIRST_OF_THE_SYSTEM, "any program could have it before the rank does"


def test_a_port_for_the_next_attempt_is_none_at_which_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = taken.getsockname()[1], free.getsockname()[1]
        monkeypatch.setattr(listening, "PORTS", [ports[0]] * 9 + [ports[1]])
        free.close()
        assert listening.free_port("127.0.0.1") == ports[1]


def _has(address: str) -> bool:
    try:
        with socket.create_server((address, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_new_rank_0_announces_itself_until_those_that_live_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def announce_to(address: str, announce: Announce, _: object) -> Message | None:
        asked.append(address)
        assert (announce.uid, announce.incarnation, announce.address) == ("u", 4, ":29502")
        return History(3, Past()) if address == "answers" or len(asked) > 3 else None

    monkeypatch.setattr(coordinator_service, "announce_to", announce_to)
    monkeypatch.setattr(coordinator_service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(coordinator_service, "AGAIN_SECONDS", 0.01)

    async def play() -> None:
        settings = Settings(uid="u", nodes=3, peers=("job-0", "answers", "busy"), incarnation=4)
        service = CoordinatorService(settings)
        await service.inherit(29502)
        looking = asyncio.create_task(service.look_after())
        await asyncio.sleep(patience(0.3))
        looking.cancel()
        await service.close()
        assert service.coordinator.attempt == 3

    asyncio.run(play())
    assert asked == ["answers", "busy", "busy", "busy"]


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_new_rank_0_whom_nobody_answers_begins_the_attempt_that_its_pod_was_made_for(
    attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def announce_to(*_: object) -> None:
        """Nobody is there."""

    monkeypatch.setattr(coordinator_service, "announce_to", announce_to)

    async def play() -> None:
        service = CoordinatorService(Settings(uid="u", peers=("job-0", "busy"), attempt=attempt, incarnation=attempt))
        await service.inherit(29502)
        link = LocalLink()
        serving = asyncio.create_task(service.serve(link.other_end(), Hello("u", 0, attempt, 0, 29502, "r")))
        welcome, start = [await link.receive() for _ in range(2)]
        assert isinstance(welcome, Welcome)
        assert isinstance(start, Start)
        assert (welcome.incarnation, start.attempt) == (attempt, attempt)
        serving.cancel()
        await service.close()

    asyncio.run(play())


def test_how_long_the_first_step_took_is_kept_for_later_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr(coordinator_service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(coordinator_service, "STALL_LOOK_SECONDS", 0.0)

    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        looking = asyncio.create_task(service.look_after())
        await told.until(Start)
        member.send(Beats(1, (), running=(0,)))
        await asyncio.sleep(0.05)
        assert not (tmp_path / "stalls").exists(), "nothing is known yet"
        member.send(Beats(1, (BEAT,), running=(0,)))
        while not (tmp_path / "stalls" / "patience.json").exists():  # noqa: ASYNC110  (no event reports a file)
            await asyncio.sleep(0.01)
        looking.cancel()

    async def later(service: CoordinatorService, _: LocalLink, told: Told) -> None:
        looking = asyncio.create_task(service.look_after())
        await told.until(Start)
        while service._stalls.learned.first_step != 1.0:  # noqa: ASYNC110  (no event reports it)
            await asyncio.sleep(0.01)
        looking.cancel()

    lead(scene)
    assert asyncio.run(learned_limits.recall("u", "")).first_step == 1.0
    lead(later)


def test_also_if_the_attempt_ends_before_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path))

    async def scene(_: CoordinatorService, member: LocalLink, told: Told) -> None:
        await told.until(Start)
        member.send(Failed(1, "Application"))
        await told.until(Stop)
        member.send(Beats(1, (BEAT,)))
        while not (tmp_path / "stalls" / "patience.json").exists():  # noqa: ASYNC110  (no event reports a file)
            await asyncio.sleep(0.01)

    lead(scene)
    assert asyncio.run(learned_limits.recall("u", "")).first_step == 1.0


def test_beats_are_looked_at_out_of_turn_once_in_each_attempt() -> None:
    """Else the beats of each node would have those of all nodes compared, every second."""

    async def all_of_it() -> None:
        service, looked = CoordinatorService(Settings(uid="u")), []
        service._stalls.look = lambda _, beats: looked.append(beats[0]["attempt"])  # type: ignore[method-assign]
        service.coordinator.joined(0, Hello("u", 0, 1, 1, 29502, "r"), "", 0.0)
        for attempt in (1, 2, 3):
            service.coordinator.current = Attempt(attempt, Ring(range(1), 1), 0.0)
            for beats in ((), (BEAT | {"attempt": attempt},), (BEAT | {"attempt": attempt, "step": 6},)):
                service.coordinator.said(0, Beats(attempt, beats), 1.0)
                service._pass_on(0, attempt)
        assert looked == [1, 2, 3]

    asyncio.run(all_of_it())


def test_that_the_first_step_is_late_is_said_less_and_less_often_with_where_the_ranks_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(coordinator_service, "STALL_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(coordinator_service, "LATE_SECONDS", 0.1)
    said: list[str] = []
    monkeypatch.setattr(coordinator_service, "warn", said.append)

    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        began, looking = time.monotonic(), asyncio.create_task(service.look_after())
        await told.until(Start)
        member.send(Beats(1, (), running=(0,)))
        times = []
        for where in PLACES:
            await told.until(Look)
            times.append(time.monotonic() - began)
            member.send(Looked(1, (Observation(0, "S", where=where),)))
        while len(said) < 2:  # noqa: ASYNC110  (no event reports a warning)
            await asyncio.sleep(0.01)
        delay = service.coordinator.current.delay
        assert delay is not None
        assert [text.partition("; ")[2] for text in said] == [f"rank 0 is at {place}" for place in PLACES]
        assert delay.message == said[1]
        assert (times[0] >= 0.1, times[1] >= 0.2) == (True, True)
        member.send(Beats(1, (BEAT,), running=(0,)))
        while service.coordinator.current.delay is not None:  # noqa: ASYNC110  (no event reports a step)
            await asyncio.sleep(0.01)
        looking.cancel()

    lead(scene)


@pytest.mark.parametrize("attached", [False, True])
def test_that_a_rank_is_stopped_is_logged_once_and_noted_until_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, *, attached: bool
) -> None:
    monkeypatch.setattr(coordinator_service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(coordinator_service, "STALL_LOOK_SECONDS", 0.0)
    said: list[str] = []
    monkeypatch.setattr(coordinator_service, "warn", said.append)

    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        looking = asyncio.create_task(service.look_after())
        await told.until(Start)
        for state, message in (("T", "rank 0 is stopped (SIGSTOP)"), (None, "")) * 2:
            member.send(Beats(1, ({**BEAT, "stopped": state},), running=(0,)))
            while service.coordinator.current.stopped != message:  # noqa: ASYNC110  (no event reports a look)
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
        looking.cancel()

    lead(scene, attached=attached)
    assert said == ["rank 0 is stopped (SIGSTOP)"] * 2


@pytest.mark.parametrize(("stepped", "asks"), [(False, Look), (True, Examine)], ids=["no step yet", "one step"])
@pytest.mark.parametrize("attached", [False, True])
def test_a_gang_that_stands_still_while_a_person_debugs_a_rank_is_neither_late_nor_stalled(
    asks: type[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stepped: bool, attached: bool
) -> None:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr(coordinator_service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(coordinator_service, "STALL_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(coordinator_service, "LATE_SECONDS", 0.1)

    async def stand_still(member: LocalLink) -> None:
        began = time.monotonic()
        while True:
            beats = (BEAT | {"stepAge": time.monotonic() - began},) if stepped else ()
            member.send(Beats(1, beats, running=(0,)))
            await asyncio.sleep(0.01)

    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        await told.until(Start)
        tasks = [asyncio.create_task(task) for task in (service.look_after(), stand_still(member), told.until(asks))]
        await asyncio.wait(tasks[2:], timeout=0.5 if attached else DEADLINE_SECONDS)
        assert tasks[2].done() is not attached
        for task in tasks:
            task.cancel()

    lead(scene, attached=attached, stall_timeout=0.1)
    assert not attached or not (tmp_path / "stalls").exists(), "a person's time teaches nothing of the program's"


def test_a_look_ends_without_those_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_service, "ANSWERING_SECONDS", 0.1)

    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        await told.until(Start)
        assert await service.look() == {}
        await told.until(Look)
        both = asyncio.gather(service.look(), service.look())
        await told.until(Look)
        member.send(Looked(1, (Observation(0, "S"),)))
        assert await both == [{0: Observation(0, "S")}] * 2

    lead(scene)


def test_what_the_operator_has_told_a_new_pod_is_passed_on_to_the_history() -> None:
    async def all_of_it() -> None:
        service, heard = CoordinatorService(Settings(uid="u", nodes=4)), list[Event]()
        service.on_incident = heard.append
        incident = '{"attempt": 1, "node": 1, "cause": "NodeLost", "message": "silent"}'
        for node, told in enumerate(("", incident, "{")):
            hello = Hello("u", node, 2, 1, 29502, "r", incident=told)
            serving = asyncio.create_task(service.serve(LocalLink().other_end(), hello))
            await asyncio.sleep(0)
            serving.cancel()
        assert [(event.word, event.attempt, event.values["incident"]["cause"]) for event in heard] == [
            ("incident", 1, "NodeLost")
        ]
        await service.close()

    asyncio.run(all_of_it())


def test_who_waits_for_a_program_learns_how_it_ended_even_if_the_next_one_begins_at_once() -> None:
    program = HeldProgram(("train.py",), "ab12", "alice")

    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        await told.until(Welcome)
        first, ended = service.run(program)
        await told.until(Start)
        begun: list[int] = []

        def run_the_next() -> None:
            if isinstance(service.coordinator.state, Holding):
                begun.append(service.run(program)[0])

        service.on_change = run_the_next
        member.send(Idle(first, (WELL,)))
        assert (await ended).attempt == first
        assert begun == [first + 1]
        assert service.coordinator.outcome is None, "the next program runs"

    lead(scene, idle_seconds=600.0)


@pytest.mark.parametrize("heard", [Leaving(), Idle(1, (WELL,))], ids=["it was told too", "its ranks have ended"])
def test_the_supervisor_that_is_told_to_stop_first_stays_for_another_node(heard: Any) -> None:
    async def scene(service: CoordinatorService, member: LocalLink, told: Told) -> None:
        await told.until(Start)
        parting = asyncio.create_task(service.part(patience(DEADLINE_SECONDS)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not parting.done(), "without it the other node would kill its ranks"
        member.send(heard)
        await parting

    lead(scene)


def test_it_does_not_stay_for_a_node_that_is_not_told() -> None:
    async def scene(service: CoordinatorService, _: LocalLink, told: Told) -> None:
        await told.until(Start)
        await service.part(0.01)
        await service.part(-1.0)
        assert service.coordinator.runs_untold

    lead(scene)
