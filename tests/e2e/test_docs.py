"""The pages that need a cluster are true too: their commands run on real nodes, and print what is shown."""

from pathlib import Path

import pytest

from tests.docs.pages import ON_A_CLUSTER, pages_that_run
from tests.docs.reading import read_with
from tests.support.jobs import Team

TRAINS_TO_ITS_END = "README.md"
"""Read in test_training.py, which looks at what has come of it: once is enough."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in pages_that_run(ON_A_CLUSTER) if name != TRAINS_TO_ITS_END])
def test_the_commands_of_a_page_do_on_a_cluster_what_it_shows(name: str, team: Team, tmp_path: Path) -> None:
    read_with(team, name, tmp_path)
