"""Runs are found by their name from any directory."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.local.registry import (
    Runs,
    all_runs,
    find_run,
    known_runs,
    names_in_use,
    register,
    registered,
    registry,
    unregister,
)
from ddpjob_operator.local.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def _own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(runs: Path, name: str) -> RunDirectory:
    directory = RunDirectory(runs / name)
    directory.create()
    directory.job_file.write_text("{}")
    register(directory)
    return directory


def test_a_run_is_found_by_its_name_from_any_directory(tmp_path: Path) -> None:
    train = run(tmp_path / "a", "train")
    assert find_run(Runs(tmp_path / "elsewhere"), "train") == train
    assert find_run(Runs(tmp_path / "elsewhere"), None) == train
    run(tmp_path / "b", "other")
    assert find_run(Runs(tmp_path / "b"), "train") == train
    assert names_in_use(tmp_path / "b") == {"train", "other"}


def test_a_run_of_this_directory_comes_before_others_of_its_name(tmp_path: Path) -> None:
    here, there = run(tmp_path / "a", "train"), run(tmp_path / "b", "train")
    assert find_run(Runs(tmp_path / "a"), "train") == here
    assert find_run(Runs(tmp_path / "b"), "train") == there
    assert known_runs(Runs(tmp_path / "a")) == [here]
    with pytest.raises(
        BadInputError, match=r"several runs named train; say which with --run-dir and one of .*/a, .*/b"
    ):
        find_run(Runs(tmp_path / "elsewhere"), "train")


def test_in_a_directory_that_is_named_no_other_run_is_found(tmp_path: Path) -> None:
    run(tmp_path / "a", "train")
    empty, here = Runs(tmp_path / "empty", named=True), Runs(tmp_path / "b", named=True)
    empty.directory.mkdir()
    for name, message in {
        "train": "no run named train under .*/empty$",
        None: "no runs under .*/empty; start",
    }.items():
        with pytest.raises(BadInputError, match=message):
            find_run(empty, name)
    assert (known_runs(empty), all_runs(empty)) == ([], [])
    other = run(here.directory, "other")
    with pytest.raises(BadInputError, match=r"no run named train under .*/b; there is other$"):
        find_run(here, "train")
    assert (find_run(here, "other"), find_run(here, None), all_runs(here)) == (other, other, [other])


def test_where_there_are_several_runs_one_has_to_be_named(tmp_path: Path) -> None:
    for name in "ab":
        run(tmp_path, name)
    with pytest.raises(BadInputError, match=r"^which run\? "):
        find_run(Runs(tmp_path), None)


def test_a_directory_that_is_named_exists(tmp_path: Path) -> None:
    run(tmp_path / "a", "train")
    nowhere = Runs(tmp_path / "nowhere", named=True)
    for look in (known_runs, all_runs, partial(find_run, name="train"), partial(find_run, name=None)):
        with pytest.raises(BadInputError, match=r"^--run-dir .*/nowhere: there is no such directory$"):
            look(nowhere)


def test_a_run_that_was_removed_is_forgotten(tmp_path: Path) -> None:
    train = run(tmp_path / "a", "train")
    register(train)
    assert [*registered()] == [train]
    shutil.rmtree(train.root)
    assert [*registered()] == []
    assert names_in_use(tmp_path / "a") == frozenset()
    with pytest.raises(BadInputError, match="no runs under"):
        find_run(Runs(tmp_path / "a"), "train")


def test_a_run_is_forgotten_also_before_its_directory_is_gone(tmp_path: Path) -> None:
    train, other = run(tmp_path / "a", "train"), run(tmp_path / "a", "other")
    unregister(train)
    assert [*registered()] == [other]


def test_where_nothing_can_be_registered_a_run_is_found_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    train = run(tmp_path / "a", "train")
    assert find_run(Runs(tmp_path / "a"), "train") == train
    assert [*registered()] == []


def test_of_two_that_begin_one_run_only_one_gets_it(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "train")
    lock = directory.claim()
    assert lock is not None
    assert directory.claim() is None
    lock.release()
    directory.job_file.write_text("{}")
    assert directory.claim() is None


def test_a_run_that_is_gone_hides_no_other_and_two_who_look_at_once_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run(tmp_path, name) for name in ("a", "b", "c")]
    runs[0].root.rename(tmp_path / "moved")
    unlink = Path.unlink

    def another_was_first(link: Path, *, missing_ok: bool = False) -> None:
        unlink(link)
        unlink(link, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", another_was_first)
    assert [*registered()] == runs[1:]
    assert len([*registry().iterdir()]) == 2
