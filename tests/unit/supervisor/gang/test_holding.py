"""A held gang: what its coordinator makes of programs, of how they end, and of supervisors that come and go."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import pytest
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_supervisor.gang.coordinator import Coordinator
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService, NotReadyError
from ddpjob_supervisor.gang.messages import (
    Beats,
    Begin,
    End,
    Failed,
    HeldProgram,
    Idle,
    Installed,
    Leaving,
    Start,
    Stop,
)
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.gang.states import Phase
from msgspec.structs import replace

from .gangs import BEGIN, INTERRUPTED, KILLED, RAISED, STOPPED, WELL, Gang

IDLE = 600.0
PROGRAM = HeldProgram(("train.py",), "ab12", "alice")


@dataclass
class Hold(Gang):
    """A gang that waits for programs."""

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(
            self.nodes, self.limits, self.now, check_first=self.check, idle_seconds=IDLE, processes=self.processes
        )

    @property
    def phase(self) -> Phase:
        return self.coordinator.phase

    def runs(self, code: str = "ab12", *packages: str) -> Hold:
        self.coordinator.run(replace(PROGRAM, code=code, packages=packages), self.now)
        self._hear()
        return self

    def interrupted(self, *, gone: bool = False) -> Hold:
        self.coordinator.interrupt(self.coordinator.attempt, self.now, gone=gone)
        self._hear()
        return self

    def finishes(self) -> Hold:
        self.coordinator.finish_run(self.coordinator.attempt)
        self._hear()
        return self

    def ends(self, *ends: object) -> str:
        """Each node's only rank ends like this; returns what the coordinator records."""
        for node, end in enumerate(ends):
            self.says(node, Idle(self.coordinator.attempt, (end,)))  # type: ignore[arg-type]
        outcome = self.coordinator.outcome
        assert outcome is not None
        return f"{outcome.attempt}: {outcome.exit_code} {outcome.message}".rstrip()


def held(**how: object) -> Hold:
    hold = Hold(**how)  # type: ignore[arg-type]
    hold.starts()
    return hold


def test_it_waits_for_a_program_when_all_are_there() -> None:
    hold = held()
    assert (hold.phase, hold.words, hold.coordinator.attempt) == (Phase.HOLDING, "", 1)


def test_the_machines_are_tested_first() -> None:
    hold = held(check=True)
    assert (hold.words, asked(hold)) == ("Try(1) to 0 1", "the nodes are getting ready (later)")
    hold.fails(1).idle(0, STOPPED)
    assert (hold.phase, asked(hold)) == (Phase.STOPPING, "the nodes are getting ready (later)")
    hold = held(check=True)
    hold.idle(0, WELL).idle(1, WELL)
    assert (hold.phase, hold.coordinator.attempt, hold.coordinator.outcome) == (Phase.HOLDING, 1, None)


def test_each_program_is_named_with_its_code_to_all_nodes() -> None:
    hold = held().runs()
    assert hold.words == "Start(1) to 0 1"
    assert hold.ends(WELL, WELL) == "1: 0"
    assert hold.phase == Phase.HOLDING
    hold.runs("cd34")
    assert [message.program and message.program.code for _, message in hold.said if isinstance(message, Start)] == [
        "cd34",
        "cd34",
    ]


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ((WELL, RAISED), "1: 1 rank 1 failed: Application: ModuleNotFoundError: No module named 'httpx'"),
        ((STOPPED, KILLED), "1: 137 rank 1 failed: Application: killed by SIGKILL"),
    ],
)
def test_a_program_that_fails_is_over_and_costs_no_restart(ends: tuple[object, ...], outcome: str) -> None:
    hold = held().runs()
    assert hold.ends(*ends) == outcome
    assert (hold.phase, hold.incidents, hold.coordinator.past.restarts) == (Phase.HOLDING, [], 0)


def test_what_the_ranks_of_a_program_have_reported_is_forgotten_with_its_end() -> None:
    hold = held().runs()
    hold.steps(0)
    assert hold.coordinator.members[0].beats
    hold.ends(WELL, WELL)
    assert not any(member.beats for member in hold.coordinator.members.values())


