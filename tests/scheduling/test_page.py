"""The page on sharing a cluster is true: its commands run on a cluster whose scheduler places gangs."""

from pathlib import Path

import pytest

from tests.docs.pages import WITH_POD_GROUPS, pages_that_run
from tests.docs.reading import read_with
from tests.support.jobs import Team


@pytest.mark.full("a page about what test_gangs.py shows")
@pytest.mark.parametrize("name", pages_that_run(WITH_POD_GROUPS))
def test_the_commands_of_a_page_do_on_a_cluster_with_pod_groups_what_it_shows(
    name: str, team: Team, tmp_path: Path
) -> None:
    read_with(team, name, tmp_path, WITH_POD_GROUPS)
