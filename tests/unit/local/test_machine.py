"""A port is held by a lock on a file in a directory that everybody may write to."""

import tempfile
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.local.machine import Port, free_port, lock_of


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_two_runs_never_hold_the_same_port() -> None:
    first = Port(free_port())
    assert Port(first.number).number != first.number


def test_where_the_file_is_not_ours_to_open_another_port_is_taken() -> None:
    wanted = free_port()
    lock_of(wanted).mkdir()  # Not even root opens that, who may open every file.
    assert Port(wanted).number != wanted


def test_a_file_that_somebody_has_laid_in_the_way_is_neither_opened_nor_emptied(directory: Path) -> None:
    wanted, precious = free_port(), directory / "precious"
    precious.write_text("content")
    lock_of(wanted).symlink_to(precious)
    assert Port(wanted).number != wanted
    assert precious.read_text() == "content"


def test_where_no_file_can_be_made_one_line_says_where_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(BadInputError, match=r"^cannot lock a port in /nowhere: No such file .* set TMPDIR to a"):
        Port(free_port())
