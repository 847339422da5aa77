"""A reader who has the cluster at hand, and does what a page says there."""

import os
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ON_A_CLUSTER, ROOT
from tests.docs.reader import Reader, read
from tests.plant import build
from tests.support.jobs import Team


def read_with(team: Team, name: str, directory: Path, where: str = ON_A_CLUSTER) -> None:
    """Has a page read in the team's namespace; what is not true fails the test, which then tells of the jobs.

    where  which of the page's commands can be run on that cluster
    """
    path = f"{ROOT / '.venv' / 'bin'}:{build.path('kubectl').parent}:{os.environ['PATH']}"
    environment = {"KUBECONFIG": str(_kubeconfig(team, directory)), "PATH": path}
    try:
        read(name, Reader(directory / "ddpjob", where, environment))
    except pytest.fail.Exception:
        print(team.kubectl("get", "ddp,pods", "--output", "yaml"), team.kubectl("get", "events"))
        raise


def _kubeconfig(team: Team, directory: Path) -> Path:
    """The cluster's, for a reader to whom the team's namespace is the one that needs no naming."""
    config = yaml.safe_load(team.kubectl("config", "view", "--raw", "--minify", "--flatten"))
    config["contexts"][0]["context"]["namespace"] = team.namespace
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file
