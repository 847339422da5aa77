"""New code in a running gang: a planned restart in place, after which nobody runs the former code."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ddpjob_operator.engine.policies import going_back
from ddpjob_operator.engine.reports import CLAIMABLE
from ddpjob_supervisor.gang.coordinator import Coordinator
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService, NotReadyError
from ddpjob_supervisor.gang.judging import NOT_OF_THE_CODE
from ddpjob_supervisor.gang.messages import CodeRevision, End, FailedCode, Finished, Hello, Idle, Leave, Past, Start
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.hold.reception import _Reception
from ddpjob_supervisor.hold.words import Apply, Begun, Ready, ReplaceCode, to_line
from msgspec.structs import replace

from .gangs import AT_7, BEGIN, CONFIG, KILLED, LOST, RAISED, SAVED, STOPPED, STUCK, WELL, Gang

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = CodeRevision(0, "0" * 64), CodeRevision(1, "1" * 64, "alice")


@dataclass
class Job(Gang):
    """A gang whose pods were made with OLD."""

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.nodes, self.limits, self.now, check_first=self.check, code=OLD)

    def replaced(self, code: CodeRevision = NEW) -> Job:
        self.coordinator.prepare(code)
        self.coordinator.replace_code(code, self.now)
        self._hear()
        return self

    def joins_with(self, node: int, code: CodeRevision, attempt: int = 1) -> Job:
        said = Hello("uid", node, 2, attempt, 29502, "0.1.0", revision=code.revision, code=code.digest)
        self.coordinator.joined(node, said, f"10.0.0.{node}:29502", self.now)
        self._hear()
        return self

    @property
    def phase(self) -> Phase:
        return self.coordinator.phase

    @property
    def runs(self) -> str:
        """The last Start: the attempt, and the first digit of its code's digest."""
        starts = [message for _, message in self.said if isinstance(message, Start)]
        return f"{starts[-1].attempt}: {starts[-1].past.code.digest[:1]}" if starts else ""


def started() -> Job:
    job = Job()
    job.starts()
    return job


def test_ranks_are_restarted_with_the_new_code_and_it_costs_nothing() -> None:
    job = started()
    assert job.runs == "1: 0"
    assert job.replaced().words == "Stop(1) to 0 1"
    job.idle(0, STOPPED).idle(1, STOPPED)
    assert job.runs == "2: 1"
    past = job.coordinator.past
    assert (past.restarts, past.failures, past.fruitless, job.incidents) == (0, 0, 0, [])
    assert (past.code.by, past.code.attempt, past.code.time) == ("alice", 2, job.now)


@pytest.mark.parametrize("end", [RAISED, WELL], ids=["fails", "is done"])
def test_what_the_former_code_did_at_that_moment_does_not_count(end: object) -> None:
    job = started()
    job.replaced()
    job.idle(0, STOPPED).idle(1, end)  # type: ignore[arg-type]
    assert (job.runs, job.incidents) == ("2: 1", [])


def test_a_stalled_gang_gets_new_code_too() -> None:
    job = started()
    job.stalls()
    job.replaced().idle(0, STOPPED).idle(1, STOPPED)
    assert (job.runs, job.incidents) == ("2: 1", [])


def test_a_node_that_is_lost_meanwhile_is_waited_for() -> None:
    job = started()
    job.replaced().lost(1).idle(0, STOPPED)
    assert (job.coordinator.phase, job.runs) == (Phase.GATHERING, "")
    job.joins_with(1, OLD, attempt=2)
    assert job.runs == "2: 1", "its pod was made with the former code, and runs the new one"


def test_a_later_failure_is_an_incident_as_always() -> None:
    job = started()
    job.replaced().idle(0, STOPPED).idle(1, STOPPED)
    job.steps(0).idle(0, STOPPED).idle(1, RAISED)
    assert (job.runs, len(job.incidents)) == ("3: 1", 1)


def test_a_new_rank_0_with_new_code_gives_it_to_the_others() -> None:
    job = Job()
    job.coordinator = Coordinator(2, job.limits, job.now, code=NEW)
    job.coordinator.remember(3, Past(code=OLD))
    job.joins_with(0, NEW, attempt=4).joins_with(1, OLD, attempt=3)
    assert job.runs == "4: 1"


