"""New code in place: which code new pods have, and what the status says about the code that ranks run."""

from typing import Any

import pytest
from ddpjob_operator.api import CodeReference, ConditionType
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
    assert needed(job) == ["ConfigMap data", f"ConfigMap {config_map}"]
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


OLD_DIGEST = "01" * 32
STORY = (
    "failed in attempt 2 before its first step: rank 1: Application: NameError: name 'x' is not defined (train.py:3)"
)
FAILED = {"revision": 3, "digest": DIGEST, "by": "alice", "attempt": 2, "rank": 1, "message": STORY}
WENT_BACK = (
    f"New code 4c4c4c4c4c4c (revision 3, sent by alice) {STORY}; the job goes on with its former code 010101010101"
)
WITH_FORMER = {**NEW, "former": "ddpjob-code-before"}


def trying(**spec: Any) -> Moment:
    """New code runs, and has not finished a step."""
    code = told(by="alice", attempt=2, untried=True)
    return running(code=NEW, **spec).after(5).hears(attempt=2, code=code).settled().after(1)


def went_back(code: dict[str, Any] = NEW) -> Moment:
    """Supervisors have gone back to the former code, in place."""
    moment = running(code=code).after(5)
    return moment.hears(attempt=3, code={"revision": 3, "digest": OLD_DIGEST, "failed": FAILED})


def code_of(moment: Moment) -> str:
    """The ConfigMap with the code of a pod that is made now."""
    (name,) = (
        volume["configMap"]["name"]
        for volume in build_pod(moment.snapshot.job, 1)["spec"]["volumes"]
        if volume["name"] == "code-archive"
    )
    return str(name)


TABLE = {
    "supervisors go back to the former code": (went_back(),),
    "untried code costs a pod": (trying().fails(1, code=137, reason="OOMKilled"),),
    "untried code is wrong for good": (trying().reports(1, exitCode=2, cause="ConfigError"),),
}


def test_code_that_failed_before_its_first_step_is_told_once_and_costs_nothing() -> None:
    moment = went_back()
    told = [(event.warning, event.reason, event.message) for event in moment.decision.events]
    assert told == [(True, "NewCodeFailed", WENT_BACK)]
    status = moment.settled().status
    condition = status.condition(ConditionType.NEW_CODE_FAILED)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "CodeFailed", WENT_BACK)
    assert (status.attempt, status.restarts, status.disruptions, status.incidents) == (3, 0, 0, ())
    assert moment.settled().after(1).decision.events == ()


@pytest.mark.parametrize(("code", "former"), [(NEW, "ddpjob-code-old"), (WITH_FORMER, "ddpjob-code-before")])
def test_new_pods_have_the_former_code_once_the_new_code_has_failed(code: dict[str, Any], former: str) -> None:
    assert code_of(running(code=code)) == "ddpjob-code-new"
    moment = went_back(code).settled()
    assert code_of(moment) == former
    revision = variables_of(build_pod(moment.snapshot.job, 1)["spec"]["containers"][0])["DDPJOB_CODE_REVISION"]
    assert revision == "3", "so that no pod brings the code back that has failed"
    anew = moment.after(5).hears(attempt=4, code={"revision": 3, "digest": OLD_DIGEST}).settled()
    assert code_of(anew) == former, "supervisors of new pods do not know of the failure"


def test_other_code_that_is_sent_later_is_what_new_pods_have() -> None:
    newer = CodeReference(config_map="ddpjob-code-newer", revision=4)
    moment = went_back().settled()
    job = moment.snapshot.job
    moment = moment.but(job=job.model_copy(update={"spec": job.spec.model_copy(update={"code": newer})}))
    assert code_of(moment) == "ddpjob-code-newer"
    now = moment.after(5).hears(attempt=4, code={"revision": 4, "digest": "02" * 32, "failed": FAILED}).settled()
    condition = now.status.condition(ConditionType.NEW_CODE_FAILED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "CodeReplaced")
    assert code_of(now) == "ddpjob-code-newer"


