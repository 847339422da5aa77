"""The Secret by which a job's supervisors know each other: when it is made, and who can see it."""

from typing import Any

import pytest
from ddpjob_operator.engine import SECRET, Create, CreatePod, Manifest

from tests.support.variables import variables_of

from .builders import Moment, a_job, made

FILE = "/var/run/secrets/ddpjob.dev/secret"

gang = a_job(nodes=2)
MOMENTS = {
    "a job that starts": gang,
    "a restart": gang.running().fails(1).decided().gone().after(1),
    "one pod that is replaced": gang.running()
    .hears()
    .settled()
    .disrupted(1, "EvictionByEvictionAPI", "a drain")
    .decided()
    .gone(),
    "a resize": gang.running().asks(nodes=3).decided().gone(),
}


def described(moment: Moment) -> list[str]:
    """What a moment makes, in its order."""
    return [one.kind.kind if isinstance(one, Create) else type(one).__name__ for one in moment.decision.actions]


def pods(moment: Moment) -> list[Manifest]:
    return [one.build() for one in moment.decision.actions if isinstance(one, CreatePod)]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_it_is_made_before_the_pods_that_need_it_whenever_there_are_some(moment: Moment) -> None:
    """It may have been deleted, and the operator may not look."""
    kinds = described(moment)
    assert kinds.index("Secret") == kinds.index("CreatePod") - 1
    *_, pod = pods(moment)
    (secret,) = made(moment.decision, SECRET)
    volume = next(one for one in pod["spec"]["volumes"] if one["name"] == "ddpjob-secret")
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]


def test_of_a_job_that_has_run_it_is_said_that_it_was_made_before() -> None:
    said = {
        name: one.made_before
        for name, moment in MOMENTS.items()
        for one in moment.decision.actions
        if isinstance(one, Create) and one.kind is SECRET
    }
    assert said == {name: name != "a job that starts" for name in MOMENTS}


def test_it_is_made_for_nothing_else() -> None:
    assert gang.running().decision.empty
    without_service = gang.running().serves()
    assert described(without_service) == ["Service"]


def test_the_engine_knows_no_value() -> None:
    (secret,) = made(gang.decision, SECRET)
    assert not {"data", "stringData"} & secret.keys()
    assert secret["immutable"] is True
    assert secret["metadata"]["ownerReferences"][0]["uid"] == gang.snapshot.job.metadata.uid


def test_a_job_made_anew_under_the_same_name_has_another_one() -> None:
    """The former one is still there, until it is collected."""
    names = {
        secret["metadata"]["name"]
        for job in (gang, gang.called(uid="uid-2"))
        for secret in made(job.decision, SECRET)
    }
    assert len(names) == 2
    assert gang.snapshot.job.metadata.uid not in "".join(names)


def test_only_the_trainer_container_sees_it_as_a_file_that_each_user_of_it_can_read() -> None:
    template: dict[str, Any] = {
        "spec": {
            "initContainers": [{"name": "fetch", "image": "fetch:1"}],
            "containers": [{"name": "trainer", "image": "trainer:1"}, {"name": "sidecar", "image": "sidecar:1"}],
        }
    }
    *_, pod = pods(a_job(nodes=2, template=template))
    spec = pod["spec"]
    (volume,) = (one for one in spec["volumes"] if one["name"] == "ddpjob-secret")
    assert volume["secret"]["defaultMode"] == 0o444
    seen_by = {
        container["name"]: mount
        for container in (*spec["initContainers"], *spec["containers"])
        for mount in container.get("volumeMounts", ())
        if mount["name"] == "ddpjob-secret"
    }
    assert seen_by.keys() == {"trainer"}
    assert (seen_by["trainer"]["mountPath"], seen_by["trainer"]["readOnly"]) == (FILE.rpartition("/")[0], True)
    (trainer,) = (container for container in spec["containers"] if container["name"] == "trainer")
    assert variables_of(trainer)["DDPJOB_SECRET_FILE"] == FILE
