"""The whole life of a job on this machine: deadlines, rules, what counts as success, what is kept of a failure."""

import contextlib
import json
import signal
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.local.here import Here, Started, script
from tests.support.exit_codes import among
from tests.support.waiting import patience

ENDLESS = "print('up', flush=True)\ntime.sleep(1000)"
SAVES = (
    "def stop(*_):\n    print('saved', flush=True)\n    sys.exit(205)\n"
    "signal.signal(signal.SIGTERM, stop)\nprint('up', flush=True)\n"
    "while True:\n    time.sleep(0.02)"
)

RULES = pytest.mark.full("tests/unit/engine/test_rules has every rule, and other cases here are real")
POLICIES = pytest.mark.full("tests/unit/engine/test_after_the_end has every policy; None is Running here")


def condition(here: Here, name: str, kind: str) -> tuple[str, str]:
    """Reason and message of a condition that is true."""
    found = next(one for one in here.status(name)["conditions"] if one["type"] == kind and one["status"] == "True")
    return found["reason"], found["message"]


def pods(here: Here, name: str) -> list[str]:
    """The ranks and attempts of the pods whose directories are there."""
    found = []
    for file in here.run(name).glob("pods/*/pod.json"):
        with contextlib.suppress(FileNotFoundError):  # It is being removed.
            labels = json.loads(file.read_text())["metadata"]["labels"]
            found.append(f"rank {labels['ddpjob.dev/node']} of {labels['ddpjob.dev/incarnation']}")
    return sorted(found)


def test_at_its_deadline_the_ranks_save_and_what_they_were_stays(here: Here) -> None:
    file = here.job("late", *script(SAVES), nodes=2, activeDeadlineSeconds=round(patience(6)))
    code, output = here.ddpjob("run", file)
    assert code == 124, output
    assert condition(here, "late", "Failed")[0] == "DeadlineExceeded"
    assert [here.log("late", rank) for rank in range(2)] == ["up\nsaved\n"] * 2
    assert pods(here, "late") == ["rank 0 of 1", "rank 1 of 1"]
    assert here.processes("late") == []


def test_a_stop_that_was_asked_for_by_a_ddpjob_run_that_died_is_carried_out_by_the_next(here: Here) -> None:
    deadline = round(patience(5))
    file = here.job("stop", *script(SAVES), nodes=2, activeDeadlineSeconds=deadline)
    first = here.start("run", file)
    here.wait("the first attempt", lambda: all("up" in here.log("stop", rank) for rank in range(2)))
    first.kill()
    first.communicate()
    for pod in here.run("stop").glob("pods/*"):
        (pod / "stop.json").write_text('{"gracePeriodSeconds": 100}')
    started = datetime.fromisoformat(here.status("stop")["startTime"])
    here.wait("the deadline", lambda: datetime.now(UTC) > started + timedelta(seconds=deadline))
    assert here.ddpjob("run", file)[0] == 124
    assert all("saved" in here.log("stop", rank) for rank in range(2))
    assert pods(here, "stop") == ["rank 0 of 1", "rank 1 of 1"]


def test_a_gang_that_never_comes_up_has_its_own_deadline(here: Here) -> None:
    rule = {"causes": ["StartError"], "action": "Restart"}
    restart = {"rules": [rule], "backoffSeconds": 300}
    code, output = here.ddpjob("run", here.job("never", "no-such-command", startDeadlineSeconds=5, restart=restart))
    reason, message = condition(here, "never", "Failed")
    assert (code, reason) == (124, "StartDeadlineExceeded"), output
    assert message.startswith(
        "Not all nodes ran within 5 s (startDeadlineSeconds): Rank 0 failed: StartError: cannot"
    )


@pytest.mark.parametrize(
    ("rule", "body", "outcome"),
    [
        ({"exitCodes": among(*range(70, 80)), "action": "Fail"}, "sys.exit(75)", (1, 0, "Application")),
        pytest.param(
            {"signals": ["SIGSEGV"], "action": "Fail"}, "os.kill(os.getpid(), 11)", (1, 0, "Application"), marks=RULES
        ),
        pytest.param(
            {"causes": ["StartError"], "action": "Fail"}, "sys.exit(75)", (3, 2, "MaxRestartsExceeded"), marks=RULES
        ),
        ({"exitCodes": among(75), "action": "RestartFree"}, "sys.exit(75)", (3, 0, "MaxDisruptionsExceeded")),
    ],
    ids=["an exit code", "a signal", "a rule that does not match", "a restart that is free"],
)
def test_restart_rules_decide(here: Here, rule: dict[str, object], body: str, outcome: tuple[int, int, str]) -> None:
    restart = {"maxRestarts": 2, "maxDisruptions": 2, "backoffSeconds": 0, "rules": [rule]}
    _, output = here.ddpjob("run", here.job("rules", *script(body), restart=restart))
    status = here.status("rules")
    reason, _ = condition(here, "rules", "Failed")
    assert (status["attempt"], status["restarts"], reason) == outcome, output


