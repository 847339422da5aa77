"""Whose code a file is, from its path."""

import pytest
from ddpjob_operator.sdk.functions import SCRIPT
from ddpjob_rank.failure.whose import starts_programs


@pytest.mark.parametrize("file", [SCRIPT, f"/code/{SCRIPT}", "/x/site-packages/ddpjob_supervisor/main.py"])
def test_what_starts_a_program_is_known_whether_its_path_is_relative_or_not(file: str) -> None:
    assert starts_programs(file)


@pytest.mark.parametrize("file", [f"my_{SCRIPT}", f"/code/my_{SCRIPT}", "/code/train.py"])
def test_a_script_of_the_users_does_not_start_programs(file: str) -> None:
    assert not starts_programs(file)
