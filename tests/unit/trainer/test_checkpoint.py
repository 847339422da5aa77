"""Checkpoints as files: whole or not there, and a broken one is passed over."""

import errno
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob.checkpoint import content
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.content import Sink
from ddpjob.checkpoint.reading import FILES, find_newest
from ddpjob_rank.errors import (
    CheckpointUnusableError,
    ConfigError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
    SupersededError,
    TrainerError,
)
from ddpjob_rank.manifests import manifest as manifests
from ddpjob_rank.manifests.manifest import Manifest, checkpoints_in

WRITER = """
import sys
import time
from pathlib import Path
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob_rank.manifests.manifest import Manifest
checkpoints = CheckpointDirectory(Path(sys.argv[1]), keep=2)
found = checkpoints.newest(decode=Path.read_bytes)
step = found.manifest.step if found else 0
while True:
    step += 1
    state = step.to_bytes(4, "big") * 500_000
    checkpoints.write(Manifest(step, 1, step, 2, 64, "uid", (1,)), lambda file: file.write(state))
    print(step, flush=True)
"""
KILLS = 8
TRACED = ("/content.py", "/checkpoint_directory.py", "/checkpoint_storage.py")


def manifest(step: int) -> Manifest:
    return Manifest(step=step, epoch=1, samples=step * 64, worldSize=2, globalBatchSize=64, uid="uid", lineage=(1, 2))


def state(written: bytes) -> Callable[[Sink], object]:
    return lambda file: file.write(written)


def write(directory: Path, *steps: int, keep: int = 3) -> CheckpointDirectory:
    checkpoints = CheckpointDirectory(directory, keep)
    for step in steps:
        checkpoints.write(manifest(step), state(f"state {step}".encode()))
    return checkpoints


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def newest_step(directory: Path, *, start_over: bool = False) -> int | None:
    found = CheckpointDirectory(directory, keep=3).newest(Path.read_bytes, start_over=start_over, retry_seconds=0.0)
    return found.manifest.step if found else None


def test_what_is_written_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, 120)
    found = path.newest(decode=Path.read_bytes)
    assert found
    assert (Path(found.location).name, found.state) == ("step-00000120", b"state 120")
    assert (found.manifest.step, found.manifest.samples, found.manifest.lineage) == (120, 7680, (1, 2))


def test_the_manifest_says_what_the_checkpoint_is(tmp_path: Path) -> None:
    write(tmp_path, 120)
    written = json.loads((tmp_path / "step-00000120" / "manifest.json").read_text())
    assert list(written) == [
        *("program", "step", "epoch", "samples", "worldSize", "globalBatchSize", "uid"),
        *("lineage", "arguments", "run", "ancestors", "seed", "dataLength", "dataFingerprint"),
        *("savedAt", "size", "sha256", "shards", "format"),
    ]


def test_a_checkpoint_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def noted_rename(path: Path, target: Path) -> Path:
        done.append(f"{target.name} named")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    write(tmp_path, 120)
    named = done.index("step-00000120 named")
    assert {"state.pt", "manifest.json"} <= set(done[:named]), done
    assert tmp_path.name in done[named:], done


def test_an_empty_directory_has_no_checkpoint_and_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert newest_step(tmp_path / "new") is None
    assert capsys.readouterr().err == ""


def test_only_the_newest_stay_and_by_number_not_by_name(tmp_path: Path) -> None:
    write(tmp_path, 5, 99_999_999, keep=3)
    write(tmp_path, 100_000_000, 100_000_001, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-100000000",
        "step-100000001",
        "step-99999999",
    ]
    assert newest_step(tmp_path) == 100_000_001


def replace_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "it has no manifest.json"),
    "no state": (lambda path: (path / "state.pt").unlink(), "it has no state.pt"),
    "torn manifest": (lambda path: os.truncate(path / "manifest.json", 40), "manifest.json is damaged"),
    "empty manifest": (lambda path: put(path / "manifest.json", ""), "manifest.json is damaged"),
    "short state": (lambda path: os.truncate(path / "state.pt", 5), "state.pt has 5 bytes, its manifest says 9"),
    "long state": (lambda path: put(path / "state.pt", "state 120+"), "state.pt has 10 bytes, its manifest says 9"),
    "another state": (lambda path: put(path / "state.pt", "state 121"), "the checksum of state.pt"),
    "a loop of links": (lambda path: put_link(path / "state.pt"), "state.pt is not a regular file"),
    "not a directory": (replace_by_file, "it is not a directory"),
}


