"""How jobs end that would not end by themselves, and what is left of them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.support.jobs import Team, condition

from .work import LONG, a_script, change, ddpjob, ended, logs

SILENT = """
import signal, sys, time

def stop(*_):
    print("saved", flush=True)
    sys.exit(205)

signal.signal(signal.SIGTERM, stop)
print("begun", flush=True)
time.sleep(3600)
"""

ALWAYS_AT_THE_SAME_STEP = """
import json, os, sys, time
if os.environ["RANK"] != "1":
    time.sleep(3600)
print("attempt", os.environ["DDPJOB_INCARNATION"], flush=True)
report = {"cause": "Application", "exception": "ValueError", "message": "sample 812 is not a number", "step": 7}
with open("/dev/termination-log", "w") as file:
    json.dump(report, file)
sys.exit(1)
"""


@pytest.mark.full("tests/cluster/test_deadlines.py; tests/local/test_life.py")
def test_a_silent_job_is_stopped_at_its_deadline_and_keeps_its_logs(real: Plant, team: Team) -> None:
    team.apply(a_script("silent", ["python3", "-c", SILENT], nodes=2))
    team.wait("Running", "silent", LONG)
    real.wait("both to have begun", lambda: logs(team, "silent").count("begun") == 2)
    active = datetime.now(UTC) - datetime.fromisoformat(team.status("silent")["startTime"])
    seconds = int(active.total_seconds()) + 5  # From now on nothing happens that anybody could notice.
    change(team, "silent", activeDeadlineSeconds=seconds)
    status = ended(team, "silent")
    said = f"The job was active for longer than {seconds} s (activeDeadlineSeconds)"
    assert (condition(status, "Failed")["reason"], status["message"]) == ("DeadlineExceeded", said)
    assert (status["attempt"], status["restarts"]) == (1, 0)
    assert [pod["status"]["phase"] for pod in team.pods("silent")] == ["Failed", "Failed"]
    kept = sorted(ddpjob(team, "logs", "silent").splitlines())
    assert kept == [f"[rank {rank}] {word}" for rank in (0, 1) for word in ("begun", "saved")]


@pytest.mark.full("test_docs.py: the page bound-a-jobs-time")
def test_a_gang_that_finds_no_place_says_what_lacks_and_fails_at_its_start_deadline(team: Team) -> None:
    job = a_script("large", ["true"], nodes=2)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10000"}}
    team.apply(job)
    waits = "0 of 2 pods running; rank 0 and 1 more: Unschedulable: 0/"
    team.plant.wait("the scheduler's words", lambda: waits in team.status("large").get("message", ""))
    status = team.status("large")
    assert (status["state"], "Insufficient cpu" in status["message"]) == ("Starting", True)
    waited_for = status["message"]
    change(team, "large", startDeadlineSeconds=1)
    status = ended(team, "large")
    assert condition(status, "Failed")["reason"] == "StartDeadlineExceeded"
    assert status["message"] == f"Not all pods ran within 1 s (startDeadlineSeconds): {waited_for}"
    team.plant.wait("the pods to go", lambda: not team.pods("large"))


@pytest.mark.full("test_docs.py: the page bound-a-jobs-time; tests/cluster/test_after_the_end.py")
def test_a_job_that_has_had_its_time_to_live_goes_with_all_that_is_its_own(real: Plant, team: Team) -> None:
    team.apply(a_script("brief", ["true"], nodes=2, ttlSecondsAfterFinished=3, network={"policy": "Enabled"}))
    real.wait("its end", lambda: team.events("brief")["Complete"], LONG)
    kinds = "ddpjobs,pods,services,networkpolicies"
    real.wait("nothing to be left", lambda: not team.kubectl("get", kinds, "--output=name"))
    assert team.events("brief")["Failed"] == 0


def test_a_job_that_fails_at_the_same_step_three_times_is_given_up_with_all_three_logs_kept(team: Team) -> None:
    restart = {"backoffSeconds": 0, "gracePeriodSeconds": 1, "maxRestarts": 100}
    team.apply(a_script("loop", ["python3", "-c", ALWAYS_AT_THE_SAME_STEP], nodes=2, restart=restart))
    status = ended(team, "loop")
    failed = condition(status, "Failed")
    assert failed["reason"] == "CrashLoop"
    assert failed["message"] == (
        "Rank 1 failed: Application: ValueError: sample 812 is not a number; "
        "three times in a row training got no further than step 7"
    )
    assert (status["attempt"], status["restarts"], status["bookkeeping"]["budget"]["used"]) == (3, 2, 2)
    assert [told(failure) for failure in status["incidents"]] == [(3, 1, 7), (2, 1, 7), (1, 1, 7)]
    kept = {pod["metadata"]["name"] for pod in team.pods("loop") if pod["metadata"]["labels"][Label.NODE] == "1"}
    assert kept == {failure["pod"] for failure in status["incidents"]}
    assert ddpjob(team, "logs", "loop", "--node", "1") == "[rank 1] attempt 3\n"
    assert ddpjob(team, "logs", "loop", "--previous") == "[rank 1] attempt 2\n"


def told(failure: dict[str, Any]) -> tuple[int, int, int]:
    return failure["attempt"], failure["node"], failure["step"]
