"""What holds for every moment in every table of this room."""

import importlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from ddpjob_operator.api import Cause, ConditionType, State
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.schema import status_schema
from ddpjob_operator.engine import Create, CreatePod, DeleteJob, Manifest, decide, pod_name
from ddpjob_operator.engine.kstatus import CONDITIONS as KSTATUS
from ddpjob_operator.engine.kstatus import kstatus
from jsonschema import Draft202012Validator

from .argo_cd import health
from .builders import Moment, a_job, with_nobody_steady
from .prose import deeds, in_other_words
from .test_kstatus import GIVE_UP, GO_ON, WAIT, verdict

NAMES = [path.stem for path in sorted(Path(__file__).parent.glob("test_*.py")) if path.stem != Path(__file__).stem]
TABLES: dict[str, dict[str, Moment]] = {
    name: {sentence: row[0] for sentence, row in module.TABLE.items()}
    for name in NAMES
    if hasattr(module := importlib.import_module(f"{__package__}.{name}"), "TABLE")
}

WORDS = {*Reason, *Cause}
STATUS = Draft202012Validator(status_schema())

HEALTH = {WAIT: {"Progressing"}, GIVE_UP: {"Degraded"}, GO_ON: {"Healthy", "Suspended"}}

A_MOMENT, A_WHILE = timedelta(milliseconds=1), timedelta(minutes=50)
"""In an hour a node that was lost is no longer avoided, which is another matter."""


def every_moment(holds: Callable[[Moment], None]) -> Callable[[str], None]:
    """A test for each table, which names the rows that fail: one for each row would cost as much as what it does."""

    @pytest.mark.parametrize("table", TABLES)
    def of_a_table(table: str) -> None:
        failures = list[Exception]()
        for sentence, moment in TABLES[table].items():
            try:
                holds(moment)
            except Exception as failure:  # noqa: BLE001  Whatever it is, the other rows are tried too.
                failure.add_note(f"In {table}: {sentence}")
                failures.append(failure)
        if failures:
            raise ExceptionGroup(f"{len(failures)} of {len(TABLES[table])} rows", failures)

    return of_a_table


def test_there_are_tables() -> None:
    assert len(TABLES) >= 11, "each theme has one named TABLE"
    assert all(TABLES.values())


def test_each_row_that_cannot_be_lived_through_fails_by_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"nobody has rank 7": a_job().running().fails(7), "all is well": a_job(), "nor rank 8": a_job().runs(8)}
    monkeypatch.setitem(TABLES, "here", rows)
    with pytest.raises(ExceptionGroup, match="2 of 3 rows") as failures:
        test_the_next_look_is_ahead("here")
    said = [one.__notes__ for one in failures.value.exceptions]
    assert said == [["In here: nobody has rank 7"], ["In here: nor rank 8"]]


@every_moment
def test_the_same_moment_gives_the_same_decision_also_to_an_operator_that_reads_the_status_anew(
    moment: Moment,
) -> None:
    assert decide(moment.asked) == moment.decision
    assert moment.read_anew().decision == moment.decision


@every_moment
def test_once_carried_out_nothing_is_left_to_do_or_say(moment: Moment) -> None:
    left = moment.settled().decision
    assert left.actions == (DeleteJob(),) or left.empty


@every_moment
def test_no_decision_rests_on_a_word_that_was_written_for_people(moment: Moment) -> None:
    other = in_other_words(moment.asked)
    assert deeds(other, decide(other)) == deeds(moment.asked, moment.decision)


@every_moment
def test_of_a_steady_pod_no_decision_needs_more_than_that_it_runs(moment: Moment) -> None:
    assert decide(with_nobody_steady(moment.asked)) == decide(moment.asked)


@every_moment
def test_the_next_look_is_ahead(moment: Moment) -> None:
    for one in (moment, moment.settled()):
        wake_at = one.decision.wake_at
        assert wake_at is None or wake_at > one.snapshot.now


@every_moment
def test_time_alone_changes_nothing_before_the_next_look(moment: Moment) -> None:
    settled = moment.settled()
    if settled.decision.actions:  # The job is deleted.
        return
    now, wake_at = settled.snapshot.now, settled.decision.wake_at
    latest = now + A_WHILE if wake_at is None else wake_at - A_MOMENT
    assert settled.at(max(latest, now)).decision.empty