def put(path: Path, text: str) -> None:
    path.write_text(text)


def put_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint_is_passed_over_with_a_warning_for_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    break_it, reason = DAMAGES[damage]
    write(tmp_path, 60, 120)
    break_it(tmp_path / "step-00000120")
    assert newest_step(tmp_path) == 60
    warning = capsys.readouterr().err
    assert warning.startswith(f"warning: checkpoint {tmp_path}/step-00000120 is passed over: ")
    assert reason in warning


def newer_format(path: Path) -> None:
    manifest = path / "manifest.json"
    put(manifest, json.dumps(json.loads(manifest.read_text()) | {"format": 3}))


def test_one_of_a_newer_format_stops_all_until_its_version_comes_back(tmp_path: Path) -> None:
    write(tmp_path, 60, 120, 180)
    newer_format(tmp_path / "step-00000120")
    os.truncate(tmp_path / "step-00000180" / "state.pt", 0)
    with pytest.raises(CheckpointUnusableError, match=r"step-00000120 cannot be used: its format is 3, .* reads 1"):
        newest_step(tmp_path)
    assert names(tmp_path) == ["step-00000060", "step-00000120", "step-00000180"], "not even the broken one is moved"
    assert newest_step(tmp_path, start_over=True) == 60
    write(tmp_path, 80, 100, 120, 140, keep=1)
    assert names(tmp_path) == ["step-00000120", "step-00000140", "step-00000180.broken"], "it is never removed"


def test_a_whole_state_that_this_version_cannot_load_is_a_newer_ones(tmp_path: Path) -> None:
    def load(file: Path) -> None:
        if file.read_bytes() == b"state 120":
            raise ValueError("not a state of this version")

    with pytest.raises(CheckpointUnusableError, match=r"is whole, but .* not a state of this version"):
        write(tmp_path, 60, 120).newest(decode=load)


def test_if_all_are_broken_nothing_starts_unless_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 60)
    os.truncate(tmp_path / "step-00000060" / "state.pt", 0)
    for _ in range(2):
        with pytest.raises(CheckpointUnusableError, match=r"no checkpoint in .* step-00000060.* --start-over"):
            newest_step(tmp_path)
    assert names(tmp_path) == ["step-00000060"]
    assert newest_step(tmp_path, start_over=True) is None
    assert "training starts from the beginning" in capsys.readouterr().err
    assert names(tmp_path) == ["step-00000060.broken"]
    with pytest.raises(CheckpointUnusableError):
        newest_step(tmp_path)


def test_a_broken_one_is_set_aside_and_leaves_its_name_to_the_next(tmp_path: Path) -> None:
    write(tmp_path, 60, 120)
    os.truncate(tmp_path / "step-00000120" / "state.pt", 0)
    assert newest_step(tmp_path) == 60
    write(tmp_path, 120, keep=1)
    assert newest_step(tmp_path) == 120
    assert names(tmp_path) == ["step-00000120", "step-00000120.broken"]


@pytest.mark.parametrize("broken", [("state.pt", 0), ("manifest.json", 40)], ids=["no state", "a torn manifest"])
def test_after_fifty_restarts_each_of_which_finds_a_broken_one_no_more_than_twice_as_many_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, int]
) -> None:
    file, size = broken
    monkeypatch.setattr(os, "fsync", lambda _: None)  # A thousand times; what it is for is another test's.
    keep = 3
    write(tmp_path, 10, 20, keep=keep)
    for restart in range(2, 52):
        os.truncate(tmp_path / f"step-{restart * 10:08}" / file, size)
        assert newest_step(tmp_path) == restart * 10 - 10
        write(tmp_path, restart * 10, restart * 10 + 10, keep=keep)
        assert len(names(tmp_path)) <= 2 * keep
    assert [name for name in names(tmp_path) if "broken" in name] == [
        f"step-{step:08}.broken" for step in (490, 500, 510)
    ]


