"""The pages that need a cluster are true too: their commands run on real nodes, and print what is shown."""

import os
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ON_A_CLUSTER, ROOT, pages_that_run
from tests.docs.reader import Reader, read
from tests.plant import build
from tests.support.jobs import Team


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", pages_that_run(ON_A_CLUSTER))
def test_the_commands_of_a_page_do_on_a_cluster_what_it_shows(name: str, team: Team, tmp_path: Path) -> None:
    path = f"{ROOT / '.venv' / 'bin'}:{build.path('kubectl').parent}:{os.environ['PATH']}"
    environment = {"KUBECONFIG": str(_kubeconfig(team, tmp_path)), "PATH": path}
    try:
        read(name, Reader(tmp_path / "ddpjob", ON_A_CLUSTER, environment))
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
