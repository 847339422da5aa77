"""The tutorial that makes a cluster: its commands run as written, and what it makes is gone at its end."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ON_KIND, pages_that_run
from tests.docs.reader import OF_THE_CLONE, Reader, read


@pytest.mark.timeout(1200)
def test_five_commands_lead_from_nothing_to_a_job_on_a_cluster(kubeconfig: Path, tmp_path: Path) -> None:
    (name,) = pages_that_run(ON_KIND)
    # What the first command exports, the page's shell knows at the others.
    variables = {"KUBECONFIG": str(kubeconfig)}
    read(name, Reader(tmp_path / "ddpjob", ON_KIND, variables, has=(*OF_THE_CLONE, "charts")))
    left = subprocess.run(["kind", "get", "clusters"], capture_output=True, text=True, check=True).stdout
    assert "ddpjob" not in left.split()