def test_training_that_never_gets_further_fails_before_its_restarts_are_used_up(here: Here) -> None:
    report = "dict(cause='Application', message='bad batch', step=7)"
    body = f"pathlib.Path(os.environ['DDPJOB_TERMINATION_LOG']).write_text(json.dumps({report})); sys.exit(1)"
    code, output = here.ddpjob("run", here.job("loop", *script(body), nodes=2, restart={"backoffSeconds": 0}))
    reason, message = condition(here, "loop", "Failed")
    assert (code, reason, here.status("loop")["attempt"]) == (1, "CrashLoop", 3), output
    assert message.endswith("three times in a row training got no further than step 7")


def test_rank_0_is_enough_where_that_is_asked_for(here: Here) -> None:
    others = "[pathlib.Path(f'{sys.argv[1]}/attempt-1/node-{rank}.log') for rank in (1, 2)]"
    waits = f"while not all(log.exists() and 'up' in log.read_text() for log in {others}):\n        time.sleep(0.02)"
    body = f"if os.environ['NODE_RANK'] == '0':\n    {waits}\n    sys.exit(0)\n{SAVES}"
    command = (*script(body), str(here.run("enough") / "logs"))
    code, output = here.ddpjob("run", here.job("enough", *command, nodes=3, successPolicy="RankZero"))
    assert code == 0, output
    assert condition(here, "enough", "Complete")[0] == "RankZeroSucceeded"
    assert [here.log("enough", rank) for rank in (1, 2)] == ["up\nsaved\n"] * 2


def test_a_rank_that_lingers_after_the_others_have_finished_is_stalled(here: Here) -> None:
    body = f"if os.environ['NODE_RANK'] == '0':\n    sys.exit(0)\n{ENDLESS}"
    file = here.job("linger", *script(body), nodes=2, finishTimeoutSeconds=1, restart={"maxRestarts": 0})
    code, output = here.ddpjob("run", file)
    failure = here.status("linger")["incidents"][0]
    assert (code, failure["node"], failure["cause"]) == (1, 1, "Stalled"), output


def test_of_many_incidents_the_pods_that_failed_first_in_the_last_three_are_kept(here: Here) -> None:
    body = "sys.exit(3) if os.environ['NODE_RANK'] == '1' else time.sleep(1000)"
    restart = {"maxRestarts": 5, "backoffSeconds": 0, "gracePeriodSeconds": 0}
    most = 0
    run = here.start("run", here.job("many", *script(body), nodes=2, restart=restart))
    while run.poll() is None:
        most = max(most, len(pods(here, "many")))
        time.sleep(0.01)  # The cores are for the pods.
    assert pods(here, "many")[-3:] == ["rank 1 of 4", "rank 1 of 5", "rank 1 of 6"]
    assert most <= 7, "more than 3 that are kept, 2 that go and 2 that come"
    logs = sorted(file.parent.name for file in here.run("many").glob("logs/*/node-1.log"))
    assert logs == [f"attempt-{attempt}" for attempt in range(1, 7)]


@pytest.mark.parametrize(
    ("policy", "left"),
    [("All", []), pytest.param("Running", ["rank 1 of 1"], marks=POLICIES), ("None", ["rank 1 of 1"])],
)
def test_what_is_left_of_a_finished_job(here: Here, policy: str, left: list[str]) -> None:
    body = f"if os.environ['NODE_RANK'] == '1':\n    sys.exit(3)\n{ENDLESS}"
    file = here.job("left", *script(body), nodes=2, cleanPodPolicy=policy, restart={"maxRestarts": 0})
    code, output = here.ddpjob("run", file)
    assert (code, pods(here, "left"), here.processes("left")) == (3, left, []), output
    assert here.log("left", 1) == ""
    assert ("cleanPodPolicy None acts as Running on this machine" in output) == (policy == "None")


def test_fields_that_mean_nothing_here_are_named_and_do_no_harm(here: Here) -> None:
    spec = {"managedBy": "example.com/queue", "ttlSecondsAfterFinished": 0, "elastic": {"minNodes": 1}}
    file = here.job("other", sys.executable, "-c", "print('ran')", nodes=2, scheduleTimeoutSeconds=1, **spec)
    code, output = here.ddpjob("run", file)
    assert code == 0, output
    for field in ("managedBy has no effect", "ttlSecondsAfterFinished does nothing", "elastic does nothing"):
        assert output.count(f"ddpjob: {field} on this machine") == 1, output
    assert here.status("other")["state"] == "Succeeded"
    assert "other has succeeded already" in here.ddpjob("run", file)[1]


def test_half_a_gang_that_nobody_carried_on_for_long_is_completed_and_not_given_back(here: Here) -> None:
    file = here.job("half", *script(SAVES), nodes=8, scheduleTimeoutSeconds=1, activeDeadlineSeconds=60)
    first = here.start("run", file)
    while not any(here.run("half").glob("pods/*/pod.json")):
        assert first.poll() is None
    first.kill()  # At once: the others are still to be made.
    first.communicate()
    made = min(pod.stat().st_mtime for pod in here.run("half").glob("pods/*/pod.json"))
    here.wait("the time of a gang to pass", lambda: time.time() > made + 2)
    second = here.start("run", file)
    here.wait("the whole gang", lambda: all("up" in here.log("half", rank) for rank in range(8)))
    assert here.status("half")["attempt"] == 1
    second.terminate()
    second.communicate(timeout=patience(60))


