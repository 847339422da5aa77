"""The pages on sharing a cluster are true: their commands run where the scheduler places gangs, or with Kueue."""

from pathlib import Path

import pytest

from tests.docs.pages import WITH_KUEUE, WITH_POD_GROUPS, pages_that_run
from tests.docs.reading import read_with
from tests.support.jobs import Team


@pytest.mark.full("a page about what test_gangs.py shows")
@pytest.mark.parametrize("name", pages_that_run(WITH_POD_GROUPS))
def test_the_commands_of_a_page_do_on_a_cluster_with_pod_groups_what_it_shows(
    name: str, team: Team, tmp_path: Path
) -> None:
    read_with(team, name, tmp_path, WITH_POD_GROUPS)


@pytest.mark.full("a page about what test_kueue.py shows")
@pytest.mark.parametrize("name", pages_that_run(WITH_KUEUE))
def test_the_commands_of_a_page_do_on_a_cluster_with_kueue_what_it_shows(
    name: str, queue_team: Team, tmp_path: Path
) -> None:
    read_with(queue_team, name, tmp_path, WITH_KUEUE)
