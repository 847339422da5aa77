"""What follows from the change of a field of an existing job is what the pages say, and nothing else."""

import pytest
from ddpjob_operator.api.contract import MAX_NODES

from tests.support.jobs import FOR_LONG, Team, a_job
from tests.support.operators import an_operator

from .documents import before, changed
from .jobs import Jobs
from .leaves import Leaf, leaves
from .table import FIELDS, Change, Follows, When

OURS = [leaf for leaf in leaves() if not leaf.foreign and FIELDS[leaf.path].when is not When.NEVER]


@pytest.mark.parametrize("leaf", OURS, ids=lambda leaf: leaf.path)
def test_what_follows_from_a_change_is_what_is_documented(jobs: Jobs, leaf: Leaf) -> None:
    field = FIELDS[leaf.path]
    follows = {change: what for change, what in zip(Change, field.after, strict=True) if what is not None}
    said_before = len(jobs.operator.log)
    named = {change: f"{leaf.path}-{change}".replace(".", "-").replace("[]", "").lower() for change in follows}
    for name in named.values():
        job = before(field, name)
        jobs.server.create(job | {"spec": job["spec"] | {"suspend": field.begins == "Suspended"}})
    for name in named.values():
        begun = Follows(field.begins, None, "2/2" if field.begins == "Running" else None)
        jobs.until(f"{name} to begin", lambda one=name, begun=begun: jobs.lacks(one, begun))
    for change, name in named.items():
        there = jobs.server.job(name)
        assert there is not None
        jobs.server.change(changed(leaf, change, there))
    for name in named.values():
        jobs.until(f"the operator to see the change of {name}", lambda one=name: jobs.unseen(one))
        jobs.happens(field.then, name, dict(field.how))
    jobs.come_to({name: follows[change] for change, name in named.items()})
    assert "this is a bug" not in jobs.operator.log[said_before:]
    for name in named.values():
        if jobs.server.job(name):
            jobs.server.delete(name)


def test_the_greatest_number_of_nodes_is_asked_for_with_few_requests_where_a_quota_has_no_room(jobs: Jobs) -> None:
    team = Team(jobs.operator.plant)
    limit = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": 3}}}
    with an_operator(team.plant, f"--namespace={team.namespace}", "--no-leader-elect", forked=True) as operator:
        team.apply({"apiVersion": "v1", "kind": "ResourceQuota", **limit}, a_job(annotations=FOR_LONG))
        team.until("{.status.display.ready}=2/2")
        team.change(nodes=MAX_NODES)
        assert team.condition("Blocked")["reason"] == "QuotaExceeded"
        assert team.status()["nodes"] == MAX_NODES
        team.change(nodes=2)
        team.until("{.status.display.ready}=2/2")
        refused = operator.metric('ddpjob_api_requests_total{code="403",method="POST",resource="pods"}')
        assert 0 < refused < 500
        assert "this is a bug" not in operator.log
