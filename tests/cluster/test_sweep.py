"""The page on sweeps is true: Optuna prunes a trial, and its job is cancelled. The test writes the status of jobs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.docs.pages import PAGES, blocks
from tests.plant import Plant
from tests.support.jobs import Team
from tests.support.waiting import patience
from tests.wheel import projects

LOSSES = {"0": (0.9, 0.5), "1": (0.8, 0.3), "2": (2.0, 2.0), "3": ()}
"""What the jobs report, by their number, step by step. The third is worse than all before; the last one fails."""
JOBS = "/apis/ddpjob.dev/v1alpha2/namespaces/{}/ddpjobs"


def said(kind: str, reason: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = {"type": kind, "status": "True", "reason": reason, "message": reason, "observedGeneration": 1}
    return message | {"lastTransitionTime": now}


def operate(team: Team, over: Event) -> None:
    """Says of each job what an operator would, one step of training in each round."""
    steps: dict[str, int] = {}
    while not over.wait(0.2):
        for job in team.plant.get(JOBS.format(team.namespace))["items"]:
            name, state = job["metadata"]["name"], job.get("status", {}).get("state")
            if state in {"Failed", "Succeeded"}:
                continue
            step, losses = steps.get(name, 0), LOSSES[name.rpartition("-")[2]]
            steps[name] = step + 1
            if job["spec"].get("cancel"):
                team.say(name, state="Failed", reason="Cancelled", conditions=[said("Failed", "Cancelled")])
            elif step < len(losses):
                team.say(name, state="Running", attempt=1, progress={"step": step + 1, "loss": losses[step]})
            elif losses and step > len(losses) + 5:
                team.say(name, state="Succeeded", conditions=[said("Complete", "AllRanksSucceeded")])
            elif not losses:
                team.say(name, state="Failed", conditions=[said("Failed", "MaxRestartsExceeded")])


@pytest.fixture
def team(api: Plant) -> Iterator[Team]:
    over, somebody = Event(), Team(api, api.new_namespace())
    operator = Thread(target=operate, args=(somebody, over))
    operator.start()
    yield somebody
    over.set()
    operator.join()


@pytest.mark.full(
    "an environment with Optuna takes a minute; tests/cluster/test_sdk.py shows that a block cancels its job"
)
def test_optuna_prunes_a_sweep_as_the_page_says(team: Team, tmp_path: Path) -> None:
    programs = projects.environment(tmp_path / "environment")
    projects.install(programs, "optuna")
    (site,) = programs.parent.glob("lib/python*/site-packages")
    (site / "ddpjob.pth").write_text("\n".join(filter(None, sys.path)), encoding="utf-8")
    (sweep,) = (block for block in blocks(PAGES["docs/how-to/sweep-with-optuna.md"]) if block.title == "sweep.py")
    text = sweep.text.replace("nodes=2", f'nodes=2, image="any", namespace="{team.namespace}"')
    (tmp_path / "sweep.py").write_text(text, encoding="utf-8")
    (tmp_path / "train.py").write_text("print(1)\n", encoding="utf-8")
    (tmp_path / "second.py").write_text(text.replace("n_trials=4", "n_trials=2"), encoding="utf-8")
    fails = text.replace("n_trials=4", "n_trials=1").replace("{SWEEP}-{trial.number}", "{SWEEP}-3")
    (tmp_path / "third.py").write_text(fails, encoding="utf-8")
    first, second, third = (
        _printed(programs, tmp_path / f"{name}.py", team) for name in ("sweep", "second", "third")
    )
    shutil.rmtree(programs.parent)
    assert first == ["0 COMPLETE 0.5", "1 COMPLETE 0.3", "2 PRUNED 2.0", "3 FAIL None", "best: 1"]
    assert second == ["0 COMPLETE 0.5", "1 COMPLETE 0.3", "best: 1"], "the names of the first sweep are still taken"
    assert third[0] == "0 FAIL None"
    assert third[1].endswith(" was completed"), "without a traceback"
    jobs = team.plant.get(JOBS.format(team.namespace))["items"]
    cancelled = [job["metadata"]["name"] for job in jobs if job["status"].get("reason") == "Cancelled"]
    assert len(jobs) == 7
    assert [name.rpartition("-")[2] for name in cancelled] == ["2"]


def _printed(programs: Path, script: Path, team: Team) -> list[str]:
    """What a sweep prints of its trials."""
    done = subprocess.run(
        [programs / "python", script.name],
        check=False,
        cwd=script.parent,
        env={**os.environ, "KUBECONFIG": str(team.plant.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=patience(240),
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line[:1].isdecimal() or line.startswith("best:")]
