"""What happens after a failure: the job's own rules, then the defaults; and what is told of it."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.plant import Plant
from tests.support.exit_codes import among
from tests.support.jobs import FOR_LONG, Team, a_job, condition, steered

RULES = [
    {"exitCodes": among(3), "action": "RestartFree"},
    {"exitCodes": among(*range(64, 79)), "action": "Fail"},
    {"signals": ["SIGSEGV"], "action": "Fail"},
    {"causes": ["OutOfMemory"], "action": "Fail"},
    {"exitCodes": among(9), "causes": ["OutOfMemory"], "action": "Fail"},
]


@dataclass(frozen=True)
class Case:
    """How a rank ends, and what comes of it."""

    how: dict[str, str]
    rule: str
    cause: str = "Application"
    action: str = "Restart"
    rules: list[dict[str, object]] = field(default_factory=lambda: RULES)

    def __str__(self) -> str:
        return f"{self.how} {self.rule}"


OOM = {"exit_code": "137", "reason": "OOMKilled"}

CASES = [
    Case({"exit_code": "3"}, "spec.restart.rules[0]", action="RestartFree"),
    Case({"exit_code": "64"}, "spec.restart.rules[1]", action="Fail"),
    Case({"exit_code": "78"}, "spec.restart.rules[1]", action="Fail"),
    Case({"exit_code": "79"}, "default"),
    Case({"exit_code": "139"}, "spec.restart.rules[2]", action="Fail"),
    Case(OOM, "spec.restart.rules[3]", "OutOfMemory", "Fail"),
    Case(OOM, "default", "OutOfMemory", rules=[]),
    Case({"exit_code": "9"}, "default"),
    Case({"exit_code": "1", "reason": "StartError", "message": "no such file"}, "default", "StartError"),
]


FULL = pytest.mark.full("tests/unit/engine/test_rules.py has the whole table; here is one for each action")
HERE = (CASES[0], CASES[4], CASES[6])


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=() if case in HERE else FULL) for case in CASES]
)
def test_the_first_rule_that_matches_decides(team: Team, case: Case) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"rules": case.rules, "backoffSeconds": 0}))
    team.wait("Running")
    pod = team.fails(1, **case.how)
    if case.action == "Fail":
        status = team.wait("Failed")
        assert condition(status, "Failed")["reason"] == case.cause
        assert (case.rule == "default") or f"({case.rule} says Fail)" in status["message"]
    else:
        team.until("{.status.attempt}=2")
        status = team.wait("Running")
    failure = status["incidents"][0]
    found = {name: failure[name] for name in ("node", "pod", "cause", "action", "rule")}
    wanted = {"node": 1, "pod": pod, "cause": case.cause, "action": case.action, "rule": case.rule}
    assert found == wanted
    counts = {"Restart": (1, 0), "RestartFree": (0, 1), "Fail": (0, 0)}
    assert (status.get("restarts", 0), status.get("disruptions", 0)) == counts[case.action]


def test_a_rule_about_pods_that_are_deleted(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"rules": [{"causes": ["PodDeleted"], "action": "Fail"}]}))
    team.wait("Running")
    team.delete("pods", team.pod(1))
    assert condition(team.wait("Failed"), "Failed")["reason"] == "PodDeleted"


def test_rules_may_change_while_the_job_runs(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    team.change(restart={"rules": [{"exitCodes": among(*range(1, 256)), "action": "Fail"}]})
    team.fails(0)
    assert team.wait("Failed")["incidents"][0]["rule"] == "spec.restart.rules[0]"


def scaled(team: Team, nodes: int, attempt: int) -> dict[str, Any]:
    """The status of the job once this attempt runs with so many nodes."""
    team.scale(nodes)
    team.until(f"{{.status.attempt}}={attempt}")
    team.until(f"{{.status.display.ready}}={nodes}/{nodes}")
    return team.wait("Running")


@pytest.mark.full("waits for a window to pass; tests/unit/engine/test_hindsight.py has rules that come afterwards")
@pytest.mark.parametrize("action", ["Fail", "RestartFree"])
def test_a_rule_of_afterwards_is_for_the_next_incident_whatever_becomes_of_the_job_meanwhile(
    team: Team, action: str
) -> None:
    # A window of a second is soon over: what was paid in it can no longer be given back.
    restart = {"backoffSeconds": 0, "windowSeconds": 1}
    team.apply(a_job(annotations=FOR_LONG, restart=restart))
    team.wait("Running")
    team.fails(1, exit_code="3")
    team.until("{.status.attempt}=2")
    ran = datetime.fromisoformat(condition(team.wait("Running"), "Running")["lastTransitionTime"])
    team.plant.wait("the window to be over", lambda: datetime.now(ran.tzinfo) > ran + timedelta(seconds=1.5))
    team.change(restart={**restart, "rules": [{"exitCodes": among(3), "action": action}]})
    status = scaled(team, 3, attempt=3)
    assert (status["restarts"], status.get("disruptions", 0), status["bookkeeping"]["budget"]["used"]) == (1, 0, 0)
    assert (status["incidents"][0]["action"], status["incidents"][0]["rule"]) == ("Restart", "default")
    team.fails(1, exit_code="3")
    if action == "Fail":
        status = team.wait("Failed")
    else:
        team.until("{.status.attempt}=4")
        status = team.wait("Running")
        assert (status["restarts"], status["disruptions"], status["bookkeeping"]["budget"]["used"]) == (1, 1, 0)
    assert (status["incidents"][0]["action"], status["incidents"][0]["rule"]) == (action, "spec.restart.rules[0]")


def test_one_fault_that_takes_all_ranks_down_costs_one_restart(unattended: Plant) -> None:
    team, nodes = Team(unattended), 8
    with team.operator():
        team.apply(a_job(nodes=nodes, annotations=FOR_LONG, restart={"backoffSeconds": 0}))
        team.wait("Running")
    team.tell(
        *(pod["metadata"]["name"] for pod in team.pods()),
        runs_for="0s",
        exit_code="1",
        message="RuntimeError: Connection closed by peer",
    )
    unattended.wait("all to fail", lambda: all(pod["status"]["phase"] == "Failed" for pod in team.pods()))
    with team.operator():  # It lists them all: one by one, as a watch tells of them, some would come late.
        team.until("{.status.attempt}=2")
        status = team.wait("Running")
    assert (status["restarts"], status["bookkeeping"]["budget"]["used"]) == (1, 1)
    assert status["incidents"][0]["consequences"] == nodes - 1


def test_the_pod_that_failed_first_stays_and_is_judged_though_another_one_is_heard_of_before(team: Team) -> None:
    """As supervisors end a gang: each pod tells which rank it was, and the operator hears of one after the other."""
    cause = {"rank": 1, "exitCode": 2, "cause": "ConfigError", "message": "there is no workload nonsense"}
    incident = {"node": 1, **cause, "attempt": 1}
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    peer = json.dumps(
        {"cause": "PeerLost", "message": "rank 1 failed: ConfigError", "incident": incident, "version": 2}
    )
    team.fails(0, exit_code="204", message=peer)
    message = lambda: team.status().get("message", "")  # noqa: E731
    team.plant.wait("the peer to be heard of", lambda: message().startswith("Rank 1 failed: ConfigError"))
    pod = team.fails(1, exit_code="2", message=json.dumps({**cause, "incident": incident, "version": 2}))
    status = team.wait("Failed")
    assert (status["incidents"][0]["pod"], status["attempt"], status.get("restarts", 0)) == (pod, 1, 0)
    assert pod in {one["metadata"]["name"] for one in team.pods()}, "its log can be read"


def test_an_image_that_does_not_exist_fails_at_once_in_the_registry_s_words(team: Team) -> None:
    words = 'Back-off pulling image "nothing": ErrImagePull: rpc error: manifest unknown'
    team.apply(a_job(annotations=steered(waits_for="ImagePullBackOff", message=words)))
    status = team.wait("Failed")
    assert condition(status, "Failed")["reason"] == "ImageError"
    assert words in status["message"]
    assert not status.get("restarts")


def test_a_registry_that_does_not_answer_is_waited_for_and_told(team: Team) -> None:
    words = 'Back-off pulling image "nothing": dial tcp: i/o timeout'
    team.apply(a_job(annotations=steered(waits_for="ImagePullBackOff", message=words)))
    said = f"0 of 2 pods running; rank 0 and 1 more: ImagePullBackOff: {words}"
    team.plant.wait("the job to tell", lambda: team.status().get("message") == said)
    team.tell(*(pod["metadata"]["name"] for pod in team.pods()), waits_for=None)
    assert team.wait("Succeeded")["attempt"] == 1


def test_a_program_that_gets_no_further_three_times_is_given_up_early(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"backoffSeconds": 0}))
    report = '{"exception": "ValueError", "message": "bad sample", "step": 40}'
    for attempt in (1, 2, 3):
        team.until(f"{{.status.attempt}}={attempt}")
        team.until("{.status.state}=Running")
        team.fails(0, message=report)
    status = team.wait("Failed")
    assert condition(status, "Failed")["reason"] == "CrashLoop"
    assert "no further than step 40" in status["message"]
    assert status["incidents"][0]["message"] == "ValueError: bad sample"


def test_a_pod_that_used_more_storage_than_its_own_limit_is_counted(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"backoffSeconds": 0}))
    team.wait("Running")
    words = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".'
    status = {"phase": "Failed", "reason": "Evicted", "message": words}
    team.plant.api.patch(f"{team.path('pods', team.pod(1))}/status", {"status": status})
    team.until("{.status.attempt}=2")
    failure = team.wait("Running")["incidents"][0]
    assert (failure["cause"], failure["action"], failure["message"]) == ("StorageExceeded", "Restart", words)