def test_a_new_pod_with_code_that_waits_here_brings_it_into_force() -> None:
    """The command has died after it wrote the code into the job, and before it said so."""
    job = started()
    job.coordinator.prepare(CodeRevision(digest=NEW.digest, by="alice"))
    job.lost(1).idle(0, STOPPED)
    job.joins_with(1, NEW, attempt=2)
    assert (job.runs, job.coordinator.past.code.revision) == ("2: 1", 1)


@pytest.mark.parametrize("who", ["a new pod", "the others"])
def test_if_rank_0_lacks_the_newest_code_all_pods_are_made_anew(who: str) -> None:
    if who == "a new pod":
        job = started()
        job.lost(1).idle(0, STOPPED)
    else:
        job = Job()
        job.coordinator.remember(1, Past(code=NEW))
        job.joins_with(0, OLD, attempt=2)
    job.joins_with(1, NEW, attempt=2)
    (_, leave), *_ = job.said
    assert isinstance(leave, Leave)
    assert leave.incident.end.message == "another node's pod has newer code, so all pods are replaced"


def test_code_that_was_prepared_and_has_made_room_for_other_code_is_not_here_any_more() -> None:
    job = started()
    for code in (NEW, CodeRevision(2, "2" * 64)):
        job.coordinator.prepare(code)
    job.lost(1).idle(0, STOPPED)
    job.joins_with(1, NEW, attempt=2)
    assert isinstance(job.said[0][1], Leave), "all pods are made anew, with the code that the job names"


@pytest.mark.parametrize("finished", [True, False])
def test_a_job_of_which_nodes_have_finished_gets_no_new_code_because_they_would_not_run_it(*, finished: bool) -> None:
    job, service = started(), CoordinatorService(Settings(nodes=2))
    service.coordinator, service.code.mounted_digest = job.coordinator, OLD.digest
    if finished:
        job.says(1, Finished(1))
    with pytest.raises(NotReadyError, match="some of its nodes have finished") if finished else nullcontext():
        service.check_replaceable(NEW.digest)


def test_the_former_code_can_be_put_back() -> None:
    job = started()
    job.replaced().idle(0, STOPPED).idle(1, STOPPED)
    job.replaced(CodeRevision(2, OLD.digest, "bob")).idle(0, STOPPED).idle(1, STOPPED)
    assert (job.runs, job.coordinator.past.code.attempt) == ("3: 0", 3)


def served(job: Job, mounted: str = OLD.digest, idle_seconds: float | None = None) -> CoordinatorService:
    service = CoordinatorService(Settings(nodes=2, idle_seconds=idle_seconds))
    if idle_seconds is None:
        service.coordinator = job.coordinator
    service.code.mounted_digest = mounted
    return service


def ended() -> Job:
    job = started()
    job.done(0).done(1)
    return job


@pytest.mark.parametrize(
    ("service", "answer", "later"),
    [
        (lambda: served(Job(), idle_seconds=600.0), "it is held: run other code with ddpjob run --on", False),
        (lambda: served(started(), mounted=""), "its pods do not have the archive of its code, ", False),
        (lambda: served(Job()), "its ranks do not run yet", True),
        (lambda: served(ended()), "the gang is about to end", False),
    ],
    ids=["a hold", "code of the image", "not yet", "over"],
)
def test_why_the_code_cannot_be_replaced_now_is_told_and_whether_it_can_be_later(
    service: Callable[[], CoordinatorService], answer: str, *, later: bool
) -> None:
    with pytest.raises(NotReadyError, match=f"^{answer}") as refused:
        service().check_replaceable(NEW.digest)
    assert refused.value.later is later


