"""Several operators in the same namespace: each with a class of its own, or, by mistake, of the same class."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpjob_operator.api.contract import CLASS_LABEL
from ddpjob_operator.api.status import UNSEEN

from tests.plant import Plant
from tests.plant.api import ADMINS
from tests.support.jobs import FOR_LONG, Team, a_job
from tests.support.operators import Operator, an_operator


def of_class(job: dict[str, Any], class_name: str) -> dict[str, Any]:
    """The job with a label for its class."""
    job["metadata"]["labels"] = {CLASS_LABEL: class_name}
    return job


def relabel(team: Team, class_name: str | None, name: str = "digits") -> None:
    """Changes the label of a job, or removes it."""
    team.plant.api.patch(team.path("ddpjobs", name), {"metadata": {"labels": {CLASS_LABEL: class_name}}})


@contextmanager
def a_release(team: Team, name: str, *flags: str) -> Iterator[Operator]:
    """An operator as a release of the chart runs it: with a Lease, and in the name of a user, of its own."""
    lease = ("--no-leader-elect", f"--lease-namespace={team.namespace}", f"--lease-name={name}")
    who = team.plant.kubeconfig_for(f"operator-{name}", ADMINS)
    with an_operator(team.plant, f"--namespace={team.namespace}", *lease, *flags, kubeconfig=who, forked=True) as one:
        yield one


def told(operator: Operator, team: Team, name: str = "digits") -> int:
    """How many lines of an operator's log are about a job: one for each thing that it has decided."""
    return operator.log.count(f"({team.namespace}/{name})")


def operator_of(team: Team, name: str = "digits") -> str:
    """The operator that the status names, without its namespace."""
    return str(team.status(name).get("operator", "")).removeprefix(f"{team.namespace}/")


def uids(team: Team, name: str = "digits") -> set[str]:
    """The uids of a job's pods."""
    return {pod["metadata"]["uid"] for pod in team.pods(name)}


def test_a_canary_runs_the_jobs_of_its_class_beside_the_default_release(unattended: Plant) -> None:
    team = Team(unattended)
    with a_release(team, "stable") as stable, a_release(team, "canary", "--class=canary") as canary:
        team.apply(a_job(annotations=FOR_LONG), of_class(a_job("new", annotations=FOR_LONG), "canary"))
        team.apply(of_class(a_job("lost"), "nightly"))
        team.wait("Running")
        team.wait("Running", "new")
        assert [operator_of(team, name) for name in ("digits", "new")] == ["stable", "canary"]
        assert [team.status(name).get("className") for name in ("digits", "new")] == [None, "canary"]
        assert team.status("lost") == UNSEEN, "nobody runs its class"
        counted = f'ddpjob_jobs{{namespace="{team.namespace}",state="Running"}}'
        assert [one.metric(counted) for one in (stable, canary)] == [1, 1], "a sum counts no job twice"

        relabel(team, "canary")
        relabel(team, None, "new")
        team.fails(1)
        team.until("{.status.attempt}=2")
        team.wait("Running")
        assert (operator_of(team), told(canary, team)) == ("stable", 0), "it runs the job until the job is suspended"

        team.change(suspend=True)
        team.until("{.status.operator}=" + f"{team.namespace}/canary")
        team.change(suspend=False)
        team.until("{.status.attempt}=3")
        team.wait("Running")
        assert (operator_of(team), team.status().get("className")) == ("canary", "canary")
        before = told(stable, team)
        team.fails(1)
        team.until("{.status.attempt}=4")
        assert told(stable, team) == before
        for one in (stable, canary):
            assert one.metric("ddpjob_overlapping_operators") == 0
            assert one.get("/readyz") == (200, "ok\n")
            assert one.metric('ddpjob_reconciles_total{result="bug"}') == 0


def test_of_two_operators_of_one_class_the_first_keeps_a_job_until_it_is_gone_and_both_say_so(
    unattended: Plant,
) -> None:
    team = Team(unattended)
    with a_release(team, "stable"):
        team.apply(a_job(annotations=FOR_LONG))
        team.wait("Running")
    with a_release(team, "second") as second:
        pods = uids(team)
        team.until("{.status.operator}=" + f"{team.namespace}/second", seconds=25)
        assert uids(team) == pods, "the job has noticed nothing"
        team.fails(1)
        team.until("{.status.attempt}=2")
        team.wait("Running")
        pods = uids(team)
        with a_release(team, "stable") as back:
            for one in (second, back):
                one.wait_for(f"both run jobs without a class in namespace {team.namespace}")
                assert one.metric("ddpjob_overlapping_operators") == 1
                assert "each job stays with the operator that took it first" in one.get("/readyz")[1]
            unattended.wait("both events", lambda: team.events()["SeveralOperators"] == 2)
            names = [f"job-{number}" for number in range(6)]
            team.apply(*map(a_job, names))
            for name in names:
                team.wait("Succeeded", name)
                assert len(team.pods(name)) == 2, "nothing is there twice"
                assert [told(one, team, name) > 0 for one in (second, back)].count(True) == 1, "one has run it"
            assert (operator_of(team), uids(team)) == ("second", pods)
            for one in (second, back):
                assert one.metric('ddpjob_reconciles_total{result="bug"}') == 0


def test_a_job_that_a_release_without_classes_started_stays_with_the_default_release(unattended: Plant) -> None:
    team = Team(unattended)
    with a_release(team, "stable"):
        team.apply(a_job(annotations=FOR_LONG))
        team.wait("Running")
    # This is what a release without classes would have written.
    team.say(operator=None, className=None)
    relabel(team, "canary")
    with a_release(team, "canary", "--class=canary") as canary, a_release(team, "stable"):
        team.apply(of_class(a_job("new"), "canary"))
        team.wait("Succeeded", "new")
        team.fails(1)
        team.until("{.status.attempt}=2")
        assert (operator_of(team), operator_of(team, "new")) == ("stable", "canary")
        assert told(canary, team) == 0
