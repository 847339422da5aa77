"""A supervisor's own directory: where it is, and what becomes of those whose supervisors were killed."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_rank.errors import TrainerError
from ddpjob_supervisor.node import directory as module
from ddpjob_supervisor.node.directory import private_directory

from tests.support.waiting import patience

DEADLINE_SECONDS = 30


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "PARENTS", (tmp_path,))
    return tmp_path


KILLED = """
import sys
from pathlib import Path
from ddpjob_supervisor.node import directory
directory.PARENTS = (Path(sys.argv[1]),)
with directory.private_directory() as own:
    (own / "report").write_text("")
    print(own, flush=True)
    input()
"""


def test_it_is_gone_with_its_supervisor(parent: Path) -> None:
    with private_directory() as directory:
        (directory / "report").write_text("")
        assert list(parent.iterdir()) == [directory]
    assert not list(parent.iterdir())


def test_what_a_killed_supervisor_left_is_removed_by_the_next_and_a_living_ones_stays(parent: Path) -> None:
    with private_directory() as mine:
        killed = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert killed.stdout
        left = Path(killed.stdout.readline().strip())
        assert mine.exists()
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=patience(DEADLINE_SECONDS))
        assert (left / "report").exists()
        with private_directory() as another:
            assert sorted(parent.iterdir()) == sorted([mine, another])


def test_one_that_is_being_made_is_not_swept(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    swept = []

    def lock_late(descriptor: int, operation: int) -> None:
        """Another supervisor starts between the making of a directory and its lock."""
        if not swept:
            swept.append(parent)
            module._sweep(parent)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with private_directory() as directory:
        assert swept
        assert list(parent.iterdir()) == [directory]


@pytest.mark.timeout(20)
def test_a_pipe_of_a_strangers_keeps_nobody_waiting(parent: Path) -> None:
    os.mkfifo(parent / f"{module.PREFIX}x")
    with private_directory() as directory:
        assert directory.parent == parent


def test_what_others_have_made_stays(parent: Path) -> None:
    theirs = parent / "ddpjob-runs"
    theirs.mkdir()
    with private_directory():
        assert theirs.exists()


def test_where_memory_takes_no_files_it_is_elsewhere(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARENTS", (parent / "none", parent))
    with private_directory() as directory:
        assert directory.parent == parent
    monkeypatch.setattr(module, "PARENTS", (parent / "none", parent / "neither"))
    with pytest.raises(TrainerError, match=r"cannot create files in .*none and .*neither"), private_directory():
        pass


def test_where_memory_is_full_it_is_elsewhere(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, other, write = parent / "full", parent / "other", Path.write_bytes
    full.mkdir()
    other.mkdir()

    def write_bytes(path: Path, content: bytes) -> int:
        if full in path.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    monkeypatch.setattr(module, "PARENTS", (full, other))
    with private_directory() as directory:
        assert directory.parent == other
        assert not list(full.iterdir())