def test_code_is_replaced_by_later_revisions_alone_and_the_same_code_only_gets_its_number() -> None:
    async def told() -> None:
        job = started()
        service = served(job)
        learned = service._kept
        job.coordinator.prepare(NEW)
        assert service.replace_code(NEW) == 2
        assert service._kept is not learned, "limits of the former code"
        job._hear()
        job.idle(0, STOPPED).idle(1, STOPPED)
        assert job.runs == "2: 1"
        assert service.replace_code(replace(NEW, revision=5)) == 2, "the attempt that brought it"
        assert (job.phase, job.coordinator.past.code.revision) == (Phase.RUNNING, 5)
        assert service.replace_code(replace(NEW, revision=3)) == 2
        assert job.coordinator.past.code.revision == 5
        for revision in (4, 5):
            with pytest.raises(NotReadyError, match="its ranks run revision 5 of the code already") as refused:
                service.replace_code(CodeRevision(revision, OLD.digest))
            assert not refused.value.later
        await service.close()

    asyncio.run(told())


def test_a_job_that_still_runs_its_first_code_names_its_present_attempt() -> None:
    async def told() -> int:
        service = served(started())
        attempt = service.replace_code(replace(OLD, revision=1))
        await service.close()
        return attempt

    assert asyncio.run(told()) == 1


BAD = replace(RAISED, line="train.py:3")
NEWER = CodeRevision(2, "2" * 64, "bob")


def trying(code: CodeRevision = NEW) -> Job:
    """The former code has finished a step; the new code runs, and has not."""
    job = started()
    job.steps(0)
    job.replaced(code).idle(0, STOPPED).idle(1, STOPPED)
    return job


def refused(job: Job) -> FailedCode:
    failed = job.coordinator.past.failed
    assert failed is not None
    return failed


@pytest.mark.parametrize("end", [BAD, CONFIG, KILLED], ids=["raises", "for good", "killed"])
def test_new_code_that_fails_before_its_first_step_gives_way_to_the_former_code_at_no_cost(end: End) -> None:
    job = trying()
    job.breaks(1, end)
    assert job.runs == "3: 0", "in place, without the operator"
    past = job.coordinator.past
    assert (past.restarts, past.failures, past.fruitless, job.incidents, past.former) == (0, 0, 0, [], None)
    failed = refused(job)
    assert (failed.revision, failed.digest, failed.by, failed.incident.attempt) == (1, NEW.digest, "alice", 2)
    assert (past.code.digest, past.code.revision) == (OLD.digest, 1), "pods made with the new code bring it no more"


def test_the_rank_the_error_and_the_line_are_told() -> None:
    job = trying()
    job.breaks(1, BAD)
    assert refused(job).story == (
        "failed in attempt 2 before its first step: rank 1: Application: ModuleNotFoundError:"
        " No module named 'httpx' (train.py:3)"
    )


def test_new_code_that_only_stops_before_its_first_step_gives_way_too() -> None:
    job = trying()
    job.idle(0, SAVED).idle(1, replace(SAVED, rank=1))
    assert (job.runs, job.incidents, refused(job).incident.end.cause) == ("3: 0", [], "Stopped")


def test_new_code_that_hangs_before_its_first_step_gives_way_too() -> None:
    job = trying()
    job.stalls()
    job.blames(1).idle(0, STOPPED).idle(1, STOPPED)
    assert (job.runs, refused(job).incident.end.cause) == ("3: 0", "Stalled")


@pytest.mark.parametrize("how", ["a step", "a step that only the end tells"])
def test_code_that_has_finished_a_step_stays_whatever_fails_then(how: str) -> None:
    job = trying()
    if how == "a step":
        job.steps(1)
        job.breaks(1, BAD)
    else:
        job.fails(1, AT_7)
        job.says(1, Idle(2, (AT_7,), progressed=True)).idle(0, STOPPED)
    assert (job.runs, job.coordinator.past.former, job.coordinator.past.failed) == ("3: 1", None, None)


@pytest.mark.parametrize(("steps", "runs"), [(True, "3: 0"), (False, "3: 1")])
def test_only_code_that_may_report_no_steps_stays_after_a_minute(*, steps: bool, runs: str) -> None:
    job = started()
    if steps:
        job.steps(0)
    job.replaced().idle(0, STOPPED).idle(1, STOPPED)
    assert job.coordinator.next_moment() == (None if steps else BEGIN + 60)
    job.after(60)
    job.breaks(1)
    assert job.runs == runs


