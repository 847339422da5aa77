"""What stands in for a container records how its process ended."""

import errno
import json
from pathlib import Path

import pytest
from ddpjob_operator.local import container

WRITE = container._write


def failing(*errors: int) -> object:
    """A way to write files that fails so often, then does not."""
    left = list(errors)

    def write(path: Path, value: dict[str, object]) -> None:
        if left:
            raise OSError(left.pop(0), "no")
        WRITE(path, value)

    return write


def test_on_a_full_disk_the_end_of_a_process_is_recorded_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "RETRY_SECONDS", 0)
    monkeypatch.setattr(container, "_write", failing(errno.ENOSPC, errno.EDQUOT))
    container._record(tmp_path / "exit.json", {"code": 3})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 3}


def test_a_directory_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        container._record(tmp_path / "gone" / "exit.json", {"code": 3})
