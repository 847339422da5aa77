"""What is decided about jobs that a release with v1alpha1 has begun."""

from ddpjob_operator.engine.left_alone import MESSAGE

from .builders import Moment, a_job, told
from .tables import Table, rows, verdict


@told
def begun_before(moment: Moment) -> Moment:
    """The moment, if a release with the former version had brought it about."""
    status = moment.status
    books = status.bookkeeping.model_copy(update={"version": ""})
    return moment.but(job=moment.snapshot.job.with_status(status.model_copy(update={"bookkeeping": books})))


two = a_job(nodes=2).running()
TABLE: Table = {
    "nothing is done to a job that runs": (begun_before(two), "", "Running", MESSAGE),
    "nor once a rank has failed": (begun_before(two.fails(1)), "", "Running", MESSAGE),
    "nor once all have finished": (begun_before(two.succeeds(0, 1)), "", "Running", MESSAGE),
    "nor if its pods are gone": (begun_before(two.vanishes(0, 1)), "", "Running", MESSAGE),
    "nor if it is suspended": (begun_before(two.asks(suspend=True)), "", "Running", MESSAGE),
    "nor if it is resumed": (
        begun_before(two.asks(suspend=True).settled().gone().settled().asks(suspend=False)),
        *("", "Suspended", MESSAGE),
    ),
    "one that has finished stays so": (
        begun_before(two.succeeds(0, 1).settled()),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
}


@rows(TABLE)
def test_a_job_that_was_begun_before(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_it_says_once_that_it_is_left_alone() -> None:
    moment = begun_before(two)
    assert [event.reason for event in moment.decision.events] == ["Blocked"]
    assert moment.decided().decision.empty


def test_one_that_had_finished_is_written_anew_without_a_word_and_goes_in_time_as_all_others() -> None:
    moment = begun_before(a_job(nodes=1, ttlSecondsAfterFinished=0).running().succeeds(0).decided())
    assert moment.status.finished
    assert moment.decision.events == ()
    assert [type(action).__name__ for action in moment.decided().decision.actions] == ["DeleteJob"]