def test_code_that_fails_twice_is_the_former_code_and_the_usual_rules_apply() -> None:
    job = trying()
    job.breaks(1, BAD)
    job.breaks(1, KILLED)
    assert (job.runs, job.incidents) == ("4: 0", ["3: rank 1 Application"])


def test_a_lost_pod_or_a_broken_gpu_says_nothing_about_the_code() -> None:
    job = trying()
    job.lost(1).idle(0, STOPPED)
    job.joins_with(1, NEW, attempt=3)
    assert job.runs == "3: 1"
    job.stuck(1)
    job.idle(1, STUCK).idle(0, STOPPED)
    assert job.coordinator.past.failed is None


AWAY = End(1, 1, BEGIN, "StorageUnavailable", "the bucket does not answer", "StorageUnavailableError")


def test_a_store_that_is_away_says_nothing_about_the_code_and_is_left_to_the_operator_as_always() -> None:
    job = trying()
    job.breaks(1, AWAY)
    assert (job.words, job.coordinator.past.failed) == ("Leave(2: rank 1 StorageUnavailable) to 0 1", None)


def test_the_supervisors_and_the_operator_excuse_new_code_for_the_same_failures() -> None:
    assert going_back.NOT_OF_THE_CODE & CLAIMABLE == NOT_OF_THE_CODE


@pytest.mark.parametrize("how", ["is lost", "is told to stop"])
@pytest.mark.parametrize("end", [BAD, KILLED], ids=["raises", "killed"])
def test_what_ranks_do_while_a_node_leaves_says_nothing_about_the_code(how: str, end: End) -> None:
    job = trying()
    if how == "is lost":
        job.lost(1).idle(0, replace(end, rank=0))
    else:
        job.leaving(1)
        job.breaks(1, end)
    assert job.coordinator.past.failed is None


def test_a_test_of_the_machines_says_nothing_about_the_code() -> None:
    job = Job(check=True)
    job.joins_with(0, OLD)
    job.coordinator.prepare(replace(NEW, revision=0))
    job.joins_with(1, NEW)
    assert job.words.startswith("Try(1)"), job.words
    job.breaks(1, BAD)
    assert job.coordinator.past.failed is None


@pytest.mark.parametrize(
    "end",
    [
        LOST,
        CONFIG,
        replace(RAISED, cause="OutOfMemory"),
        replace(RAISED, cause="StorageFull"),
        replace(RAISED, cause="CheckpointUnusable"),
        replace(RAISED, cause="Diverged"),
    ],
    ids=lambda end: end.cause,
)
def test_what_counts_or_would_end_the_job_ends_only_the_new_code(end: End) -> None:
    job = trying()
    job.breaks(0 if end is LOST else 1, end)
    if end is LOST:
        job.after(1)
    assert (job.runs, job.incidents, refused(job).incident.end.cause) == ("3: 0", [], end.cause)


def test_the_same_code_is_not_tried_again_and_other_code_is() -> None:
    job = trying()
    job.breaks(1, BAD)
    service = CoordinatorService(Settings(nodes=2))
    service.coordinator, service.code.mounted_digest = job.coordinator, OLD.digest
    with pytest.raises(NotReadyError, match="this code failed in attempt 2 before its first step: rank 1: App"):
        service.check_replaceable(NEW.digest)
    service.check_replaceable(NEWER.digest)
    job.lost(1).idle(0, STOPPED)
    job.joins_with(1, replace(NEW, revision=2), attempt=3)
    assert (job.runs, refused(job).revision) == ("4: 0", 2), "not even if a pod was made with it"
    job.replaced(replace(NEWER, revision=3)).idle(0, STOPPED).idle(1, STOPPED)
    assert job.runs == "5: 2"


def test_code_that_replaces_code_without_a_step_gives_way_to_the_code_before_both() -> None:
    job = trying()
    job.replaced(NEWER).idle(0, STOPPED).idle(1, STOPPED)
    assert job.runs == "3: 2"
    job.breaks(1, BAD)
    assert job.runs == "4: 0"