FOREIGN: dict[str, Callable[[Path], object]] = {
    "somebody's weights": lambda path: (path.mkdir(), put(path / "model.safetensors", "weights")),
    "somebody's weights, by our name": lambda path: (path.mkdir(), put(path / "state.pt", "weights")),
    "another program's": lambda path: (path.mkdir(), put(path / "manifest.json", '{"step": 1}')),
    "an empty directory": Path.mkdir,
    "a file": Path.touch,
    "a link": lambda path: path.symlink_to("/"),
    "a pipe": os.mkfifo,
    "a pipe for a manifest": lambda path: (path.mkdir(), os.mkfifo(path / "manifest.json")),
    "a device for a manifest": lambda path: (path.mkdir(), (path / "manifest.json").symlink_to("/dev/zero")),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_not_ours_stays_and_keeps_its_name_and_refuses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    theirs = tmp_path / "step-00000001"
    FOREIGN[what](theirs)
    before = theirs.lstat()
    (tmp_path / ".step-theirs").mkdir()
    assert newest_step(tmp_path) is None
    write(tmp_path, 1, 2, 3, keep=1)
    assert newest_step(tmp_path) == 3
    assert f"{theirs} is there already: step 1 is saved as step-00000001-2" in capsys.readouterr().err
    assert names(tmp_path) == [".step-theirs", "step-00000001", "step-00000003"]
    assert (theirs.lstat().st_ino, theirs.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_another_jobs_are_removed_only_once_this_ones_line_contains_them(tmp_path: Path) -> None:
    write(tmp_path, 60, 80)
    apart = replace(manifest(100), uid="another", lineage=(1, 2, 3))
    CheckpointDirectory(tmp_path, keep=1).write(apart, state(b"state"))
    assert names(tmp_path) == ["step-00000060", "step-00000080", "step-00000100"]
    CheckpointDirectory(tmp_path, keep=1).write(replace(apart, step=120, ancestors=("uid",)), state(b"state"))
    assert names(tmp_path) == ["step-00000120"]


def test_nothing_is_removed_for_one_that_cannot_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, rename = write(tmp_path, 60), Path.rename

    def rename_and_lose(path: Path, target: Path) -> Path:
        os.truncate(path / "state.pt", 3)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_and_lose)
    checkpoints._keep = 1
    with pytest.raises(StorageError, match=r"step-00000120 was written, but is not intact: state.pt has 3 bytes"):
        checkpoints.write(manifest(120), state(b"state 120"))
    assert newest_step(tmp_path) == 60


@pytest.mark.parametrize("file", ["manifest.json", "state.pt"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_one_that_cannot_be_read_now_is_tried_again_and_never_given_up_for_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, number: int
) -> None:
    write(tmp_path, 60, 120)
    fails, open_ = [True], os.open

    def refuse(path: Any, *more: Any, **others: Any) -> int:
        if str(path) == f"{tmp_path}/step-00000120/{file}" and fails[0]:
            raise OSError(number, os.strerror(number))
        return open_(path, *more, **others)

    monkeypatch.setattr(os, "open", refuse)
    for start_over in (False, True):
        with pytest.raises(StorageUnavailableError, match=f"{file} cannot be read: {os.strerror(number)}"):
            newest_step(tmp_path, start_over=start_over)
    assert names(tmp_path) == ["step-00000060", "step-00000120"]
    monkeypatch.setattr(time, "sleep", lambda _: fails.__setitem__(0, False))
    found = CheckpointDirectory(tmp_path, keep=3).newest(Path.read_bytes)
    assert found
    assert found.manifest.step == 120


def test_a_reader_finds_one_though_all_that_it_has_listed_are_replaced_meanwhile(tmp_path: Path) -> None:
    write(tmp_path, 60)
    listings = iter([lambda: write(tmp_path, 80, keep=1), lambda: None])

    def listed() -> list[Path]:
        paths = checkpoints_in(tmp_path)
        next(listings)()
        return paths

    found = find_newest(listed, Path.read_bytes, reader=FILES).found
    assert found
    assert found.manifest.step == 80


@pytest.mark.parametrize(
    ("size", "left"),
    [(0, []), (40, []), (None, ["step-00000120"])],
    ids=["it had opened the manifest", "it was writing it", "it had only to give it its name"],
)
def test_a_dead_writers_leftovers_are_removed_unless_they_are_whole(
    tmp_path: Path, size: int | None, left: list[str]
) -> None:
    write(tmp_path, 120)
    dead = tmp_path / ".step-ddpjob-train-abc"
    (dead / "step-00000060").mkdir(parents=True)
    (tmp_path / "step-00000120").rename(dead / "step-00000120")
    if size is not None:
        os.truncate(dead / "step-00000120/manifest.json", size)
    CheckpointDirectory(tmp_path, keep=3)
    assert names(tmp_path) == left


def test_a_dead_writers_leftover_that_cannot_be_read_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / ".step-ddpjob-train-abc"
    write(tmp_path / "before", 120)
    (tmp_path / "before").rename(dead)

    def refuse(*_: Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(manifests, "read_regular", refuse)
    CheckpointDirectory(tmp_path, keep=3)
    assert names(tmp_path) == [".step-ddpjob-train-abc"]
    monkeypatch.undo()
    assert newest_step(tmp_path) == 120


@pytest.mark.parametrize("link", [".step-ddpjob-train-x", ".step-ddpjob-train-x/step-00000120"])
def test_what_a_link_leads_to_is_nobodys_leftover(tmp_path: Path, link: str) -> None:
    write(elsewhere := tmp_path / "elsewhere", 120)
    (here := tmp_path / "here" / link).parent.mkdir(parents=True)
    here.symlink_to(elsewhere if "/" not in link else elsewhere / "step-00000120")
    CheckpointDirectory(tmp_path / "here", keep=3)
    assert names(elsewhere) == ["step-00000120"]
    assert newest_step(tmp_path / "here") is None


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"{tmp_path}/file/checkpoints cannot be used: Not a directory"):
        CheckpointDirectory(tmp_path / "file" / "checkpoints", keep=3)


def test_whenever_the_writer_is_killed_the_last_checkpoint_that_it_told_of_is_there(tmp_path: Path) -> None:
    told = 0
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout
        for _ in range(random.randint(1, 4)):
            told = int(process.stdout.readline())
        time.sleep(random.uniform(0, 0.01))  # To a moment at random within the next save.
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = CheckpointDirectory(tmp_path, keep=2).newest(decode=Path.read_bytes)
        assert found
        assert found.manifest.step >= told
        assert found.state == found.manifest.step.to_bytes(4, "big") * 500_000


def dies_at(line: int, act: Callable[[], object]) -> bool:
    """Does something in a process that is gone before it comes to so many lines of checkpoints' code, if it does."""
    if (child := os.fork()) == 0:
        left = line

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(TRACED):
                return None
            left -= event == "line"
            if left < 0:
                os._exit(9)
            return trace

        sys.settrace(trace)
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_whichever_line_of_a_save_is_the_last_of_a_process_the_next_goes_on_and_nothing_piles_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    keep, newest, kills = 2, 0, 0

    def resume() -> int:
        checkpoints = CheckpointDirectory(tmp_path, keep)
        if found := checkpoints.newest(Path.read_bytes):
            checkpoints.tidy(found.manifest, found.location)
        return found.manifest.step if found else 0

    while dies_at(kills, lambda: write(tmp_path, resume() + 10, keep=keep)):
        kills += 4  # Each is a fork of all that tests have loaded.
        found = resume()
        assert found in {newest, newest + 10}, f"line {kills}"
        newest = found
        assert len(names(tmp_path)) <= keep, f"line {kills}"
        assert all(re.fullmatch(r"step-\d{8}", name) for name in names(tmp_path)), f"line {kills}"
    assert kills > 4 * 50
    assert newest > 10 * keep
    assert "passed over" not in capsys.readouterr().err


def test_the_one_that_was_read_stays_though_a_later_attempts_broken_one_counts_and_cannot_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 60)
    later = replace(manifest(50), lineage=(1, 2, 3))
    CheckpointDirectory(tmp_path, keep=9).write(later, state(b"state 50"))
    os.truncate(tmp_path / "step-00000050/state.pt", 0)
    monkeypatch.setattr(CheckpointDirectory, "_set_aside", lambda *_: None)
    checkpoints = CheckpointDirectory(tmp_path, keep=1)
    found = checkpoints.newest(Path.read_bytes)
    assert found
    assert found.manifest.step == 60
    checkpoints.tidy(replace(found.manifest, lineage=(1, 2, 4)), found.location)
    assert newest_step(tmp_path) == 60


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_room_nothing_half_written_stays_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    checkpoints = write(tmp_path, 60)
    with files_limited_to(10_000), pytest.raises(StorageFullError) as error:
        checkpoints.write(manifest(120), state(b"x" * 20_000))
    assert f"checkpoint {tmp_path}/step-00000120 could not be saved: {os.strerror(errno.EFBIG)}" in str(error.value)
    assert "needed 20000 bytes, free " in str(error.value)
    assert "free some space, or name another directory" in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000060"]
    assert newest_step(tmp_path) == 60


def test_a_state_that_could_not_be_read_back_takes_nobodys_place(tmp_path: Path) -> None:
    def refuse(file: Path) -> None:
        raise ValueError(f"{file.read_text()} is not good")

    checkpoints = write(tmp_path, 60)
    with pytest.raises(ValueError, match="state 120 is not good"):
        checkpoints.write(manifest(120), state(b"state 120"), refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000060"]


def test_a_large_state_is_whole_though_it_goes_to_the_disk_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "PORTION_BYTES", 1000)
    parts = [random.randbytes(size) for size in (0, 1, 999, 1000, 1001, 12_345)]
    CheckpointDirectory(tmp_path, keep=1).write(manifest(60), lambda file: [file.write(part) for part in parts])
    found = CheckpointDirectory(tmp_path, keep=1).newest(decode=Path.read_bytes)
    assert found
    assert found.state == b"".join(parts)


def test_a_run_may_save_a_step_twice_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 3, 3)
    assert names(tmp_path) == ["step-00000003", "step-00000003-2"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_broken_one_that_cannot_be_set_aside_is_told_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    storage = write(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / "state.pt").write_bytes(b"")
    monkeypatch.setattr(Path, "rename", refuse)
    assert newest_step(tmp_path) == 1
    said = f"the broken checkpoint {tmp_path}/step-00000002 could not be set aside: {os.strerror(number)}"
    assert capsys.readouterr().err.count(said) == 1
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    with pytest.raises(TrainerError):
        storage.write(manifest(3), state(b"3"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), MemoryError),
        (OSError(errno.EIO, "Input/output error"), StorageUnavailableError),
        (ValueError("another version's"), CheckpointUnusableError),
    ],
)
def test_a_whole_checkpoint_that_cannot_be_decoded_is_not_taken_for_a_broken_one(
    tmp_path: Path, error: Exception, kind: type[Exception]
) -> None:
    def decode(_: Path) -> None:
        raise error

    storage = write(tmp_path, 1, 2)
    with pytest.raises(kind):
        storage.newest(decode, retry_seconds=0.0)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


