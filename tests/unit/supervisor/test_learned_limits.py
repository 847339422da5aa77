"""What a job has learned of its pauses is kept beside the stacks of its stalls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.limits import Learned
from ddpjob_supervisor.watch import learned_limits

LEARNED = Learned(stalls=2, longest=540.0, first_step=200.0)
START = learned_limits.kind_of_start("image:1", (2, 4), "Warm", ["train.py", "--compile"])


@pytest.fixture(autouse=True)
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path))
    return tmp_path


def test_what_was_learned_is_recalled_by_the_same_job_only() -> None:
    asyncio.run(learned_limits.keep(LEARNED, "a", START))
    assert asyncio.run(learned_limits.recall("a", START)) == LEARNED
    assert asyncio.run(learned_limits.recall("b", START)) == Learned()


@pytest.mark.parametrize(
    "other",
    [
        ("image:2", (2, 4), "Warm", ["train.py", "--compile"]),
        ("image:1", (4, 4), "Warm", ["train.py", "--compile"]),
        ("image:1", (2, 8), "Warm", ["train.py", "--compile"]),
        ("image:1", (2, 4), "Cold", ["train.py", "--compile"]),
        ("image:1", (2, 4), "Warm", ["train.py"]),
    ],
    ids=["image", "nodes", "processes", "start method", "arguments"],
)
def test_of_the_first_step_nothing_is_learned_from_another_kind_of_start(other: Any) -> None:
    asyncio.run(learned_limits.keep(LEARNED, "a", learned_limits.kind_of_start(*other)))
    assert asyncio.run(learned_limits.recall("a", START)) == Learned(stalls=2, longest=540.0)


def test_a_file_of_a_release_that_did_not_know_first_steps_is_read(checkpoints: Path) -> None:
    (checkpoints / "stalls").mkdir()
    (checkpoints / "stalls" / "patience.json").write_text('{"uid": "a", "stalls": 2, "longest": 540.0}')
    assert asyncio.run(learned_limits.recall("a", START)) == Learned(stalls=2, longest=540.0)


def test_without_a_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_CHECKPOINT_DIR")
    monkeypatch.delenv("DDPJOB_RUN_DIR", raising=False)
    asyncio.run(learned_limits.keep(LEARNED, "a", START))
    assert asyncio.run(learned_limits.recall("a", START)) == Learned()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 4000,
        '{"uid": "a"}',
        '{"uid": "a", "stalls": [], "longest": 1}',
        '{"uid": "a", "stalls": 1000000, "longest": 1}',
        '{"uid": "a", "stalls": 1, "longest": NaN}',
        '{"uid": "a", "stalls": 1, "longest": -1}',
        f'{{"uid": "a", "stalls": 1, "longest": 1, "start": "{START}", "first_step": NaN}}',
    ],
)
def test_a_file_that_holds_something_else_says_nothing(text: str, checkpoints: Path) -> None:
    (checkpoints / "stalls").mkdir()
    (checkpoints / "stalls" / "patience.json").write_text(text)
    assert asyncio.run(learned_limits.recall("a", START)) == Learned()


def test_a_link_in_its_place_is_not_followed(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs = tmp_path_factory.mktemp("theirs")
    (checkpoints / "stalls").symlink_to(theirs)
    asyncio.run(learned_limits.keep(LEARNED, "a", START))
    assert list(theirs.iterdir()) == []