def test_code_that_a_new_pod_brings_is_tried_as_well_and_is_not_blamed_for_the_code_that_runs() -> None:
    job = started()
    job.steps(0)
    job.coordinator.prepare(replace(NEW, revision=0))
    job.lost(1)
    job.joins_with(1, NEW)
    job.idle(0, BAD)
    assert (job.runs, job.coordinator.past.failed) == ("2: 1", None)
    job.breaks(1, BAD)
    assert job.runs == "3: 0"


@pytest.mark.parametrize("then", ["nothing happens", "it finishes its first step", "it fails"])
def test_the_code_to_go_back_to_is_told_as_it_is_when_the_new_code_begins(
    monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Untried code may be no longer untried when the command has changed the job."""

    async def told() -> tuple[str, str]:
        job = trying()
        service = served(job)
        monkeypatch.setattr(service.code, "has", lambda _: True)
        command = asyncio.StreamReader()
        answers = _Reception(service, Path("heartbeat"))._answers(command)
        command.feed_data(to_line(ReplaceCode(NEWER.digest, "bob")))
        ready = await anext(answers)
        if then == "it fails":
            job.breaks(1, BAD)
        elif then == "it finishes its first step":
            job.steps(0)
        command.feed_data(to_line(Apply(2)))
        begun = await anext(answers)
        await answers.aclose()
        await service.close()
        assert isinstance(ready, Ready), ready
        assert isinstance(begun, Begun), begun
        return ready.former, begun.former

    runs = NEW if then == "it finishes its first step" else OLD
    assert asyncio.run(told()) == (OLD.digest, runs.digest)


@pytest.mark.parametrize("then", ["it stays", "it fails"])
def test_how_new_code_goes_is_told_to_whoever_sent_it(then: str) -> None:
    job, service = trying(), CoordinatorService(Settings(nodes=2))
    service.coordinator = job.coordinator
    assert service.fate_of(NEW.digest) is None
    if then == "it stays":
        job.steps(0)
    else:
        job.breaks(1, BAD)
    assert (service.fate_of(NEW.digest) or "").startswith("" if then == "it stays" else "failed in attempt 2")
    assert (service.fate_of(NEW.digest) == "") is (then == "it stays")


def test_a_new_rank_0_goes_back_to_the_code_that_it_has_seen_and_not_to_one_that_went_with_its_predecessor() -> None:
    job = Job()
    job.coordinator = Coordinator(2, job.limits, job.now, code=NEW)
    job.coordinator.remember(3, Past(code=NEW, former=OLD, ran=5.0))
    job.joins_with(0, NEW, attempt=4).joins_with(1, NEW, attempt=3)
    job.steps(0)
    job.replaced(NEWER).idle(0, STOPPED).idle(1, STOPPED)
    assert (job.runs, job.coordinator.needed) == ("5: 2", (NEWER.digest, NEW.digest))
    job.breaks(1, BAD)
    assert (job.runs, job.incidents) == ("6: 1", [])


@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_histories_the_newer_one_says_which_code_failed_although_both_name_the_same_revision(
    *, newer_first: bool
) -> None:
    """Rank 0's pod was lost after it had told one node, but not the other, that the former code runs again."""
    job = trying()
    tried = job.coordinator.past
    job.breaks(1, BAD)
    histories = [replace(job.coordinator.past, ran=5.0), replace(tried, ran=4.0)]
    job.coordinator = Coordinator(2, job.limits, job.now, code=NEW)
    for history in histories if newer_first else histories[::-1]:
        job.coordinator.remember(3, history)
    assert (job.coordinator.past.code.digest, refused(job).digest) == (OLD.digest, NEW.digest)


def test_code_that_waits_for_the_next_attempt_is_not_looked_at_again_and_again() -> None:
    job = started()
    job.says(1, Idle(1, (WELL,), progressed=False))
    job.joins_with(1, NEW)
    assert (job.phase, job.coordinator.next_moment()) == (Phase.RUNNING, None)