def test_ranks_begin_when_all_nodes_have_the_packages_of_their_program() -> None:
    hold = held().runs("ab12", "einops")
    hold.says(1, Installed(1))
    assert (hold.words, hold.coordinator.installs) == ("", True)
    hold.says(0, Installed(0))  # Of another attempt.
    assert hold.words == ""
    hold.says(0, Installed(1))
    assert ([message for _, message in hold.said], hold.coordinator.installs) == ([Begin(1)] * 2, False)
    assert hold.ends(WELL, WELL) == "1: 0"
    assert not held().runs().coordinator.installs


def test_the_limit_of_the_first_step_begins_when_all_nodes_have_the_packages() -> None:
    """As in a job, where init containers install them before there is a supervisor."""
    limit = 30

    def stalls_after(service: CoordinatorService, hold: Hold, begin: int, *running: int) -> int | None:
        for second in range(begin, begin + 10 * limit):
            for node in range(2):
                hold.says(node, Beats(1, running=tuple(rank for rank in running if rank == node)))
            service._look_for_stalls(float(second))
            if hold.phase is Phase.STALLED:
                return second - begin
        return None

    async def told() -> None:
        hold = held()
        service = CoordinatorService(Settings(nodes=2, idle_seconds=IDLE, first_step_timeout=limit))
        service.coordinator, service._now = hold.coordinator, lambda: hold.now  # type: ignore[method-assign]
        service.run(replace(PROGRAM, packages=("einops",)))
        assert stalls_after(service, hold, 1) is None, "no rank has begun"
        hold.says(0, Installed(1)).says(1, Installed(1))
        assert hold.words == "Begin to 0 1"
        assert stalls_after(service, hold, 1 + 10 * limit, 0, 1) == limit + 1
        await service.close()

    asyncio.run(told())


def test_a_node_that_cannot_have_the_packages_ends_the_others() -> None:
    hold = held().runs("ab12", "einops")
    hold.says(1, Installed(1))
    hold.says(0, Idle(1, (replace(RAISED, rank=0, cause="ConfigError", exception=None),)))
    assert hold.words == "Stop(1) to 1"
    assert not hold.coordinator.installs


def test_an_interrupt_ends_the_ranks_of_its_own_attempt_alone() -> None:
    hold = held().runs()
    hold.coordinator.interrupt(2, hold.now)
    assert hold.phase == Phase.RUNNING
    assert hold.interrupted().words == "Stop(1) to 0 1"
    assert hold.ends(STOPPED, STOPPED) == "1: 130 it was interrupted"
    assert hold.interrupted().phase == Phase.HOLDING


@pytest.mark.parametrize("finishes", [False, True])
def test_a_command_that_is_gone_is_told_unless_the_person_had_stopped_the_program(*, finishes: bool) -> None:
    hold = held().runs()
    if finishes:
        hold.finishes()
    hold.interrupted(gone=True)
    why = "it was interrupted" if finishes else "the connection to the command that ran it was lost"
    assert hold.ends(STOPPED, STOPPED) == f"1: 130 {why}"


SAVED = replace(WELL, exit_code=ExitCode.SAVED_AND_STOPPED)
LOST = replace(RAISED, cause="PeerLost", message="Connection closed by peer")


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ((SAVED, SAVED), "1: 130 it saved and stopped"),
        ((SAVED, INTERRUPTED), "1: 130 it was interrupted"),
        ((SAVED, LOST), "1: 130 it was interrupted"),
        ((SAVED, RAISED), "1: 1 rank 1 failed: Application: ModuleNotFoundError: No module named 'httpx'"),
    ],
)
def test_ranks_that_may_finish_are_not_ended_with_the_first_of_them(ends: tuple[End, ...], outcome: str) -> None:
    hold = held().runs()
    hold.coordinator.finish_run(2)
    assert hold.coordinator.outbox == []
    assert hold.finishes().words == "Finish to 0 1"
    hold.says(0, Idle(1, ends[:1]))
    if ends[1].cause:
        hold.says(1, Failed(1, ends[1].cause))
    assert (hold.phase, hold.words) == (Phase.RUNNING, "")
    assert hold.ends(*ends) == outcome
    assert hold.finishes().phase == Phase.HOLDING