def test_logs_of_any_attempt_begin_with_the_rank_that_failed_first(here: Here) -> None:
    body = (
        "attempt = os.environ['DDPJOB_INCARNATION']\nprint('attempt', attempt, flush=True)\n"
        "sys.exit(3) if attempt < '3' and os.environ['NODE_RANK'] == attempt else time.sleep(1)"
    )
    file = here.job("past", *script(body), nodes=3, restart={"backoffSeconds": 0})
    code, output = here.ddpjob("run", file)
    assert code == 0, output
    for arguments, attempt, first in (([], 3, 0), (["--previous"], 2, 2), (["--attempt", "1"], 1, 1)):
        code, said = here.says("logs", "past", *arguments)
        assert said.splitlines()[0] == f"[rank {first}] attempt {attempt}", said
    assert here.says("logs", "--attempt", "9") == (2, "error: no log of attempt 9; there is 1, 2, 3\n")


def test_status_tells_the_history_and_what_is_left_of_the_time(here: Here) -> None:
    body = f"if os.environ['DDPJOB_INCARNATION'] == '1':\n    sys.exit(3)\n{ENDLESS}"
    restart = {"backoffSeconds": 0, "rules": [{"exitCodes": among(3), "action": "RestartFree"}]}
    spec = {"activeDeadlineSeconds": 8000, "ttlSecondsAfterFinished": 60, "restart": restart}
    run = here.start("run", here.job("told", *script(body), **spec))
    here.wait("the second attempt", lambda: "up" in here.log("told", 0, 2))
    _, said = here.says("status", "told", "-o", "wide")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any(line.startswith("Deadline: in 2h1") for line in lines), said
    assert "Decided: RestartFree by spec.restart.rules[0]" in lines
    incident = lines[lines.index("Incidents:") + 1]
    assert incident.endswith("attempt 1 rank 0 Application: exit code 3 (RestartFree by spec.restart.rules[0])")
    run.terminate()
    run.communicate(timeout=patience(60))
    assert "ttlSecondsAfterFinished" not in here.says("status", "told")[1]


IMPATIENT = """
import os, signal, sys
class Impatience:
    def find_spec(self, name, path, target=None):
        if name == "rich.text":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Impatience())
"""
"""Presses Ctrl-C while the command is being imported."""


def test_ctrl_c_before_anything_has_begun_leaves_nothing_and_says_nothing(here: Here) -> None:
    run = here.start_after(IMPATIENT, "run", here.job("hasty", *script(ENDLESS)))
    output, _ = run.communicate(timeout=patience(60))
    assert (run.returncode, output) == (-signal.SIGINT, "")
    assert not here.run("hasty").exists()


FULL_DISK = """
import errno, pathlib
from ddpjob_operator.local import RunDirectory
save = RunDirectory.save
def save_if_there_is_room(self, job):
    if pathlib.Path("full").exists():
        raise OSError(errno.ENOSPC, "No space left on device", str(self.job_file))
    save(self, job)
RunDirectory.save = save_if_there_is_room
"""
"""The disk of the run directory is full as long as a file says so."""


def run_on_a_full_disk(here: Here) -> Started:
    """A run whose disk gets full once its rank runs, and which has said so."""
    body = "until [ -e done ]; do sleep 0.05; done"
    run = here.start_after(FULL_DISK, "run", here.job("full", "sh", "-c", body))
    here.wait("the rank", lambda: here.status("full").get("state") == "Running")
    (here.directory / "full").touch()
    return run


def test_what_ended_while_the_disk_was_full_is_seen_once_there_is_room(here: Here) -> None:
    run = run_on_a_full_disk(here)
    (here.directory / "done").touch()
    assert run.stdout is not None
    said = f"No space left on device: {here.run('full')}/job.json; retrying until it can be written"
    assert any(said in line for line in run.stdout)
    (here.directory / "full").unlink()
    output, _ = run.communicate(timeout=patience(60))
    assert (run.returncode, "full: Succeeded" in output) == (0, True), output


def test_ctrl_c_ends_the_ranks_although_the_disk_is_full(here: Here) -> None:
    run = run_on_a_full_disk(here)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 130, output
    assert "No space left on device" in output
    here.wait("the end of the ranks", lambda: here.trainers("full") == {})


def test_what_only_a_cluster_does_says_what_does_the_same_here(here: Here) -> None:
    run = here.start("run", here.job("mine", *script(SAVES)))
    here.wait("the first attempt", lambda: "up" in here.log("mine", 0))
    instead = "let it save and stop with: ddpjob stop mine"
    assert here.says("suspend", "mine") == (2, f"error: mine is a run on this machine, not on a cluster; {instead}\n")
    run.terminate()
    run.communicate(timeout=patience(60))
