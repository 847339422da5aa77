"""Which changes of files count as a save."""

from itertools import chain, repeat

import pytest
from ddpjob_operator.cli.cluster import saves as module
from ddpjob_operator.cli.cluster.saves import Saves
from ddpjob_operator.client.source import Stamps


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "SHARE", 0)


def seen(*moments: int) -> Saves:
    """Files that change as in `moments`, and then no more."""
    looks = chain(moments, repeat(moments[-1]))

    def look() -> Stamps:
        return {"train.py": (next(looks), 0, 0)}

    return Saves(look)


def test_without_a_change_nothing_was_saved() -> None:
    assert [seen(1).happened() for _ in range(3)] == [False] * 3


def test_changes_that_follow_each_other_at_once_are_one_save() -> None:
    saves = seen(1, 2, 3, 4)
    assert (saves.happened(), saves.happened()) == (True, True)
    saves.wait()
    assert not saves.happened()


def test_a_later_change_is_another_save() -> None:
    saves = seen(1, 2, 2, 2, 3)
    saves.wait()
    assert not saves.happened()
    assert saves.happened()


def test_a_change_that_is_taken_back_before_it_is_seen_whole_is_a_save_too() -> None:
    saves = seen(1, 2, 1)
    assert saves.happened()
