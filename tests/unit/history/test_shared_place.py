"""Users may share a directory: a folder of somebody else that cannot be read spoils only what needs this folder."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.history import PlaceError, find_history, open_place
from ddpjob_supervisor.history.targets import DirectoryTarget

from .conftest import USER
from .test_pruning import DAY, keep, stock_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
Says = Callable[..., tuple[str, str]]


@pytest.fixture
def says(
    place: Path,
    as_user: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Says:
    """What a command prints. The place has a job of this user, a newer one of another user, and a private folder."""
    old = SimpleNamespace(time=lambda: time.time() - 3 * DAY, monotonic=time.monotonic)
    monkeypatch.setattr("ddpjob_supervisor.history.journal.time", old)
    place.chmod(0o777)
    (place / "private").mkdir(mode=0o700)
    for user, uid in ((USER, "mine"), (USER + 1, "theirs")):
        as_user(user)
        keep(lambda writer: DirectoryTarget(place, writer), "digits", uid)
        for file in (place / "team/digits" / uid).rglob("*"):
            os.utime(file, (time.time() - 3 * DAY,) * 2)
    as_user(USER)

    def says(words: str, code: int = 0) -> tuple[str, str]:
        assert call(parse([*words.split(), "--history", str(place)])) == code
        return capsys.readouterr()

    return says


def test_what_certainly_can_be_removed_is_pruned(says: Says, place: Path) -> None:
    for limit in ("--keep 0 --dry-run", "--older-than 0d --dry-run", "--max-size 1"):
        out, error = says(f"prune {limit}")
        assert "team/digits mine, which began" in out
        assert "theirs" not in out
        assert out.endswith("; 1 job remains\n")
        left_out, kept = error.splitlines()
        assert left_out.startswith(f"ddpjob: namespace private is left out: cannot read {place}/private")
        assert kept.startswith("ddpjob: 1 job is kept, because its folder cannot be read: ")
        assert kept.endswith(f": cannot read {place}/team/digits/theirs: Permission denied")
    assert [path.name for path in (place / "team/digits").iterdir()] == ["theirs"]
    stock = stock_of(place)
    with pytest.raises(PlaceError, match="theirs: Permission denied"):
        stock.remove(stock.jobs[0], str)
    assert len([*(place / "team/_jobs").iterdir()]) == 2


def test_other_jobs_are_listed_and_read(says: Says, place: Path) -> None:
    for words, shown in (
        *(("ls", " mine\n"), ("logs --uid mine", "xxx\n"), ("logs digits --uid mine", "xxx\n")),
        ("status digits --uid mine", "Uid:          mine\n"),
    ):
        out, error = says(words)
        assert shown in out, words
        assert error.startswith(f"ddpjob: namespace private is left out: cannot read {place}/private"), words
        assert error.count("\n") == 1, words
    out, error = says("logs team/digits --uid mine")
    assert (out.count("xxx\n"), error) == (2, "")


def test_a_folder_that_is_asked_for_is_an_error(says: Says, place: Path) -> None:
    assert "holds no history of a job named other" in says("logs other", 2)[1]
    for words in ("ls private/digits", "logs private/digits", "prune private/digits --keep 0"):
        assert says(words, 2)[1].startswith(f"error: cannot read {place}/private"), words


def test_if_the_newest_job_of_a_name_cannot_be_read_the_error_says_how_to_choose(says: Says, place: Path) -> None:
    assert "theirs: Permission denied. Choose another job with --uid: mine\n" in says("logs digits", 2)[1]
    with pytest.raises(PlaceError, match=r"digits/theirs: Permission denied$"):
        find_history(open_place(str(place)), "team", "digits", "theirs")
