"""A script that saves and never loads: what is said when it starts over, and who keeps it from that."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.local.here import BIN, Here
from tests.support.waiting import patience

SUPERVISE = (str(BIN / "ddpjob-supervise"), "--start-method", "cold", "scratch.py")
SCRATCH = """
import os, pathlib, sys, time
import ddpjob

attempt, here = os.environ["DDPJOB_ATTEMPT"], pathlib.Path(__file__).parent
for step in range(1, 1_000_000):
    wild = attempt != "1" and not (here / "calm").exists()
    ddpjob.report(step=step, total=1_000_000, loss=float("nan") if wild else 0.5)
    time.sleep(0.005 if attempt == "1" else 0.05)
    if step % 100 == 0:
        (here / "saved").write_text(f"step {step} of attempt {attempt}")
    if step == 300 and attempt == "1":
        os._exit(7)
    if (here / "done").exists():
        break
"""
NEVER_OVER = {"rules": [{"causes": ["StartedOver"], "action": "Fail"}], "backoffSeconds": 0}


def a_job(here: Here, name: str, **restart: Any) -> Path:
    (here.directory / "scratch.py").write_text(SCRATCH)
    return here.job(name, *SUPERVISE, nodes=1, backend="Gloo", restart={"backoffSeconds": 0, **restart})


def condition(here: Here, name: str, kind: str, status: str = "True") -> str:
    """Waits for a condition; returns its message."""

    def message() -> str | None:
        conditions = here.status(name).get("conditions", [])
        return next((one["message"] for one in conditions if (one["type"], one["status"]) == (kind, status)), None)

    return str(here.wait(f"{kind} {status}", message))


def test_a_script_that_starts_over_and_whose_loss_is_not_a_number_is_told_of_everywhere(here: Here) -> None:
    run = here.start("run", a_job(here, "scratch"))
    said = condition(here, "scratch", "StartedOver")
    assert said.startswith(
        "Attempt 2 started over: its first step is 1, although step 300 had finished before. That loses 300 steps"
    )
    lost = condition(here, "scratch", "LossNotFinite")
    assert re.fullmatch(r"The loss has been NaN since step \d{1,2} or earlier", lost)
    _, text = here.says("status", "scratch")
    assert "loss NaN, " in text
    assert f"1 node running; training started over; t{lost[1:]}" in text
    assert "started over" in next(line for line in text.splitlines() if line.startswith("Progress:"))
    code, _ = here.says("report", "scratch")
    assert code == 0
    (page,) = here.directory.rglob("*.html")
    assert said.split(". ")[0] in page.read_text()
    (here.directory / "calm").touch()
    condition(here, "scratch", "LossNotFinite", "False")
    (here.directory / "done").touch()
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 0, output
    assert output.count("ddpjob: StartedOver: Attempt 2 started over") == 1
    assert output.count(f"ddpjob: LossNotFinite: {lost}") == 1


@pytest.mark.parametrize("mode", ["InPlace", pytest.param("Recreate", marks=pytest.mark.full("its pods are new"))])
def test_where_a_rule_forbids_it_the_job_fails_before_anything_is_replaced(here: Here, mode: str) -> None:
    code, output = here.ddpjob("run", a_job(here, "never", mode=mode, **NEVER_OVER))
    assert code == 1, output
    assert "Failed. Attempt 2 started over" in output
    assert "(spec.restart.rules[0] says Fail)" in output
    status = here.status("never")
    assert (status["reason"], status["restarts"]) == ("StartedOver", 1)
    assert [one["cause"] for one in status["incidents"]] == ["StartedOver", "Application"]
    assert (here.directory / "saved").read_text() == "step 300 of attempt 1"
    assert here.processes("never") == []


def test_without_an_operator_the_supervisor_says_it(tmp_path: Path) -> None:
    ends = SCRATCH.replace("step % 100 == 0", "step == 40 and attempt == '2'").replace('"saved"', '"done"')
    (tmp_path / "scratch.py").write_text(ends)
    ended = subprocess.run(
        [SUPERVISE[0], "--max-restarts", "1", *SUPERVISE[1:-1], SUPERVISE[-1]],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    said = "attempt 2 started over: its first step is 1, although step 300 had finished before. That loses 300 steps"
    assert ended.stderr.count(f"warning: {said}") == 1, ended.stderr
