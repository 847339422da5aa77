"""Namespaces that go, come back, are closed, or get and lose the label by which they are chosen."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from ddpjob_operator.api.contract import FINISHED
from ddpjob_operator.api.status import UNSEEN
from ddpjob_operator.cluster.writer import UNMARKED

from tests.plant import Plant
from tests.support.jobs import Team, a_job, created
from tests.support.operators import Operator, an_operator

USER = "operator-of-some"
RIGHTS = [{"apiGroups": ["", "ddpjob.dev", "networking.k8s.io"], "resources": ["*"], "verbs": ["*"]}]
OLDER = [
    {"apiGroups": ["", "networking.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs"], "verbs": ["get", "list", "watch", "delete"]},
    {
        "apiGroups": ["ddpjob.dev"],
        "resources": ["ddpjobs/status", "ddpjobs/finalizers"],
        "verbs": ["patch", "update"],
    },
]
"""What an operator needed that did not mark finished jobs."""


def grant(plant: Plant, namespace: str, rules: Sequence[dict[str, Any]] = RIGHTS) -> None:
    """As the chart does it in each namespace, with more."""
    meta = {"name": "operator", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    binding = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "operator"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": USER}],
    }
    del binding["rules"]
    for document in (role, binding):
        plant.kubectl("apply", "-f", "-", input=json.dumps(document))


def label(team: Team, value: str | None) -> None:
    """Gives a namespace the label, or takes it away."""
    team.plant.api.patch(f"/api/v1/namespaces/{team.namespace}", {"metadata": {"labels": {"team": value}}})


def watched(operator: Operator, team: Team) -> float:
    """What the metric says: 0 also where it says nothing."""
    return operator.metric(f'ddpjob_namespace_watched{{namespace="{team.namespace}"}}')


def starts(team: Team, name: str) -> None:
    """A job of that name gets its pods."""
    team.apply(a_job(name))
    team.plant.wait(f"the pods of {name}", lambda: created(team, name))


def test_a_namespace_that_is_closed_or_deleted_is_said_and_takes_nothing_from_the_others(unattended: Plant) -> None:
    plant = unattended
    blue, green = Team(plant), Team(plant)
    grant(plant, blue.namespace)
    names = (blue.namespace, green.namespace, "nowhere")
    flags = ["--no-leader-elect", "--resync-seconds=2", *(f"--namespace={name}" for name in names)]
    with an_operator(plant, *flags, kubeconfig=plant.kubeconfig_for(USER), forked=True) as operator:
        starts(blue, "digits")
        assert (watched(operator, blue), watched(operator, green)) == (1, 0)
        code, page = operator.get("/readyz")
        closed = sorted(f"namespace {name}" for name in names[1:])
        assert (code, [line.split(":")[0] for line in page.splitlines()]) == (200, ["ok", *closed])
        access = 'ddpjob_api_requests_total{code="201",method="POST",resource="selfsubjectaccessreviews"}'
        assert operator.metric(access) == 0, "one review of rules tells all"

        green.apply(a_job("before"))
        grant(plant, green.namespace)
        plant.wait("the namespace to be looked after", lambda: watched(operator, green))
        plant.wait("the pods of a job from before", lambda: created(green, "before"))

        plant.kubectl("delete", "namespace", green.namespace)
        plant.wait("it to be missed", lambda: not watched(operator, green))
        starts(blue, "meanwhile")
        plant.kubectl("create", "namespace", green.namespace)
        grant(plant, green.namespace)
        starts(green, "anew")
        assert operator.log.count(f"namespace {green.namespace}: ") == 2, "once each time"
        assert operator.metric('ddpjob_reconciles_total{result="bug"}') == 0


@pytest.mark.full("unit/cluster/test_writer.py has what is refused, and kube/test_rights.py what is asked for")
def test_an_operator_that_is_newer_than_its_role_does_all_but_mark_finished_jobs_until_it_may(api: Plant) -> None:
    team = Team(api)
    grant(api, team.namespace, OLDER)
    flags = ["--no-leader-elect", "--resync-seconds=2", f"--namespace={team.namespace}"]
    with an_operator(api, *flags, kubeconfig=api.kubeconfig_for(USER), forked=True) as operator:
        team.apply(a_job(nodes=1))
        api.wait("the pod", lambda: created(team))
        team.change(activeDeadlineSeconds=1)
        operator.wait_for(UNMARKED)
        code, page = operator.get("/readyz")
        assert (code, page.splitlines()[0]) == (200, "ok")
        assert f"namespace {team.namespace}: {UNMARKED}" in page
        grant(api, team.namespace)
        api.wait("the mark", lambda: FINISHED in (team.job() or {})["metadata"].get("annotations", {}))
        assert operator.log.count(UNMARKED) == 1
        assert operator.get("/readyz") == (200, "ok\n")


def test_where_all_namespaces_are_missing_it_waits_and_says_so_and_begins_with_the_first(api: Plant) -> None:
    name = f"late-{Team(api).namespace}"
    with an_operator(api, "--no-leader-elect", f"--namespace={name}", forked=True, until_ready=False) as operator:
        operator.wait_for("it does not exist")
        assert operator.get("/readyz")[0] == 503
        api.kubectl("create", "namespace", name)
        starts(Team(api, name), "digits")
        assert operator.ready()


def test_a_selector_that_is_none_ends_it_with_the_server_s_words(api: Plant) -> None:
    flags = ("--no-leader-elect", "--namespace-selector=team in blue")
    with an_operator(api, *flags, forked=True, until_ready=False) as operator:
        assert operator.ended() == 1
        assert "refuses the operator's requests: unable to parse requirement" in operator.log.splitlines()[-1]


def test_namespaces_are_followed_while_they_get_and_lose_the_label_that_is_selected(api: Plant) -> None:
    blue, green = Team(api), Team(api)
    label(blue, "blue")
    with an_operator(
        api, "--no-leader-elect", "--namespace-selector=team=blue", "--resync-seconds=3600", forked=True
    ) as operator:
        starts(blue, "digits")
        green.apply(a_job("before"))
        starts(blue, "more")
        assert green.status("before") == UNSEEN, "nobody looks after it"

        label(green, "blue")
        api.wait("the pods of a job from before", lambda: created(green, "before"))
        starts(green, "after")
        assert (watched(operator, blue), watched(operator, green)) == (1, 1)

        label(green, None)
        operator.wait_for(f"namespace {green.namespace} is no longer selected")
        pods = green.pods("before")
        green.delete("pods", pods[0]["metadata"]["name"])
        green.apply(a_job("late"))
        starts(blue, "last")
        assert (green.status("late"), len(green.pods("before"))) == (UNSEEN, len(pods) - 1), "its jobs are left alone"

        label(green, "blue")
        green.until("{.status.attempt}=2", "before")
        api.wait("the pods of the late one", lambda: created(green, "late"))
        assert operator.metric('ddpjob_reconciles_total{result="bug"}') == 0
