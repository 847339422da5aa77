"""New code in place: which code new pods have, and what the status says about the code that ranks run."""

from typing import Any

import pytest
from ddpjob_operator.engine.manifests.children import build_pod
from ddpjob_operator.engine.manifests.volumes import needed

from tests.support.variables import variables_of

from .builders import Moment, a_job

DIGEST = "4c" * 32
ARCHIVE = {"name": "code-archive", "configMap": {"name": "ddpjob-code-old"}}
TEMPLATE = {
    "spec": {
        "containers": [
            {
                "name": "trainer",
                "image": "a",
                "command": ["ddpjob-supervise", "train.py"],
                "volumeMounts": [{"name": "code-archive", "mountPath": "/ddpjob/archive"}],
            }
        ],
        "volumes": [{"name": "data", "configMap": {"name": "data"}}, ARCHIVE],
    }
}
NEW = {"configMap": "ddpjob-code-new", "revision": 3}


def running(**spec: Any) -> Moment:
    return a_job(nodes=2, template=TEMPLATE, **spec).running().hears().settled()


@pytest.mark.parametrize(
    ("spec", "config_map", "revision"), [({}, "ddpjob-code-old", "0"), ({"code": NEW}, "ddpjob-code-new", "3")]
)
def test_a_new_pod_has_the_newest_code_and_knows_its_revision(
    spec: dict[str, Any], config_map: str, revision: str
) -> None:
    job = running(**spec).snapshot.job
    pod = build_pod(job, 1)
    names = [volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume]
    assert names == ["data", config_map]
    variables = variables_of(pod["spec"]["containers"][0])
    assert variables["DDPJOB_CODE_ARCHIVE"] == "/ddpjob/archive/code.zip"
    assert variables["DDPJOB_CODE_REVISION"] == revision
    assert needed(job.spec) == ["ConfigMap data", f"ConfigMap {config_map}"]
    assert job.spec.template == TEMPLATE, "building a pod changes no template"


def test_a_pod_without_an_archive_has_no_such_variables() -> None:
    assert not {
        name
        for name in variables_of(build_pod(a_job().running().snapshot.job, 0)["spec"]["containers"][0])
        if "CODE" in name
    }


def told(**more: Any) -> dict[str, Any]:
    return {"revision": 3, "digest": DIGEST, **more}


def test_a_planned_change_is_an_event_and_costs_nothing() -> None:
    moment = running(code=NEW)
    code = told(by="alice@laptop", time=moment.snapshot.now.isoformat(), attempt=2)
    moment = moment.after(5).hears(attempt=2, code=code)
    (event,) = moment.decision.events
    message = "Attempt 2 runs new code in place: 4c4c4c4c4c4c, sent by alice@laptop"
    assert (event.reason, event.warning, event.message) == ("CodeReplaced", False, message)
    status = moment.settled().status
    assert (status.attempt, status.restarts, status.disruptions, status.incidents) == (2, 0, 0, ())
    assert status.code is not None
    assert status.code.replaced == "revision 3 (4c4c4c4c4c4c), sent by alice@laptop; in place since attempt 2"


def test_the_code_that_was_submitted_is_told_without_a_change() -> None:
    status = running().after(5).hears(code={"revision": 0, "digest": DIGEST}).settled().status
    assert status.code is not None
    assert (status.code.digest, status.code.replaced) == (DIGEST, "")


def test_of_a_gang_whose_code_is_in_its_image_no_former_code_is_told() -> None:
    moment = running().after(5).hears(code=told()).settled().after(5)
    assert moment.hears_nothing("timeout").settled().status.code is not None
    assert moment.hears().settled().status.code is None


@pytest.mark.parametrize(
    "code", [None, 3, {"digest": "no digest"}, {"digest": 7}, {"revision": 1}, {"digest": "4c" * 33}]
)
def test_what_is_no_code_is_ignored(code: Any) -> None:
    assert running().after(5).hears(code=code).settled().status.code is None


def test_strange_values_are_bounded() -> None:
    code = told(by="x" * 100_000, time="tomorrow", attempt=1, revision=-1)
    status = running().after(5).hears(code=code).settled().status
    assert status.code is not None
    assert (status.code.revision, len(status.code.by or ""), status.code.time) == (0, 256, None)
