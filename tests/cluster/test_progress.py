"""What supervisors say of a job, and what becomes of it in the job's status."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from ddpjob_operator.cli.cluster.job_checkpoint import checkpoint
from ddpjob_operator.client import Jobs, connect
from ddpjob_operator.engine import fingerprint

from tests.plant import Plant
from tests.support.jobs import Team, condition, writes
from tests.support.waiting import patience, wait_for

from .pages import NOON, Page, a_page, supervised

PROGRESS = {"epoch": 1, "step": 120, "totalSteps": 400, "percent": 30.0, "etaSeconds": 56, "lastStepTime": NOON}
SPEED = {"loss": 0.25, "samplesPerSecond": 1234.5, "slowestNode": 1}


@pytest.fixture
def page() -> Iterator[Page]:
    with a_page() as page:
        yield page


def start(team: Team, page: Page, *command: str, **spec: Any) -> None:
    """A job runs, and its page knows whose it is."""
    job = supervised(page, **spec)
    job["spec"]["template"]["spec"]["containers"][0] |= {"command": [*command]} if command else {}
    team.apply(job)
    page.shows(job=fingerprint((team.job() or {})["metadata"]["uid"]))
    team.wait("Running")


def test_progress_is_in_the_status_and_in_kubectls_table(team: Team, page: Page) -> None:
    page.says(progress=PROGRESS | SPEED, checkpoint={"step": 100, "time": NOON})
    start(team, page)
    team.until("{.status.progress.step}=120")
    status = team.status()
    assert status["progress"] | {"lastStepTime": NOON} == PROGRESS | SPEED
    assert status["display"] == {"ready": "2/2", "progress": "30%", "eta": "56s"}
    steps = status["bookkeeping"]["steps"]
    assert (steps["furthest"], steps["saved"]) == (120, 100)
    assert status["checkpoint"]["step"] == 100
    head, row = team.kubectl("get", "ddp", "digits").splitlines()
    columns = head.split()
    assert row.split()[columns.index("PROGRESS")] == "30%"
    assert row.split()[columns.index("ETA")] == "56s"
    page.says(progress=PROGRESS | {"step": 130, "loss": "NaN", "lossNotFiniteSinceStep": 128})
    lost = team.condition("LossNotFinite")
    assert (lost["reason"], lost["message"]) == ("NotFinite", "The loss has been NaN since step 128 or earlier")
    assert {"lossNotFinite": "NaN", "lossNotFiniteSinceStep": 128}.items() <= team.status()["progress"].items()
    page.says(progress=PROGRESS | SPEED | {"step": 140})
    team.condition("LossNotFinite", "False")
    assert team.events()["LossNotFinite"] == 1


def test_progress_that_never_stops_is_written_every_ten_seconds_and_news_at_once(team: Team, page: Page) -> None:
    start(team, page)
    page.says(progress=PROGRESS)
    team.until("{.status.progress.step}=120")
    with ThreadPoolExecutor() as executor:
        written = executor.submit(writes_within, team, seconds=30)
        for step in range(121, 421):
            page.shows(progress=PROGRESS | {"step": step})
            time.sleep(0.1)
        assert 1 <= written.result() <= 30 / 10 + 1
    said = time.monotonic()
    page.says(phase="Stalled", stall={"since": NOON, "node": 1, "rank": 1, "message": "rank 1 is stopped"})
    team.until("{.status.state}=Stalled")
    assert time.monotonic() - said < patience(5.0), "not when the next progress is due"
    status = team.status()
    assert "rank 1 is stopped" in condition(status, "TrainingStalled")["message"]
    assert status["progress"]["step"] == 420, "what can wait is written with what matters"


def writes_within(team: Team, seconds: int) -> int:
    """How often the job is written, as a watch tells it: the audit log may come later than what it is about."""
    changes = team.plant.api.watch(team.path("ddpjobs"), "digits", seconds)
    next(changes)  # The job as it is.
    return sum(1 for _ in changes)


def test_a_restart_in_place_is_an_incident_like_any_other_and_touches_no_pod(team: Team, page: Page) -> None:
    page.says(progress={"attempt": 1, "firstStep": 1, "step": 5000})
    start(team, page)
    team.until("{.status.progress.step}=5000")
    pods = {pod["metadata"]["uid"] for pod in team.pods()}
    incident = {"attempt": 1, "time": NOON, "node": 1, "rank": 1, "cause": "Application", "exitCode": 137}
    killed = {"signal": 9, "exception": None, "message": "killed by SIGKILL", "step": 120, "tied": False}
    began = {"attempt": 2, "firstStep": 1, "step": 3}
    page.says(attempt=2, inPlaceRestarts=1, incidents=[incident | killed], progress=began)
    team.until("{.status.attempt}=2", seconds=20)
    status = team.wait("Running", seconds=20)
    assert (status["restarts"], status["disruptions"]) == (1, 0)
    failure = status["incidents"][0]
    assert (failure["attempt"], failure["node"], failure["signal"], failure["step"]) == (1, 1, "SIGKILL", 120)
    assert {pod["metadata"]["uid"] for pod in team.pods()} == pods
    over = team.condition("StartedOver")
    assert over["message"].startswith(
        "Attempt 2 started over: its first step is 1, although step 5000 had finished before"
    )
    team.plant.wait("its event, which is written beside", lambda: team.events()["StartedOver"])
    assert (team.events()["Restarting"], team.events()["StartedOver"]) == (1, 1)


def test_another_operator_listens_again_and_counts_nothing_twice(unattended: Plant, page: Page) -> None:
    team = Team(unattended)
    with team.operator() as first:
        start(team, page)
        page.says(attempt=2, inPlaceRestarts=1, incidents=[{"attempt": 1, "time": NOON, "node": 0, "exitCode": 1}])
        team.until("{.status.attempt}=2", seconds=20)
        first.kill()
    page.says(
        attempt=3,
        inPlaceRestarts=2,
        incidents=[
            {"attempt": 1, "time": NOON, "node": 0, "exitCode": 1},
            {"attempt": 2, "time": NOON, "node": 1, "exitCode": 1},
        ],
    )
    with team.operator() as second:
        team.until("{.status.attempt}=3", seconds=20)
        assert team.status()["restarts"] == 2
        assert second.metric('ddpjob_status_reads_total{result="ok"}') >= 1


@pytest.mark.timeout(150)
def test_a_requested_checkpoint_is_told_by_rank_0s_pod_and_comes_back_in_the_status(team: Team, page: Page) -> None:
    page.says(requestedCheckpoint={"request": "", "state": ""})
    start(team, page, "ddpjob-supervise", "train.py")
    jobs = Jobs(connect(team.plant.kubeconfig, None, team.namespace))
    waiting = checkpoint(jobs, "digits", wait=True)
    assert callable(waiting)

    def annotated(rank: int) -> str | None:
        (pod,) = (pod for pod in team.pods() if pod["metadata"]["labels"]["ddpjob.dev/node"] == str(rank))
        request: str | None = pod["metadata"].get("annotations", {}).get("ddpjob.dev/checkpoint-request")
        return request

    request = wait_for("a request in rank 0's pod", lambda: annotated(0))
    assert team.status()["requestedCheckpoint"]["state"] == "Requested"
    with ThreadPoolExecutor() as executor:
        code = executor.submit(waiting)
        page.says(
            requestedCheckpoint={"request": request, "state": "Saved", "step": 121},
            checkpoint={"step": 121, "time": datetime.now(UTC).isoformat()},
        )
        assert code.result(patience(10)) == 0, "an outcome is written at once"
    status = team.status()
    assert (status["requestedCheckpoint"]["step"], status["checkpoint"]["step"]) == (121, 121)
    assert annotated(1) is None
    assert writes(team.plant, team.namespace)["patch pods"] == 1


def test_that_nobody_answers_any_more_is_a_condition_and_breaks_nothing(team: Team, page: Page) -> None:
    page.says(progress=PROGRESS)
    start(team, page)
    team.until("{.status.progress.step}=120")
    page.close()
    unknown = team.condition("ProgressUnknown")
    status = team.status()
    assert status["state"] == "Running"
    assert f"nothing listens on 127.0.0.1:{page.port}" in unknown["message"]
    assert status["progress"]["step"] == 120
    page.open()
    team.condition("ProgressUnknown", "False")


def test_a_page_that_tells_nonsense_breaks_nothing(team: Team, page: Page) -> None:
    nonsense: dict[str, Any] = {
        "attempt": "many",
        "phase": 7,
        "progress": [],
        "incidents": {"a": 1},
        "stall": "yes",
        "stragglers": [None],
    }
    page.says(**nonsense)
    start(team, page)
    page.says(attempt=10**30, incidents=[{"attempt": 1, "node": 10**9}])
    page.says(attempt=1, progress={"step": -1, "percent": "NaN"}, missing=[5000])
    questions = page.questions
    team.plant.wait("a question after that", lambda: page.questions > questions)
    team.finish()
    status = team.wait("Succeeded")
    assert (status["attempt"], status["restarts"]) == (1, 0)