@every_moment
def test_at_the_next_look_there_is_something_to_do_or_to_say(moment: Moment) -> None:
    settled = moment.settled()
    wake_at = settled.decision.wake_at
    if wake_at is not None and not waits_for_others(settled):
        assert not settled.at(wake_at).decision.empty


def waits_for_others(moment: Moment) -> bool:
    """Whether it looks again for what nobody would tell it: a flavor that can be read, a pod that was forgotten."""
    unknown = any(flavor.problem for flavor in moment.snapshot.flavors.values())
    return unknown or any(pod.gone_by for pod in moment.pods)


@every_moment
def test_what_is_said_is_what_the_type_allows_in_words_that_are_documented(moment: Moment) -> None:
    status = moment.settled().status
    STATUS.validate(status.to_dict())
    others = {ConditionType.QUEUED, *KSTATUS}  # Their reasons are Kueue's, and those of the whole status.
    assert {condition.reason for condition in status.conditions if condition.type not in others} <= WORDS
    assert len(status.message) <= 1024


@every_moment
def test_tools_that_wait_for_a_job_are_told_what_its_status_says(moment: Moment) -> None:
    status = moment.settled().status
    told = [(one.type, one.status, one.reason, one.message) for one in status.conditions if one.type in KSTATUS]
    kind = kstatus(status)
    assert told == ([] if kind is None else [(kind, "True", status.reason or status.state, status.message)])


@every_moment
def test_argo_cd_thinks_of_a_job_what_tools_do_that_wait_for_it(moment: Moment) -> None:
    for one in (moment, moment.settled()):
        job = one.snapshot.job.with_status(one.status)
        found, _ = health(job.to_document())
        assert found in HEALTH[verdict(job.status.to_dict(), job.metadata.generation)]
        assert found != "Suspended" or job.status.state is State.SUSPENDED


@every_moment
def test_an_operator_that_dies_before_it_acts_does_nothing_else_when_it_is_back(moment: Moment) -> None:
    state = moment.settled().status.state
    assert moment.said().settled().status.state == state


@every_moment
def test_what_is_made_goes_with_the_job_and_keeps_no_namespace_from_going(moment: Moment) -> None:
    metadata = moment.snapshot.job.metadata
    for made in manifests(moment):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (metadata.uid, True)
        assert (made["metadata"]["namespace"], "finalizers" in made["metadata"]) == (metadata.namespace, False)


@every_moment
def test_all_ranks_of_an_attempt_meet_at_a_rank_0_of_the_same_attempt(moment: Moment) -> None:
    after = moment.decided().status if DeleteJob() not in moment.decision.actions else moment.status
    first = pod_name(moment.snapshot.job, 0, after.bookkeeping.incarnations.of(0))
    met = {
        variable["value"].split(".")[0]
        for made in manifests(moment)
        for container in made.get("spec", {}).get("containers", ())
        for variable in container["env"]
        if variable["name"] == "MASTER_ADDR"
    }
    assert met <= {first}


def manifests(moment: Moment) -> list[Manifest]:
    """All that a decision makes."""
    actions = [action for action in moment.decision.actions if isinstance(action, Create | CreatePod)]
    return [action.manifest if isinstance(action, Create) else action.build() for action in actions]


def test_every_reason_of_a_decision_is_met_in_some_table() -> None:
    met = {
        condition.reason
        for table in TABLES.values()
        for moment in table.values()
        for one in (moment, moment.settled())
        for condition in one.status.conditions
    }
    of_the_adapters = {
        *(Reason.POD_TAKEN, Reason.SERVICE_TAKEN, Reason.NETWORK_POLICY_TAKEN),
        *(Reason.WORKLOAD_TAKEN, Reason.POD_GROUP_TAKEN),
        *(Reason.POD_SECURITY_VIOLATION, Reason.RESOURCES_MISSING),
        *(Reason.FORBIDDEN, Reason.POLICY_DENIED, Reason.WEBHOOK_FAILED, Reason.INVALID, Reason.NO_EFFECT),
        *(Reason.POD_DISRUPTION_BUDGET_TAKEN, Reason.BEING_DELETED, Reason.UNREADABLE, Reason.STATUS_REFUSED),
        Reason.SEVERAL_OPERATORS,
    }
    of_an_event = {Reason.CODE_REPLACED}  # In test_new_code.py.
    assert WORDS - of_the_adapters - of_an_event - met == set()