def test_how_much_room_is_left_is_told_if_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Sink) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    storage = CheckpointDirectory(tmp_path, keep=3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 5, 4))  # type: ignore[attr-defined]
    with pytest.raises(StorageFullError, match=r"No space left on device \(needed 0 bytes, free 4\)"):
        storage.write(manifest(1), full)
    monkeypatch.setattr(shutil, "disk_usage", Mock(side_effect=OSError))
    with pytest.raises(StorageFullError, match=r"\(needed 0 bytes, free unknown\)"):
        storage.write(manifest(1), full)


@pytest.mark.parametrize("later", [True, False])
def test_an_old_checkpoint_in_whose_place_a_later_attempt_has_put_its_own_stays(
    tmp_path: Path, *, later: bool
) -> None:
    storage = write(tmp_path, 1)
    by = replace(manifest(5), lineage=(1, 2, 3) if later else (1, 2))
    CheckpointDirectory(tmp_path / "other", keep=3).write(replace(by, step=1), state(b"theirs"))
    shutil.rmtree(tmp_path / "step-00000001")
    (tmp_path / "other" / "step-00000001").rename(tmp_path / "step-00000001")
    shutil.rmtree(tmp_path / "other")
    with pytest.raises(SupersededError) if later else nullcontext():
        storage._remove(tmp_path / "step-00000001", manifest(5))
    assert names(tmp_path) == (["step-00000001"] if later else [])
    if later:
        return
    storage._remove(tmp_path / "step-00000009", manifest(5))  # Somebody else has removed it.
