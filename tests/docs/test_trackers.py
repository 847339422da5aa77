"""The pages on trackers are true: a rank is killed, and then each step is in one run, once."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, WITH_A_TRACKER, blocks
from tests.docs.reader import Reader, read
from tests.docs.wandb_server import WandbServer
from tests.local.here import Here
from tests.support.waiting import patience
from tests.wheel.projects import UV

WANDB = "docs/how-to/log-to-wandb.md"
STEPS = list(range(1, 201))
"""What the scripts of the pages log."""

pytestmark = [
    pytest.mark.full("packages from an index; test_pages.py checks which variables the scripts of the pages use"),
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize(
    ("page", "packages"),
    [
        ("docs/how-to/log-to-mlflow.md", ("mlflow-skinny", "sqlalchemy", "alembic")),
        ("docs/how-to/log-to-tensorboard.md", ("tensorboard",)),
    ],
)
def test_a_job_that_restarts_is_one_run_with_each_step_once(
    page: str, packages: tuple[str, ...], tmp_path: Path
) -> None:
    read(page, Reader(tmp_path / "ddpjob", WITH_A_TRACKER, installed(tmp_path / "packages", *packages)))


def test_the_newest_folder_of_wandb_has_each_step_once(tmp_path: Path) -> None:
    environment = installed(tmp_path / "packages", "wandb")
    reader = Reader(tmp_path / "ddpjob", WITH_A_TRACKER, environment)
    read(WANDB, reader)
    folders = reader.directory / "ddpjob-runs/train/volumes/checkpoints/wandb"
    assert len(list(folders.glob("offline-run-*"))) == 2
    with WandbServer() as server:
        variables = os.environ | environment | server.variables
        command = ["wandb", "sync", "latest-run"]
        subprocess.run(command, check=True, cwd=folders, env=variables, timeout=patience(120))
        uid = json.loads((reader.directory / "ddpjob-runs/train/job.json").read_text())["metadata"]["uid"]
        assert server.names == {uid: ("train", "default")}
        assert server.steps(uid) == STEPS


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path / "here")
    place.directory.mkdir()
    yield place
    place.end()


def test_a_run_that_wandb_has_a_part_of_goes_on_with_the_step_that_it_lacks(here: Here, tmp_path: Path) -> None:
    (script,) = (block.text for block in blocks(PAGES[WANDB]) if block.title == "train.py")
    (here.directory / "train.py").write_text(script.replace("sleep(0.02)", "sleep(0.1)"))
    with WandbServer() as server:
        environment = installed(tmp_path / "packages", "wandb") | server.variables
        run = here.start("run", "train.py", "--procs-per-node", "2", **environment)
        here.wait("a part of the run", lambda: any(len(lines) > 60 for lines in server.history.values()))
        ranks = dict(re.findall(r"rank (\d) is process pid=(\d+)", here.log("train", 0)))
        os.kill(int(ranks["0"]), signal.SIGKILL)
        output, _ = run.communicate(timeout=patience(240))
        assert run.returncode == 0, output
        assert "resumed step=50 " in output
        assert "less than the current step" not in output, "wandb warns of steps that it has"
        ((uid, (name, group)),) = server.names.items()
        assert (name, group) == ("train", "default")
        assert server.steps(uid) == STEPS
        assert {line["attempt"] for line in server.history[uid]} == {1, 2}


def installed(directory: Path, *packages: str) -> dict[str, str]:
    """Installs packages into a directory, and gives the variables with which programs find them beside ours."""
    command = [UV, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(directory)]
    subprocess.run([*command, *packages], check=True)
    path = f"{directory / 'bin'}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    return {"PYTHONPATH": str(directory), "PATH": path}
