"""What is decided about jobs that a release with v1alpha1 has begun."""

from dataclasses import replace

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.engine import Snapshot, decide

from .builders import Moment, a_job


def begun_before(moment: Moment) -> Snapshot:
    """The moment, if a release with the former version had brought it about."""
    snapshot = moment.snapshot
    books = snapshot.job.status.bookkeeping.model_copy(update={"version": ""})
    return with_status(snapshot, snapshot.job.status.model_copy(update={"bookkeeping": books}))


def with_status(snapshot: Snapshot, status: DDPJobStatus | None) -> Snapshot:
    assert status is not None
    return replace(snapshot, job=snapshot.job.with_status(status))


def test_nothing_is_done_to_a_job_that_lives_and_it_says_so_once() -> None:
    for moment in (a_job(nodes=2).running(), a_job(nodes=2).running().fails(1), a_job(suspend=True).settled()):
        snapshot = begun_before(moment)
        first = decide(snapshot)
        assert (first.actions, [event.reason for event in first.events]) == ((), ["Blocked"])
        assert first.status is not None
        assert first.status.reason == "FormerVersion"
        assert first.status.state == snapshot.job.status.state
        assert decide(with_status(snapshot, first.status)).empty


def test_one_that_has_finished_is_written_anew_without_a_word_and_ends_as_all_others_do() -> None:
    snapshot = begun_before(a_job(nodes=1, ttlSecondsAfterFinished=0).running().succeeds(0).settled())
    assert snapshot.job.status.finished
    first = decide(snapshot)
    assert (first.actions, first.events) == ((), ())
    assert first.status is not None
    assert first.status.is_true(ConditionType.COMPLETE)
    then = decide(with_status(snapshot, first.status))
    assert [type(action).__name__ for action in then.actions] == ["DeleteJob"]
