"""Files that are replaced as a whole or not at all."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import files
from ddpjob_operator.local.files import Lock, read_json, write_json

HOLDS = "import sys, time; from ddpjob_operator.local.files import Lock; from pathlib import Path\n"
HOLDS += "first, lock, other = open(sys.executable), Lock(Path(sys.argv[1])), open(sys.executable)\n"
HOLDS += "lock.acquire(); print(flush=True); time.sleep(60)"
ODD: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}


def test_a_full_disk_is_told_with_the_file_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "job.json", 1)
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match=r"No space left on device: '.*job\.json'"):
        write_json(tmp_path / "job.json", 2)
    assert (tmp_path / "job.json").read_text() == "1\n"


@pytest.mark.parametrize("more", [0, 1])
def test_a_very_large_document_is_told_and_never_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", 9)
    path = tmp_path / "job.json"
    path.write_text("12345678\n" + "\n" * more)
    with pytest.raises(ValueError, match="has more than 9 bytes") if more else nullcontext():
        assert read_json(path) == 12345678


def test_a_lock_names_its_holder_and_not_a_former_one(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    (tmp_path / "lock").write_text("4194303\n")
    assert lock.holder() is None
    assert lock.acquire()
    assert lock.holder() == os.getpid()
    lock.release()
    assert lock.holder() is None


def test_a_lock_is_a_file_like_any_other_of_its_maker(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()
    assert (tmp_path / "lock").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_signal_goes_to_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    with subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path / "lock"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        lock.signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    lock.signal(signal.SIGTERM)  # Nobody gets it.


def test_no_signal_goes_to_a_process_whose_number_the_holder_has_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1\n")  # As in a container.
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BadInputError, match="of another user, machine or container"):
            Lock(tmp_path / "lock").signal(0)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_regular_file_is_told_and_not_opened(tmp_path: Path, odd: str) -> None:
    ODD[odd](path := tmp_path / "file")
    for use in (read_json, lambda path: Lock(path).acquire(), lambda path: Lock(path).holder()):
        with pytest.raises(BadInputError, match=r"/file is not a regular file"):
            use(path)


def test_the_lock_of_a_file_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def remove_first(file: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        (tmp_path / "lock").unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    assert Lock(tmp_path / "lock").holder() == os.getpid(), "the file that others see is locked"
    lock.release()


@pytest.mark.parametrize(
    ("size", "start", "end"),
    [(100, 0, "one\ntwo\nthree"), (5, 0, "three"), (100, 8, "three"), (3, 8, "ree"), (5, 10, "ree"), (5, 99, "")],
)
def test_of_a_log_the_end_is_read_but_nothing_of_a_former_writer(
    size: int, start: int, end: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("one\ntwo\nthree\n"[:-1])
    assert files.tail(tmp_path / "log", size, start) == end
    assert files.tail(tmp_path / "none", size, start) == ""