def test_untried_code_that_costs_a_pod_gives_way_to_the_former_code_with_new_pods_and_costs_nothing() -> None:
    moment = trying().fails(1, code=137, reason="OOMKilled")
    status = moment.settled().status
    assert (status.attempt, status.restarts, status.disruptions, status.incidents) == (3, 0, 0, ())
    assert status.code is not None
    assert status.code.failed is not None
    assert (status.code.failed.revision, status.code.failed.digest, status.code.failed.attempt) == (3, DIGEST, 2)
    assert status.code.failed.message.startswith("failed in attempt 2 before its first step: ")
    assert "OutOfMemory" in status.code.failed.message
    assert status.is_true(ConditionType.NEW_CODE_FAILED)
    assert {pod.incarnation for pod in moment.settled().gone().settled().pods} == {2}
    assert code_of(moment.settled()) == "ddpjob-code-old"


@pytest.mark.parametrize("final", [{"exitCode": 2, "cause": "ConfigError"}, {"exitCode": 1, "cause": "Application"}])
def test_even_an_error_that_would_end_the_job_at_once_ends_only_the_new_code(final: dict[str, Any]) -> None:
    status = trying(restart={"maxRestarts": 0}).reports(1, **final).settled().status
    assert (status.is_true(ConditionType.FAILURE_TARGET), status.is_true(ConditionType.NEW_CODE_FAILED)) == (
        False,
        True,
    )


@pytest.mark.parametrize(
    ("config_map", "former"), [("ddpjob-code-before", "ddpjob-code-before"), ("ddpjob-code-old", None)]
)
def test_former_code_that_was_sent_again_has_no_other_code_to_give_way_to(
    config_map: str, former: str | None
) -> None:
    again = running(code={**NEW, "configMap": config_map, "former": former}).after(5)
    moment = again.hears(attempt=2, code=told(by="alice", attempt=2, untried=True)).settled().after(1)
    status = moment.fails(1, code=137, reason="OOMKilled").settled().status
    assert (status.restarts, status.is_true(ConditionType.NEW_CODE_FAILED)) == (1, False)


def test_a_disruption_says_nothing_about_new_code() -> None:
    status = trying().deleted_by_hand(1).settled().status
    assert (status.disruptions, status.is_true(ConditionType.NEW_CODE_FAILED)) == (1, False)


def test_neither_does_a_disruption_that_counts_by_a_rule_nor_a_machine_that_is_not_fit() -> None:
    counts = {"rules": [{"action": "Restart", "causes": ["PodDeleted"]}]}
    for moment in (
        trying(restart=counts).deleted_by_hand(1),
        trying().reports(1, code=201, exitCode=201, cause="PreflightFailed"),
    ):
        status = moment.settled().status
        assert (status.restarts, status.is_true(ConditionType.NEW_CODE_FAILED)) == (1, False)


def test_what_the_former_code_did_while_it_was_replaced_is_not_blamed_on_the_new_code() -> None:
    code = told(by="alice", attempt=2, untried=True)
    moment = running(code=NEW).after(5).hears(attempt=1, code=code).settled().after(1)
    status = moment.reports(1, exitCode=1, cause="Application", attempt=1).settled().status
    assert (status.restarts, status.is_true(ConditionType.NEW_CODE_FAILED)) == (1, False)


def test_if_both_codes_fail_the_usual_rules_apply() -> None:
    moment = went_back().settled().after(5).reports(1, exitCode=2, cause="ConfigError", attempt=3)
    assert moment.settled().status.is_true(ConditionType.FAILURE_TARGET)


def test_code_that_has_finished_a_step_is_no_longer_untried_even_if_new_supervisors_think_so() -> None:
    moment = trying().hears(attempt=2, code=told(by="alice", attempt=2)).settled()
    moment = moment.after(5).hears(attempt=2, code=told(untried=True)).settled()
    assert moment.status.code is not None
    assert not moment.status.code.untried
    status = moment.after(1).fails(1, code=137, reason="OOMKilled").settled().status
    assert (status.restarts, status.is_true(ConditionType.NEW_CODE_FAILED)) == (1, False)


@pytest.mark.parametrize("failed", [3, {}, {"digest": "x"}, {**FAILED, "rank": "first", "by": 7, "message": 5}])
def test_what_is_no_failure_is_ignored_or_bounded(failed: Any) -> None:
    code = {"revision": 3, "digest": OLD_DIGEST, "failed": failed}
    status = running(code=NEW).after(5).hears(attempt=3, code=code).settled().status
    assert status.code is not None
    assert (status.code.failed is None) is (not isinstance(failed, dict) or "rank" not in failed)
