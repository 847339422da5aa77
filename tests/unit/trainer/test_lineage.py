"""Which of two checkpoints is the newer one, and what a process of an earlier attempt may do to a later one's."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpjob.checkpoint import checkpoint_directory as checkpoint
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.content import Sink
from ddpjob_rank.errors import CheckpointUnusableError, SupersededError
from ddpjob_rank.manifests.manifest import GREATEST, Manifest, extended_lineage, new_run, read_manifest

Save = tuple[int, int]
"""Attempt and step."""

EARLIER, LATER = "2026-11-24T09:00", "2026-11-24T10:00"
"""Two runs."""


def manifest(attempt: int, step: int, run: str = "") -> Manifest:
    return Manifest(
        step=step,
        epoch=1,
        samples=step,
        worldSize=2,
        globalBatchSize=64,
        uid="uid",
        lineage=tuple(range(attempt + 1)),
        run=run,
    )


def put(directory: Path, *saves: Save) -> None:
    """Puts checkpoints in place, whatever order they are in: as if nobody had minded."""
    for attempt, step in saves:
        apart = directory.with_name(f"{directory.name}-{attempt}-{step}")
        write(CheckpointDirectory(apart, keep=1), attempt, step)
        directory.mkdir(exist_ok=True)
        (apart / f"step-{step:08}").rename(directory / f"step-{step:08}")
        shutil.rmtree(apart)


def write(checkpoints: CheckpointDirectory, attempt: int, step: int) -> None:
    checkpoints.write(manifest(attempt, step), lambda file: file.write(f"{attempt}/{step}".encode()))


def saves(directory: Path) -> list[Save]:
    manifests = [read_manifest(path) for path in directory.iterdir()]
    return sorted((manifest.attempt, manifest.step) for manifest in manifests)


@pytest.mark.parametrize(
    ("there", "newest"),
    [
        ([(1, 100), (1, 120)], (1, 120)),
        ([(1, 120), (2, 130)], (2, 130)),
        ([(1, 120), (2, 130), (1, 150)], (2, 130)),
        ([(3, 90), (1, 120), (2, 130)], (3, 90)),
        ([(9, 10), (10, 5)], (10, 5)),
    ],
    ids=["one attempt", "two", "a late one's is further", "back twice", "by number"],
)
def test_the_newest_is_of_the_latest_attempt_then_of_the_latest_step(
    tmp_path: Path, there: list[Save], newest: Save
) -> None:
    put(tmp_path / "saved", *there)
    found = CheckpointDirectory(tmp_path / "saved", keep=3).newest(decode=Path.read_bytes)
    assert found
    assert found.state.decode() == "{}/{}".format(*newest)


def test_if_the_latest_attempts_are_broken_the_one_before_counts(tmp_path: Path) -> None:
    put(tmp_path / "saved", (1, 120), (2, 130), (1, 150))
    (tmp_path / "saved/step-00000130/state.pt").unlink()
    found = CheckpointDirectory(tmp_path / "saved", keep=3).newest(decode=Path.read_bytes)
    assert found
    assert (found.manifest.attempt, found.manifest.step) == (1, 150)


LAST = GREATEST - 1


@pytest.mark.parametrize(
    ("lineage", "attempt", "newest", "extended_by"),
    [
        ((), 0, -1, 0),
        ((), 4, -1, 4),
        ((1,), 2, 1, 2),
        ((1, 2), 7, 2, 7),
        ((0,), 0, 0, 1),
        ((4, 5), 1, 5, 6),
        ((4,), 1, 5, 6),
        ((), 1, 5, 6),
        ((LAST,), 1, LAST, LAST),
    ],
    ids=[
        "a first start",
        "a first save after vain attempts",
        "the next attempt",
        "attempts between saved nothing",
        "nobody counts attempts",
        "a recreated job counts from 1",
        "the newest is broken",
        "all are broken",
        "somebody wrote the last attempt that can be read",
    ],
)
def test_a_lineage_ascends(lineage: tuple[int, ...], attempt: int, newest: int, extended_by: int) -> None:
    assert extended_lineage(lineage, attempt, newest) == (*lineage, extended_by)


@pytest.mark.parametrize(
    ("there", "written", "stay"),
    [
        ([(1, 100), (1, 110), (1, 120)], (1, 130), [(1, 120), (1, 130)]),
        ([(1, 100), (1, 110), (1, 120)], (2, 115), [(1, 110), (1, 120), (2, 115)]),
        ([(1, 100), (1, 120), (1, 150)], (2, 130), [(1, 120), (1, 150), (2, 130)]),
        ([(1, 120), (1, 150), (2, 130)], (2, 150), [(2, 130), (2, 150)]),
        ([(1, 120), (1, 155), (2, 150)], (2, 160), [(2, 150), (2, 160)]),
    ],
    ids=[
        "the oldest goes",
        "one that was passed over stays, and counts for none",
        "so does a late one's",
        "until its step is saved anew",
        "or the line has passed its step",
    ],
)
def test_the_newest_two_of_a_line_stay(tmp_path: Path, there: list[Save], written: Save, stay: list[Save]) -> None:
    put(tmp_path / "saved", *there)
    write(CheckpointDirectory(tmp_path / "saved", keep=2), *written)
    assert saves(tmp_path / "saved") == stay


@pytest.mark.parametrize("step", [125, 130, 140], ids=["before", "the very step", "after"])
def test_a_late_process_writes_nothing_once_a_later_attempt_has_saved(tmp_path: Path, step: int) -> None:
    late = CheckpointDirectory(tmp_path, keep=1)
    write(late, 1, 120)
    write(CheckpointDirectory(tmp_path, keep=3), 2, 130)
    with pytest.raises(
        SupersededError, match=f"a later run has taken over {tmp_path}: .* of attempt 2, .* attempt 1"
    ):
        late.write(manifest(1, step), encode=pytest.fail)
    assert saves(tmp_path) == [(1, 120), (2, 130)]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("step", [10, 30], ids=["the very step", "after"])
def test_of_two_runs_of_one_attempt_the_one_that_began_later_counts(tmp_path: Path, step: int) -> None:
    checkpoints = CheckpointDirectory(tmp_path, keep=3)
    for run, saved in ((EARLIER, 20), (LATER, 10)):
        checkpoints.write(manifest(1, saved, run), lambda file, run=run: file.write(run.encode()))  # type: ignore[misc]
    found = checkpoints.newest(decode=Path.read_bytes)
    assert found
    assert (found.state.decode(), found.manifest.step) == (LATER, 10)
    with pytest.raises(SupersededError, match=f"attempt 1 of run {LATER}, and this is attempt 1 of run {EARLIER}"):
        checkpoints.write(manifest(1, step, EARLIER), encode=pytest.fail)


def test_a_run_that_begins_later_has_a_greater_name() -> None:
    names = [new_run() for _ in range(20)]
    assert names == sorted(names)


def meanwhile(of: Save, checkpoints: CheckpointDirectory, comes: Save) -> Callable[[Sink], object]:
    """Writes a state, and before it is done another process saves."""

    def encode(file: Sink) -> None:
        file.write("{}/{}".format(*of).encode())
        write(checkpoints, *comes)

    return encode


@pytest.mark.parametrize("step", [130, 150], ids=["the very step", "another"])
def test_a_later_attempt_that_saves_while_a_late_process_writes_wins(tmp_path: Path, step: int) -> None:
    late, later = CheckpointDirectory(tmp_path, keep=1), CheckpointDirectory(tmp_path, keep=1)
    with pytest.raises(SupersededError):
        late.write(manifest(1, step), meanwhile((1, step), later, (2, 130)))
    assert saves(tmp_path) == [(2, 130)]


@pytest.mark.parametrize("step", [130, 150], ids=["the very step", "another"])
def test_a_late_process_that_saves_while_a_later_attempt_writes_takes_nothing_from_it(
    tmp_path: Path, step: int
) -> None:
    late, later = CheckpointDirectory(tmp_path, keep=1), CheckpointDirectory(tmp_path, keep=1)
    later.write(manifest(2, 130), meanwhile((2, 130), late, (1, step)))
    found = CheckpointDirectory(tmp_path, keep=1).newest(decode=Path.read_bytes)
    assert found
    assert found.state == b"2/130"
    assert saves(tmp_path) == ([(2, 130)] if step == 130 else [(1, 150), (2, 130)])


@pytest.mark.parametrize("saved_by", ["put in place", "set aside"])
def test_a_later_attempt_that_saves_the_very_step_in_the_last_moment_is_not_displaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_by: str
) -> None:
    late, later = CheckpointDirectory(tmp_path, keep=1), CheckpointDirectory(tmp_path, keep=1)
    rename, path = Path.rename, tmp_path / "step-00000130"

    def rename_after_another(old: Path, new: Path) -> Path:
        if path == {"put in place": new, "set aside": old}[saved_by]:
            monkeypatch.setattr(Path, "rename", rename)
            if saved_by == "set aside":
                shutil.rmtree(path)
            write(later, 2, 130)
        return rename(old, new)

    if saved_by == "set aside":
        write(late, 1, 130)
    monkeypatch.setattr(Path, "rename", rename_after_another)
    with pytest.raises(SupersededError):
        write(late, 1, 130 if saved_by == "put in place" else 140)
    assert (2, 130) in saves(tmp_path)


def test_a_late_process_that_has_just_saved_removes_nothing_of_a_later_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, later = CheckpointDirectory(tmp_path, keep=1), CheckpointDirectory(tmp_path, keep=2)
    sync = checkpoint.sync

    def sync_and_let_another_save(directory: Path) -> None:
        if directory == tmp_path:
            monkeypatch.setattr(checkpoint, "sync", sync)
            write(later, 2, 130)
            write(later, 2, 140)

    monkeypatch.setattr(checkpoint, "sync", sync_and_let_another_save)
    write(late, 1, 150)
    assert saves(tmp_path) == [(1, 150), (2, 130), (2, 140)]


def test_a_late_process_whose_unfinished_file_is_cleaned_up_is_told_that_it_is_late(tmp_path: Path) -> None:
    def interrupted(file: Sink) -> None:
        file.write(b"half")
        CheckpointDirectory(tmp_path, keep=1)

    late = CheckpointDirectory(tmp_path, keep=1)
    with pytest.raises(SupersededError, match="it has removed the checkpoint that this run was writing"):
        late.write(manifest(1, 130), interrupted)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_without_a_writer_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "saved", (1, 120))
    path = tmp_path / "saved/step-00000120/manifest.json"
    path.write_text(path.read_text().replace("0,\n  1", ""))
    with pytest.raises(CheckpointUnusableError):
        CheckpointDirectory(tmp_path / "saved", keep=1).newest(decode=Path.read_bytes)
    assert "manifest.json is damaged (its lineage is empty)" in capsys.readouterr().err
