"""What a supervisor puts together for its page."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService
from ddpjob_supervisor.gang.messages import Beats, Hello
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.gang.states import Phase, RunEnd
from ddpjob_supervisor.page import status as module
from ddpjob_supervisor.page.document import Memory
from ddpjob_supervisor.page.status import Status
from ddpjob_supervisor.watch.checkpoint_requests import REQUESTED

PROCESSES = 8


def a_service(settings: Settings) -> CoordinatorService:
    """One that has heard of all processes."""
    service = CoordinatorService(settings)
    for node in range(settings.nodes):
        service.coordinator.joined(node, Hello("u", node, 1, 1, 29502, "r"), f"10.0.0.{node}:29502", 0.0)
    for node in range(settings.nodes):
        first = node * PROCESSES
        told = tuple({"rank": one, "attempt": 1, "activity": "training"} for one in range(first, first + PROCESSES))
        service.coordinator.said(node, Beats(1, told), 0.0)
    return service


@pytest.mark.parametrize(("nodes", "beats"), [(1, 8), (8, 64), (9, 0)])
def test_what_a_page_does_not_show_is_not_gathered_for_it(nodes: int, beats: int) -> None:
    async def gathered() -> int:
        settings, nothing = Settings(uid="u", nodes=nodes, processes=PROCESSES), cast("Any", None)
        service = a_service(settings)
        return len(Status(settings, nothing, service, nothing, nothing)._of_all(service).beats)

    assert asyncio.run(gathered()) == beats


@pytest.mark.parametrize(("running", "phase"), [(True, "Running"), (False, "Gathering")])
def test_the_page_of_another_node_lists_the_processes_of_this_node(*, running: bool, phase: str) -> None:
    settings, nothing = Settings(uid="u", node=1, nodes=2, processes=2), cast("Any", None)
    follower: Any = SimpleNamespace(attempt=3, running=running, beats=lambda: [{"rank": 2}, {"rank": 3}])
    rendezvous: Any = SimpleNamespace(where=lambda: SimpleNamespace(address="job-0:29502"))
    said = Status(settings, follower, None, rendezvous, nothing).document()
    assert [(one["rank"], one["node"]) for one in said["ranks"]] == [(2, 1), (3, 1)]
    assert (said["attempt"], said["phase"], said["coordinator"]) == (3, phase, "job-0:29502")


class Curve:
    """What is recorded of a gang."""

    def __init__(self) -> None:
        self.noted: list[tuple[int, int]] = []
        self.finished = 0

    def note(self, attempt: int, progress: Any, _now: float) -> None:
        self.noted.append((attempt, progress.step))

    def finish(self, _now: float) -> None:
        self.finished += 1


def leading(**settings: Any) -> tuple[Status, CoordinatorService, Curve]:
    """The page of a gang of one rank, whose coordinator is in attempt 2."""
    nothing, curve = cast("Any", None), Curve()
    own = Settings(uid="u", nodes=1, processes=1, **settings)
    service: Any = SimpleNamespace(coordinator=SimpleNamespace(attempt=2, past=SimpleNamespace(incidents=())))
    status = Status(own, nothing, service, nothing, nothing)
    status.curve = cast("Any", curve)
    return status, service, curve


def beat(step: int | None, **more: Any) -> Any:
    return {"rank": 0, "node": 0, "step": step, "stepAge": 0.0, "firstStep": 1, **more}


def test_each_step_that_is_heard_of_is_recorded_with_its_attempt_and_the_end_once() -> None:
    status, _, curve = leading()
    status.add(0, [beat(None)])
    assert curve.noted == [], "it has not finished a step"
    status.add(1, [beat(5)])
    status.add(2, [beat(6)])
    assert curve.noted == [(1, 5), (2, 6)]
    status.finish(over=False)
    assert (curve.noted[-1], curve.finished) == ((2, 6), 0)
    status.finish(over=True)
    assert (len(curve.noted), curve.finished) == (4, 1)
    service: Any = None
    other = Status(Settings(uid="u", node=1, nodes=2), *cast("Any", (None, service, None, None)))
    other.curve = cast("Any", curve)
    other.finish(over=True)
    assert curve.finished == 1, "rank 0's supervisor records it"


def test_of_the_programs_of_a_hold_those_are_recorded_as_finished_that_end_well() -> None:
    status, service, curve = leading(idle_seconds=600)
    ended = []
    for attempt, exit_code, step in ((1, 0, 5), (2, 1, 7), (3, 0, None)):
        status.add(attempt, [beat(step)])
        status.finish_run(RunEnd(attempt, exit_code))
        ended.append(curve.finished)
    assert ended == [1, 1, 1], "the second has failed, and the third has finished no step"
    assert set(curve.noted) == {(1, 5), (2, 7)}
    service.coordinator.attempt = 4
    status.finish(over=True)
    assert curve.finished == 1, "that the hold is over says nothing of its last program"


def test_the_progress_of_a_program_that_has_ended_is_forgotten_but_not_its_checkpoint() -> None:
    status, _, _ = leading(idle_seconds=600)
    saved = {"step": 5, "time": "2026-09-21T14:13:20.500Z"}
    status.add(1, [beat(5, checkpoint=saved)])
    assert status._progress.progress(0.0, 0.0) is not None
    status.finish_run(RunEnd(1, 0))
    status.add(1, [])  # Supervisors report even if they have no ranks.
    assert (status._progress.progress(0.0, 0.0), status._progress.checkpoint) == (None, saved)
    status.add(2, [beat(None)])
    assert status._progress.progress(0.0, 0.0) is None
    status.add(2, [beat(1)])
    status._progress.look()
    assert getattr(status._progress.progress(0.0, 0.0), "step", None) == 1


@pytest.mark.parametrize("in_a_job", [False, True])
def test_who_starts_over_is_warned_where_no_operator_tells_it(
    capsys: pytest.CaptureFixture[str], *, in_a_job: bool
) -> None:
    status, _, _ = leading(in_a_job=in_a_job, checkpoint_every_steps=10)
    status.add(1, [beat(500)])
    status.add(2, [beat(1)])
    warned = capsys.readouterr().err
    assert warned.startswith("warning: attempt 2 started over: its first step is 1, ") is not in_a_job
    assert (warned == "") is in_a_job


def test_after_an_incident_the_steps_of_the_rank_that_failed_count_as_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, service, _ = leading(checkpoint_every_steps=10)
    status.add(1, [beat(500)])
    incidents = [SimpleNamespace(end=SimpleNamespace(step=step)) for step in (7, 507)]
    service.coordinator.past.incidents = tuple(incidents)
    status.add(2, [beat(1)])
    assert "although step 507 had finished before" in capsys.readouterr().err


@pytest.mark.parametrize(("phase", "runs"), [(Phase.RUNNING, True), (Phase.GATHERING, False)])
@pytest.mark.parametrize(("of_operator", "own", "attempt"), [(7, 2, 7), (0, 2, 2)])
def test_a_page_has_the_later_of_both_attempts_and_what_holds_up_those_that_run(
    phase: Phase, of_operator: int, own: int, attempt: int, *, runs: bool
) -> None:
    nothing, delay = cast("Any", None), SimpleNamespace(since=0.0, message="still importing")
    current = SimpleNamespace(
        ring=SimpleNamespace(is_plain=False, order=(1, 0)),
        progressed=True,
        stall=None,
        delay=delay,
        stopped="rank 3 is stopped",
    )
    service: Any = SimpleNamespace(
        coordinator=SimpleNamespace(
            attempt=own,
            current=current,
            phase=phase,
            state=SimpleNamespace(since=5.0),
            missing=[1],
            past=SimpleNamespace(restarts=4, incidents=(), code=None, failed=None),
            has_untried_code=False,
            succeeded=False,
        ),
        beats=dict,
        hold_message="",
        stall_limit=9.0,
    )
    settings = Settings(uid="u", nodes=2, processes=PROCESSES, attempt=of_operator)
    gang = Status(settings, nothing, service, nothing, nothing)._of_all(service)
    assert (gang.attempt, gang.phase, gang.since, gang.order) == (attempt, phase, 5.0, (1, 0))
    assert (gang.delay, gang.stopped) == ((delay, current.stopped) if runs else (None, ""))
    assert (gang.missing, gang.in_place_restarts, gang.stall_limit, gang.first_step_seen) == ([1], 4, 9.0, True)
    assert (gang.uid, gang.nodes, gang.procs_per_node, gang.requested) == ("u", 2, PROCESSES, None)
    current.ring.is_plain = True
    assert Status(settings, nothing, service, nothing, nothing)._of_all(service).order == ()


class Requests:
    """A request that is answered at the second look."""

    def __init__(self, file: Path, heartbeat: Path) -> None:
        assert (file.name, heartbeat.name) == ("request", "0")
        self.looks: list[tuple[int, bool, Any]] = []
        self.last = SimpleNamespace(state="")

    def look(self, attempt: int, *, running: bool, beats: Any) -> bool:
        self.looks.append((attempt, running, beats()))
        self.last.state = REQUESTED if len(self.looks) == 1 else "Saved"
        return len(self.looks) <= 2


def test_a_request_for_a_checkpoint_is_told_at_once_and_its_answer_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CheckpointRequests", Requests)
    saved = beat(9, checkpoint={"step": 9, "time": "2026-09-21T14:13:20.500Z"})
    follower: Any = SimpleNamespace(attempt=3, running=True, beats=lambda: [saved])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    async def watched() -> tuple[Status, int]:
        nothing, told = cast("Any", None), list[int]()
        status = Status(Settings(uid="u"), follower, None, nothing, nothing)
        monkeypatch.setattr(module.asyncio, "sleep", sleep)
        with suppress(asyncio.CancelledError):
            await status.watch_requests(Path("request"), Path("0"), lambda: told.append(1))
        return status, len(told)

    status, told = asyncio.run(watched())
    assert told == 2
    assert slept == [module.ANSWER_SECONDS, module.REQUEST_SECONDS, module.REQUEST_SECONDS]
    assert cast("Any", status._requests).looks == [(3, True, [saved])] * 3
    assert status._progress.checkpoint is not None
    assert status._progress.checkpoint["step"] == 9


@pytest.mark.parametrize("zygote", [None, 7])
def test_memory_is_that_of_the_zygote_and_of_the_supervisor(
    monkeypatch: pytest.MonkeyPatch, zygote: int | None
) -> None:
    monkeypatch.setattr(module, "proportional_set_size", lambda pid: {7: 700, os.getpid(): 100}[pid])
    nothing = cast("Any", None)
    starter: Any = SimpleNamespace(zygote=zygote)
    measured = Status(Settings(uid="u"), nothing, None, nothing, starter)._measured()
    assert measured == Memory(None if zygote is None else 700, 100)


@pytest.mark.parametrize(("phase", "ranks"), [(Phase.RUNNING, [[0, 1, 2, 3]]), (Phase.GATHERING, [])])
def test_stacks_are_of_all_ranks_while_they_run(phase: Phase, ranks: list[list[int]]) -> None:
    async def look() -> dict[int, Any]:
        return {}

    nothing = cast("Any", None)
    service: Any = SimpleNamespace(coordinator=SimpleNamespace(attempt=4, phase=phase), look=look)
    said = asyncio.run(Status(Settings(uid="u", nodes=2, processes=2), nothing, service, nothing, nothing).stacks())
    assert (said["attempt"], said["phase"], [group["ranks"] for group in said["ranks"]]) == (4, phase, ranks)