def test_ranks_that_do_not_finish_are_ended() -> None:
    hold = held().runs().finishes().interrupted()
    assert [message for _, message in hold.said] == [Stop(1, also_told=True)] * 2
    assert hold.ends(STOPPED, STOPPED) == "1: 130 it was interrupted"


def test_if_a_node_is_lost_while_the_others_finish_these_are_ended_too() -> None:
    hold = held().runs().finishes()
    hold.lost(1)
    assert [message for _, message in hold.said] == [Stop(1, also_told=True)]


def test_a_stalled_program_ends_with_the_rank_that_stalled_it() -> None:
    hold = held().runs()
    hold.stalls().blames(1)
    assert hold.ends(STOPPED, STOPPED) == "1: 203 rank 1 failed at step 7: Stalled: it is stopped"


def test_a_lost_node_ends_the_program_and_is_waited_for() -> None:
    hold = held().runs()
    hold.lost(1)
    hold.idle(0, STOPPED)
    assert hold.coordinator.outcome is not None
    assert hold.coordinator.outcome.message == "node 1 is gone"
    assert hold.phase == Phase.GATHERING
    hold.joins(1, incarnation=2, attempt=7)
    assert (hold.phase, hold.coordinator.attempt, hold.incidents) == (Phase.HOLDING, 7, [])


def test_a_node_that_is_lost_while_nothing_runs_is_no_incident() -> None:
    hold = held()
    hold.lost(1)
    assert hold.phase == Phase.GATHERING
    hold.joins(1)
    assert (hold.phase, hold.incidents) == (Phase.HOLDING, [])


def test_who_is_about_to_go_is_given_no_program() -> None:
    hold = held()
    hold.says(1, Leaving())
    assert hold.phase == Phase.GATHERING
    hold.lost(1).joins(1, incarnation=2)
    assert hold.phase == Phase.HOLDING


def test_a_program_that_a_leaving_node_has_ended_says_so() -> None:
    hold = held().runs()
    hold.says(1, Leaving())
    assert hold.ends(STOPPED, INTERRUPTED) == "1: 204 node 1 is gone"


def test_it_ends_well_after_its_idle_limit() -> None:
    hold = held()
    assert hold.coordinator.next_moment() == BEGIN + IDLE
    hold.after(IDLE - 1)
    assert hold.phase == Phase.HOLDING
    hold.after(1)
    assert (hold.coordinator.succeeded, hold.words) == (True, "Farewell to 0 1")


def test_a_program_restarts_the_idle_limit_and_a_replaced_pod_does_not() -> None:
    hold = held()
    hold.after(IDLE - 10)
    hold.runs().after(100)
    hold.ends(WELL, WELL)
    assert hold.coordinator.next_moment() == hold.now + IDLE
    until = hold.coordinator.next_moment()
    hold.after(50)
    hold.lost(1).joins(1, incarnation=2)
    assert hold.coordinator.next_moment() == until


def test_a_hold_does_not_end_while_somebody_waits_for_a_lost_node() -> None:
    hold, waiting = held(), held()
    for one in (hold, waiting):
        one.after(IDLE - 100)
        one.lost(1).after(150)
    assert asked(waiting) == "waiting for the supervisor of node 1 (later)"
    for one in (hold, waiting):
        one.after(50)
        one.joins(1, incarnation=2)
    assert (hold.phase, waiting.phase) == (Phase.DONE, Phase.HOLDING)
    assert waiting.coordinator.next_moment() == waiting.now - 50 + IDLE
    assert asked(waiting) == ""


