"""Where the evidence of a stall is kept."""

import asyncio
import os
import stat
import tempfile
from pathlib import Path

import pytest
from ddpjob_supervisor.watch import evidence
from ddpjob_supervisor.watch.evidence import ATTEMPTS_KEPT, directories

from tests.support.waiting import patience


def test_beside_no_checkpoints_it_is_kept_where_nobody_else_can_lay_anything_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (directory,) = directories({})
    assert stat.S_IMODE(directory.stat().st_mode) == stat.S_IRWXU
    assert list(directories({})) == [directory], "the attempts of one supervisor stand beside each other"
    assert list(directories({"DDPJOB_CHECKPOINT_DIR": "/saved"})) == [Path("/saved/stalls"), directory]
    assert list(directories({"DDPJOB_CHECKPOINT_DIR": "s3://bucket/saved"})) == [directory]
    assert list(directories({"DDPJOB_RUN_DIR": "/run"})) == [Path("/run/stalls"), directory]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DDPJOB_CHECKPOINT_DIR", "DDPJOB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path / "here"))
    (theirs := tmp_path / "theirs").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "stalls").symlink_to(theirs)
    monkeypatch.setattr(evidence, "_own", lambda _: tmp_path / "own")
    evidence._write(b"", 1, "rank-0.txt", "what it did")
    assert list(theirs.iterdir()) == []
    assert (tmp_path / "own" / "attempt-1" / "rank-0.txt").exists()


def test_each_rank_of_each_attempt_has_its_own_place_and_only_the_last_attempts_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path))
    attempts = range(1, ATTEMPTS_KEPT + 4)

    async def keep_all() -> None:
        for attempt in attempts:
            await evidence.keep_ras(f"ras of {attempt}", attempt)
            for rank in range(3):
                await evidence.keep(f"story of {attempt}/{rank}", attempt, rank)
                await evidence.keep_recording(f"dump of {attempt}/{rank}".encode(), attempt, rank)
            os.utime(tmp_path / "stalls" / f"attempt-{attempt}", (attempt, attempt))

    monkeypatch.setattr(evidence, "WRITE_SECONDS", patience(10))
    asyncio.run(keep_all())
    last = attempts[-ATTEMPTS_KEPT:]
    texts = {file: file.read_text() for file in (tmp_path / "stalls").glob("*/*")}
    assert texts == {
        tmp_path / "stalls" / f"attempt-{attempt}" / name: text
        for attempt in last
        for name, text in (
            ("ras.txt", f"ras of {attempt}\n"),
            *((f"rank-{rank}.txt", f"story of {attempt}/{rank}") for rank in range(3)),
            *((f"trace-{rank}", f"dump of {attempt}/{rank}") for rank in range(3)),
        )
    }


def test_where_no_directory_can_be_made_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert list(directories({})) == []


def test_where_nothing_can_be_written_the_next_place_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DDPJOB_CHECKPOINT_DIR", str(tmp_path / "file"))  # No directory can be made in it.
    monkeypatch.setenv("DDPJOB_RUN_DIR", str(tmp_path / "run"))
    evidence._write(b"it waits", 2, "rank-0.txt", "what it did")
    kept = tmp_path / "run" / "stalls" / "attempt-2" / "rank-0.txt"
    assert kept.read_bytes() == b"it waits"
    assert f"saved what it did to {kept}\n" in capsys.readouterr().err
    assert [path.name for path in kept.parent.iterdir()] == ["rank-0.txt"]
