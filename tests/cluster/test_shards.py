"""Two operators share a cluster: each looks after the namespaces that their labels give it. One may go to the other
while its job runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.plant import Plant
from tests.plant.api import ADMINS
from tests.plant.audit import position, writes
from tests.support.jobs import Team, a_job, meanwhile, steered
from tests.support.operators import Operator, an_operator

SHARDS = ("blue", "green")
RUNS_ON = steered(runs_for="1h")


def user_of(shard: str) -> str:
    """In whose name a shard's operator writes."""
    return f"operator-of-{shard}"


@contextmanager
def an_operator_of(plant: Plant, shard: str) -> Iterator[Operator]:
    """As a second release of the chart, with a selector and a Lease of its own."""
    flags = (f"--namespace-selector=shard={shard}", "--lease-namespace=default", f"--lease-name=operator-of-{shard}")
    with an_operator(plant, *flags, kubeconfig=plant.kubeconfig_for(user_of(shard), ADMINS), forked=True) as operator:
        yield operator


def assign(team: Team, shard: str) -> None:
    """Gives a namespace to a shard."""
    team.plant.api.patch(f"/api/v1/namespaces/{team.namespace}", {"metadata": {"labels": {"shard": shard}}})


def writers(team: Team, since: int) -> set[str]:
    """Which of the operators wrote anything in a namespace."""
    users = {event["user"]["username"] for event in writes(team.plant, since, team.namespace)}
    return users & set(map(user_of, SHARDS))


@pytest.fixture
def teams(unattended: Plant) -> Iterator[list[Team]]:
    """A namespace for each of two operators, which run."""
    teams = [Team(unattended) for _ in SHARDS]
    for team, shard in zip(teams, SHARDS, strict=True):
        assign(team, shard)
    with an_operator_of(unattended, SHARDS[0]), an_operator_of(unattended, SHARDS[1]):
        yield teams


def test_each_operator_writes_in_the_namespaces_of_its_own_shard_alone(teams: list[Team]) -> None:
    since = position(teams[0].plant)
    for team in teams:
        team.apply(a_job(nodes=2))
    for team in teams:
        team.wait("Succeeded")
    assert [writers(team, since) for team in teams] == [{user_of(shard)} for shard in SHARDS]


def test_a_namespace_goes_to_the_other_operator_while_its_job_runs_on(teams: list[Team]) -> None:
    moved, other = teams
    moved.apply(a_job(nodes=2, annotations=RUNS_ON))
    moved.wait("Running")
    pods = {pod["metadata"]["uid"] for pod in moved.pods()}
    assign(moved, SHARDS[1])
    meanwhile(moved)
    # Both have heard of it by now; what the former one wrote before it did is its own.
    since = position(moved.plant)
    meanwhile(moved)
    meanwhile(other)
    assert writers(moved, since) == {user_of(SHARDS[1])}, "the former one has let go"
    assert {pod["metadata"]["uid"] for pod in moved.pods()} == pods, "the job has noticed nothing"
    moved.fails(1)
    moved.until("{.status.attempt}=2")
    moved.wait("Running")
    assert writers(moved, since) == {user_of(SHARDS[1])}, "the new one answers for it"
