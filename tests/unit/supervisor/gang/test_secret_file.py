"""The secret of a user, for gangs that stay on one machine: made once, and by nobody else."""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from ddpjob_supervisor.gang import secret_file
from ddpjob_supervisor.gang.secret_file import users_secret

ANOTHER = 54321
AT_ONCE = 16

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give somebody a file")


def test_whoever_comes_first_makes_it_and_all_others_read_it(tmp_path: Path) -> None:
    place = tmp_path / "ours"
    secret = users_secret(place)
    assert len(secret) == 64
    assert users_secret(place) == secret
    assert place.stat().st_mode & 0o777 == 0o700
    assert [(file.name, file.stat().st_mode & 0o777) for file in place.iterdir()] == [("secret", 0o600)]
    assert users_secret(tmp_path / "another's") != secret


def test_of_many_who_come_at_once_all_have_the_same(tmp_path: Path) -> None:
    together = Barrier(AT_ONCE)

    def come(place: Path) -> bytes:
        together.wait()
        return users_secret(place)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for number in range(50):
            place = tmp_path / str(number)
            assert len({*threads.map(come, [place] * AT_ONCE)}) == 1
            assert [file.name for file in place.iterdir()] == ["secret"]


@pytest.mark.parametrize("call", ["mkdir", "fdopen", "fsync", "link", "unlink"])
def test_whoever_is_killed_while_making_it_leaves_none_or_a_whole_one(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "ours"
    if (pid := os.fork()) == 0:
        monkeypatch.setattr(os, call, lambda *_, **__: os._exit(9))
        users_secret(place)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert len(users_secret(place)) == 64


def linked(place: Path) -> None:
    users_secret(place.with_name("stranger's"))
    place.symlink_to(place.with_name("stranger's"))


def file_linked(place: Path) -> None:
    users_secret(place)
    (place / "secret").rename(place.with_name("elsewhere"))
    (place / "secret").symlink_to(place.with_name("elsewhere"))


def of_another(place: Path) -> None:
    users_secret(place)
    os.chown(place, ANOTHER, ANOTHER)


def file_of_another(place: Path) -> None:
    users_secret(place)
    os.chown(place / "secret", ANOTHER, ANOTHER)


def holding(mode: int = 0o600, words: str = "s" * 64) -> Callable[[Path], None]:
    def put(place: Path) -> None:
        place.mkdir(mode=0o700)
        (place / "secret").write_text(words)
        (place / "secret").chmod(mode)

    return put


def pipe(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.mkfifo(place / "secret", 0o600)


PLANTED: dict[str, Any] = {
    "a link to a directory": (linked, "Not a directory"),
    "a directory that others may enter": (lambda place: place.mkdir(0o711), "others can reach it"),
    "another's directory": pytest.param(of_another, "it belongs to another user", marks=as_root),
    "no directory": (Path.touch, "Not a directory"),
    "a link to a file": (file_linked, "Too many levels of symbolic links"),
    "another's file": pytest.param(file_of_another, "it belongs to another user", marks=as_root),
    "a file that others may read": (holding(mode=0o640), "others can reach it"),
    "an empty file": (holding(words=""), "a secret must have 32 to 4096 bytes, but this one 0 bytes"),
    "a file without an end": (holding(words="s" * 5000), "a secret must have 32 to 4096 bytes, but this one more"),
    "a pipe": (pipe, "it is not a regular file"),
}


@pytest.mark.parametrize(("plant", "why"), PLANTED.values(), ids=PLANTED)
def test_what_a_stranger_may_have_put_there_is_refused(
    plant: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    plant(tmp_path / "ours")
    with pytest.raises(OSError, match=re.escape(why)) as refused:
        users_secret(tmp_path / "ours")
    assert refused.value.strerror == why


def test_where_none_can_be_made_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(secret_file.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        users_secret(tmp_path / "ours")
    assert list((tmp_path / "ours").iterdir()) == []
