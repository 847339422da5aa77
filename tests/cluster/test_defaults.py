"""The organisation's defaults, as the operator follows them on a real API server, for two teams."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from ddpjob_operator.cluster.followed_defaults import DATA_KEY, REFUSED

from tests.plant import Plant
from tests.support.jobs import Team, a_job, created
from tests.support.operators import Operator, an_operator

NAME = "ddpjob-operator-defaults"
FLAGS = ("--no-leader-elect", f"--defaults={NAME}")


class Organisation:
    """Two teams, an operator, and the ConfigMap with their defaults."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.own, self.blue, self.red = Team(plant), Team(plant), Team(plant)
        self.label(self.blue, "blue")
        self.label(self.red, "red")

    def label(self, team: Team, value: str) -> None:
        self.plant.api.patch(f"/api/v1/namespaces/{team.namespace}", {"metadata": {"labels": {"team": value}}})

    def says(self, *entries: dict[str, Any], text: str | None = None) -> None:
        """The administrator writes these defaults."""
        data = {DATA_KEY: yaml.safe_dump([*entries]) if text is None else text}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}
        self.own.kubectl("apply", "-f", "-", input=json.dumps(document))

    @contextmanager
    def operator(self) -> Iterator[Operator]:
        with an_operator(self.plant, *FLAGS, f"--lease-namespace={self.own.namespace}", forked=True) as operator:
            yield operator

    def told(self) -> bool:
        """Whether there is an event about the ConfigMap."""
        events = self.own.all("events")
        return any((one["involvedObject"]["name"], one["reason"]) == (NAME, REFUSED) for one in events)

    def trainer(self, team: Team, name: str) -> dict[str, Any]:
        """A job of that name begins: the spec of its first pod, of which nobody shows more than a test asks for."""
        team.apply(a_job(name))
        self.plant.wait(f"the pods of {name}", lambda: created(team, name))
        pod: dict[str, Any] = next(pod for pod in team.pods(name))
        return pod


@pytest.fixture
def organisation(unattended: Plant) -> Organisation:
    return Organisation(unattended)


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}


EVERYBODY = {
    "name": "all-teams",
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "labels": {"cost-center": "42"},
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "volumes": [{"name": "scratch-space", "mountPath": "/space", "emptyDir": {}}],
    "ttlSecondsAfterFinished": 3600,
}
BLUE = {
    "name": "blue",
    "namespaceSelector": {"matchLabels": {"team": "blue"}},
    "env": [{"name": "HTTPS_PROXY", "value": "http://blue:3128"}],
}


def test_each_team_gets_its_defaults_and_a_change_counts_for_jobs_that_begin_later(
    organisation: Organisation,
) -> None:
    blue, red = organisation.blue, organisation.red
    organisation.says(EVERYBODY, BLUE)
    with organisation.operator() as operator:
        pods = {team.namespace: organisation.trainer(team, "first") for team in (blue, red)}
        assert [variables(pods[team.namespace])["HTTPS_PROXY"] for team in (blue, red)] == [
            "http://blue:3128",
            "http://proxy:3128",
        ]
        pod = pods[red.namespace]
        assert pod["metadata"]["labels"]["cost-center"] == "42"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert EVERYBODY["tolerations"][0] in pod["spec"]["tolerations"]
        assert "/space" in [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
        stamp = blue.status("first")["defaults"]
        assert (stamp["sources"]["env[HTTPS_PROXY]"], stamp["sources"]["labels[cost-center]"]) == (
            "blue",
            "all-teams",
        )
        assert stamp["volumes"] == EVERYBODY["volumes"], "what is empty stays: emptyDir"

        organisation.says(text="- {name: all-teams, imag: x}")
        organisation.plant.wait("the metric", lambda: operator.metric("ddpjob_defaults_valid") == 0)
        operator.wait_for("imag: unknown field; did you mean image?")
        organisation.plant.wait("the event", organisation.told)
        assert "imag: unknown field" in operator.get("/readyz")[1]
        assert variables(organisation.trainer(red, "second"))["HTTPS_PROXY"] == "http://proxy:3128", (
            "the last good one"
        )

        organisation.says(BLUE)
        organisation.plant.wait("the metric", lambda: operator.metric("ddpjob_defaults_valid") == 1)
        assert "HTTPS_PROXY" not in variables(organisation.trainer(red, "third"))
        assert red.status("third").get("defaults") is None
        assert red.status("first")["defaults"]["env"] == EVERYBODY["env"], "what has begun stays as it is"
        assert len(red.pods("first")) == len(red.pods("third"))


def test_a_job_waits_for_defaults_that_nobody_understands_and_begins_once_they_are_mended(
    organisation: Organisation,
) -> None:
    red = organisation.red
    organisation.says(text="- name: [")
    with organisation.operator():
        red.apply(a_job("digits"))
        blocked = red.condition("Blocked")
        assert blocked["reason"] == "DefaultsUnknown"
        assert "is not YAML" in blocked["message"]
        organisation.says(EVERYBODY)
        organisation.plant.wait("the pods", lambda: created(red))
        assert red.status()["defaults"]["ttlSecondsAfterFinished"] == 3600
