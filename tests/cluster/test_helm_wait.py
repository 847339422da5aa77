"""Helm 4 waits for a job by kstatus, as Flux does: until it runs, and no longer once only a person can help."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.engine import fingerprint

from tests.support.helm import HelmError, helm
from tests.support.jobs import Team, a_job
from tests.support.waiting import patience

from .pages import NOON, a_page, supervised


def release(team: Team, chart: Path, job: dict[str, Any]) -> str:
    """Helm installs a chart of this job, or upgrades it, and waits."""
    (chart / "templates").mkdir(exist_ok=True)
    (chart / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "training", "version": "0.1.0"}))
    (chart / "templates" / "job.yaml").write_text(json.dumps(job))
    words = ("--install", "--wait", "--timeout=5m", "--namespace", team.namespace)
    return helm("upgrade", "training", chart, *words, plant=team.plant)


def test_it_waits_for_what_passes_until_a_job_runs_and_a_stall_is_no_failure(team: Team, tmp_path: Path) -> None:
    team.limit("pods", 1)
    with a_page() as page, ThreadPoolExecutor() as executor:
        released = executor.submit(release, team, tmp_path, job := supervised(page))
        assert team.condition("Blocked")["reason"] == "QuotaExceeded"
        assert not released.done()
        team.limit("pods", 2)
        released.result()
        assert team.status()["state"] == "Running"
        page.shows(job=fingerprint((team.job() or {})["metadata"]["uid"]), attempt=team.status()["attempt"])
        page.says(phase="Stalled", stall={"since": NOON, "node": 1, "rank": 1, "message": "rank 1 is stopped"})
        team.condition("TrainingStalled")
        release(team, tmp_path, job)


def test_it_gives_up_at_once_with_the_jobs_message_if_only_a_person_can_help(team: Team, tmp_path: Path) -> None:
    job = a_job()
    del job["spec"]["template"]["spec"]["containers"][0]["image"]
    begun = time.monotonic()
    with pytest.raises(
        HelmError, match=r"digits not ready\. status: Failed, message: The trainer container has no image"
    ):
        release(team, tmp_path, job)
    assert time.monotonic() - begun < patience(60)
