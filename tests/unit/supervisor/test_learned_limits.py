"""What a job has learned of its pauses is kept beside the stacks of its stalls."""

import asyncio
from pathlib import Path

import pytest
from ddpjob_rank.limits import Learned
from ddpjob_supervisor.watch import learned_limits

LEARNED = Learned(stalls=2, longest=540.0)


@pytest.fixture(autouse=True)
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path))
    return tmp_path


def test_what_was_learned_is_recalled_by_the_same_job_only() -> None:
    asyncio.run(learned_limits.keep(LEARNED, "a"))
    assert asyncio.run(learned_limits.recall("a")) == LEARNED
    assert asyncio.run(learned_limits.recall("b")) == Learned()


def test_without_a_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_CHECKPOINT_DIR")
    monkeypatch.delenv("DDPJOB_RUN_DIR", raising=False)
    asyncio.run(learned_limits.keep(LEARNED, "a"))
    assert asyncio.run(learned_limits.recall("a")) == Learned()


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
    ],
)
def test_a_file_that_holds_something_else_says_nothing(text: str, checkpoints: Path) -> None:
    (checkpoints / "stalls").mkdir()
    (checkpoints / "stalls" / "patience.json").write_text(text)
    assert asyncio.run(learned_limits.recall("a")) == Learned()


def test_a_link_in_its_place_is_not_followed(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs = tmp_path_factory.mktemp("theirs")
    (checkpoints / "stalls").symlink_to(theirs)
    asyncio.run(learned_limits.keep(LEARNED, "a"))
    assert list(theirs.iterdir()) == []