def test_a_hold_does_not_end_while_code_arrives() -> None:
    hold = held()
    hold.after(IDLE - 1)
    assert asked(hold) == ""
    hold.after(30)
    assert hold.phase == Phase.HOLDING


@pytest.mark.parametrize(("attempt", "message"), [(1, "yet"), (12, "since rank 0's pod was replaced")])
def test_a_new_rank_0_says_only_what_it_knows_of_former_programs(attempt: int, message: str) -> None:
    hold = Hold()
    hold.joins(0, 1, attempt=12)
    said = served(hold, attempt).hold_message
    assert re.match(rf"held: no program has run {message}; the hold ends at [\d-]+T\d\d:\d\d:\d\dZ unless", said), (
        said
    )
    hold.runs()
    hold.ends(WELL, WELL)
    assert served(hold, attempt).hold_message.startswith("held: train.py (code ab12, run by alice) has ended; ")


def test_the_end_of_each_program_is_told_once() -> None:
    async def told() -> list[int]:
        hold, ended = held(), list[int]()
        service = served(hold)
        service.on_run_end = lambda end: ended.append(end.attempt)
        for _ in range(2):
            service._act()
            hold.runs()
            service._act()
            hold.ends(WELL, WELL)
            service._act()
            service._act()
        await service.close()
        return ended

    assert asyncio.run(told()) == [1, 2]


@pytest.mark.parametrize(
    ("hold", "answer"),
    [
        (held().runs(), "train.py (code ab12, run by alice) runs here"),
        (held().runs().interrupted(), "train.py (code ab12, run by alice) runs here"),
        (Hold(nodes=12), "waiting for the supervisor of node 0, 1, 2, 3, 4, 5, 6, 7 (later)"),
        (Gang(), "it is not held: it has a program of its own"),
        (Gang().starts(), "it is not held: it has a program of its own"),
    ],
    ids=["runs", "is being ended", "not there", "no hold", "a job"],
)
def test_why_a_program_cannot_be_run_now_is_told_and_whether_it_can_be_later(hold: Hold, answer: str) -> None:
    assert asked(hold) == answer


def test_a_hold_that_is_over_runs_nothing() -> None:
    hold = held()
    hold.after(IDLE)
    assert asked(hold) == "the hold is over"


def test_a_program_that_runs_has_an_attempt_and_an_end_and_learns_no_limits_of_another() -> None:
    async def told() -> None:
        hold = held()
        service, begun = served(hold), list[tuple[int, HeldProgram]]()
        service.on_run = lambda *how: begun.append(how)
        learned = service._kept
        attempt, ended = service.run(PROGRAM)
        assert begun == [(1, PROGRAM)]
        assert (attempt, ended.done(), service.hold_message) == (
            *(1, False),
            "held: train.py (code ab12, run by alice) runs",
        )
        assert service._kept is not learned
        with pytest.raises(NotReadyError, match="runs here"):
            service.run(PROGRAM)
        service.interrupt(2, gone=False)
        assert hold.phase is Phase.RUNNING
        service.finish_run(1)
        assert hold.coordinator.outbox == [], "the nodes are told at once"
        service.interrupt(1, gone=False)
        assert (hold.phase, hold.coordinator.outbox) == (Phase.STOPPING, [])
        hold.ends(STOPPED, STOPPED)
        service._act()
        assert ended.result().exit_code == 130
        await service.close()

    asyncio.run(told())


def served(hold: Hold, attempt: int = 1) -> CoordinatorService:
    """The service of a gang whose rank 0 has a pod that was made for this attempt."""
    service = CoordinatorService(Settings(nodes=hold.nodes, idle_seconds=IDLE, attempt=attempt))
    service.coordinator, service._now = hold.coordinator, lambda: hold.now  # type: ignore[method-assign]
    return service


def asked(hold: Hold) -> str:
    """What somebody hears who wants to run a program; empty if it can be run."""
    try:
        served(hold).check_holding()
    except NotReadyError as error:
        return f"{error}{' (later)' if error.later else ''}"
    return ""
