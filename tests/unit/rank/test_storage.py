"""What an error of a file system means for a job."""

import errno
import os
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from ddpjob.checkpoint import content
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob_rank.errors import ConfigError, StorageError, StorageFullError, TrainerError
from ddpjob_rank.failure.failure_report import report_of
from ddpjob_rank.machine.regular_file import NotRegularError, open_regular, read_regular
from ddpjob_rank.machine.storage import forbids
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.main import supervise

CAUSES = {
    "StorageFull": ("ENOSPC", "EDQUOT", "EFBIG"),
    "ConfigError": ("EROFS", "EACCES", "EPERM", "ENOTDIR", "EEXIST", "ELOOP", "ENAMETOOLONG"),
    # What nobody knows may pass as well: a restart finds out, and counts.
    "Application": ("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EBUSY", "ENOTCONN", "EREMOTEIO", "EHOSTDOWN", "EPROTO"),
}
NAMED = [(name, cause) for cause, names in CAUSES.items() for name in names]


@pytest.mark.parametrize(("name", "cause"), NAMED, ids=[name for name, _ in NAMED])
def test_a_save_that_fails_tells_what_is_full_from_what_is_forbidden_and_what_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cause: str
) -> None:
    number = getattr(errno, name)

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    checkpoints = CheckpointDirectory(tmp_path, keep=1)
    monkeypatch.setattr(content.os, "fsync", fail)
    with pytest.raises(TrainerError) as error:
        checkpoints.write(Manifest(1, 1, 1, 1, 1, "", (0,)), lambda file: file.write(b"state"))
    assert report_of(error.value, 0, None).cause == cause
    assert f"could not be saved: {os.strerror(number)}" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EACCES, ConfigError), (errno.ENOSPC, StorageFullError), (errno.ESTALE, StorageError)],
)
def test_a_directory_that_cannot_be_used_is_told_apart_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TrainerError]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(kind, match=f"{tmp_path} cannot be used: {os.strerror(number)}"):
        CheckpointDirectory(tmp_path, keep=1)


@pytest.mark.parametrize(
    ("mode", "user", "groups", "forbidden"),
    [
        (0o400, "its owner", (), False),
        (0o044, "its owner", (), True),
        (0o040, "another", ("its group",), False),
        (0o404, "another", ("its group",), True),
        (0o004, "another", (), False),
        (0o440, "another", (), True),
        (0o000, "root", (), False),
    ],
)
def test_an_owner_and_a_mode_say_whether_a_refusal_passes(
    monkeypatch: pytest.MonkeyPatch, mode: int, user: str, groups: tuple[str, ...], *, forbidden: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        (path := Path(directory, "state.pt")).touch(mode)
        path.chmod(mode)
        owner, group = path.stat().st_uid, path.stat().st_gid
        monkeypatch.setattr(os, "geteuid", lambda: {"its owner": owner or 7, "another": 65534, "root": 0}[user])
        monkeypatch.setattr(os, "getegid", lambda: 65534)
        monkeypatch.setattr(os, "getgroups", lambda: [group] if groups else [])
        if user == "its owner" and not owner:
            os.chown(path, 7, group)
        why = forbids(path)
        monkeypatch.undo()
    assert (why is not None) is forbidden, why
    assert not forbidden or f"{path} belongs to user " in str(why)
    assert not forbidden or f"with mode {mode:04o}, and this process is user " in str(why)


def test_without_a_place_for_temporary_files_it_is_said_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nowhere = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=nowhere))
    monkeypatch.setattr("ddpjob_supervisor.main.start_zygote", Mock(side_effect=AssertionError))
    program = Program(module=False, name="train.py", arguments=())
    with pytest.raises(
        StorageError, match=r"^No usable .*\['/tmp'\]: set TMPDIR to a directory of yours that has room"
    ):
        supervise(program)


def test_only_regular_files_are_opened_whatever_takes_their_place_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, pipe, link, new = (tmp_path / name for name in ("file", "pipe", "link", "new"))
    file.write_bytes(b"abcdef")
    os.mkfifo(pipe)
    link.symlink_to(file)
    assert [read_regular(file, limit) for limit in (5, 6, 7)] == [b"abcdef"] * 3
    assert read_regular(file, 2) == b"abc", "one more than allowed"
    with pytest.raises(FileNotFoundError):
        open_regular(new)
    os.close(open_regular(new, os.O_WRONLY | os.O_CREAT))
    assert new.stat().st_mode & 0o777 == 0o644 & ~_umask()
    for other in (pipe, link, tmp_path):
        with pytest.raises(NotRegularError):
            open_regular(other)
    was, opened = file.lstat(), len([*Path("/proc/self/fd").iterdir()])
    monkeypatch.setattr(Path, "lstat", lambda _: was)
    for other in (pipe, link, tmp_path):
        with pytest.raises(NotRegularError):
            open_regular(other)
    assert len([*Path("/proc/self/fd").iterdir()]) == opened
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
