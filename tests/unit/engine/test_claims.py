"""Which operator runs a job, and how the job's status names it."""

import pytest
from ddpjob_operator.engine import Claim, Holder, claim

from .builders import Moment, a_job

NOBODY, DEFAULT, CANARY = Holder(), Holder("a/default"), Holder("a/canary", "canary")
OTHER_DEFAULT = Holder("b/default")

CLAIMS: dict[str, tuple[str, Holder, bool, Claim, Claim]] = {
    # The label, the holder, whether the job is active; what the default operator and the canary make of it.
    "a new job without a class": ("", NOBODY, False, Claim.OURS, Claim.OTHERS),
    "a new job of a class": ("canary", NOBODY, False, Claim.OTHERS, Claim.OURS),
    "a new job of a class that nobody runs": ("nightly", NOBODY, False, Claim.OTHERS, Claim.OTHERS),
    "a job that runs": ("", DEFAULT, True, Claim.OURS, Claim.OTHERS),
    "a job of a class that runs": ("canary", CANARY, True, Claim.OTHERS, Claim.OURS),
    "the label was added while the job runs": ("canary", DEFAULT, True, Claim.OURS, Claim.CONTESTED),
    "the label was removed while the job runs": ("", CANARY, True, Claim.CONTESTED, Claim.OURS),
    "the label was changed to that of nobody while the job runs": ("nightly", CANARY, True, Claim.OTHERS, Claim.OURS),
    "the label was added while the job is suspended": ("canary", DEFAULT, False, Claim.OTHERS, Claim.OURS),
    "the label was removed while the job is suspended": ("", CANARY, False, Claim.OURS, Claim.OTHERS),
    "a suspended job": ("", DEFAULT, False, Claim.OURS, Claim.OTHERS),
    "another operator of the class runs the job": ("", OTHER_DEFAULT, True, Claim.CONTESTED, Claim.OTHERS),
    "another operator of the class saw the job first": ("", OTHER_DEFAULT, False, Claim.CONTESTED, Claim.OTHERS),
    "a release without classes started the job": ("", NOBODY, True, Claim.OURS, Claim.OTHERS),
    "a release without classes started the job, whatever its label": (
        "canary",
        NOBODY,
        True,
        Claim.OURS,
        Claim.OTHERS,
    ),
}


@pytest.mark.parametrize(("label", "holder", "active", "default", "canary"), CLAIMS.values(), ids=CLAIMS)
def test_a_job_belongs_to_its_class_and_once_it_runs_to_its_operator(
    label: str, holder: Holder, *, active: bool, default: Claim, canary: Claim
) -> None:
    assert [claim(me, label, holder, active=active) for me in (DEFAULT, CANARY)] == [default, canary]


def test_an_operator_whose_class_was_changed_keeps_the_jobs_that_it_runs() -> None:
    renamed = Holder(CANARY.name, "nightly")
    assert claim(renamed, "canary", CANARY, active=True) is Claim.OURS
    assert claim(renamed, "canary", CANARY, active=False) is Claim.OTHERS


def test_a_status_names_the_operator_that_writes_it() -> None:
    new = a_job().allows(holder=CANARY)
    status = new.decision.status
    assert status is not None
    assert (status.operator, status.class_name) == CANARY
    assert a_job().decided().status.operator is None, "a run on this machine has none"


RUNNING = a_job(nodes=2).running().settled().allows(holder=DEFAULT)
SUSPENDED = a_job(nodes=2, suspend=True).settled().allows(holder=DEFAULT)
OVER = a_job(nodes=1).running().succeeds(0).settled().allows(holder=DEFAULT)

SIGNED: dict[str, tuple[Moment, tuple[str, str] | None]] = {
    # The name and the class in the next status; None: no status is written.
    "nothing is new": (RUNNING.held_by(*DEFAULT), None),
    "a release without classes wrote the status, and nothing is new": (RUNNING, None),
    "a job of an operator that is gone": (RUNNING.held_by(*OTHER_DEFAULT), DEFAULT),
    "a job of another class, whose label was changed and whose operator is gone": (RUNNING.held_by(*CANARY), DEFAULT),
    "a suspended job that was released": (SUSPENDED.held_by(*CANARY), DEFAULT),
    "a finished job of an operator that is gone": (OVER.held_by(*OTHER_DEFAULT), None),
    "another operator asks": (RUNNING.held_by(*DEFAULT, "b/default"), DEFAULT),
    "another operator asks about a finished job": (OVER.held_by(*DEFAULT, "b/default"), DEFAULT),
    "the class under which it runs stays, whatever the operator's": (
        RUNNING.held_by(DEFAULT.name, "canary", "b/default"),
        (DEFAULT.name, "canary"),
    ),
}


@pytest.mark.parametrize(("moment", "named"), SIGNED.values(), ids=SIGNED)
def test_a_status_is_written_for_the_name_alone_only_if_that_is_needed(
    moment: Moment, named: tuple[str, str] | None
) -> None:
    status = moment.decision.status
    assert (status and (status.operator, status.class_name or "")) == named
    assert status is None or status.bookkeeping.contender is None
