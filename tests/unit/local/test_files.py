"""Files that are replaced as a whole or not at all."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from ddpjob_operator.local.files import Lock, write_json


def test_a_full_disk_is_told_with_the_file_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "job.json", 1)
    monkeypatch.setattr(json, "dumps", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match=r"No space left on device: '.*job\.json'"):
        write_json(tmp_path / "job.json", 2)
    assert (tmp_path / "job.json").read_text() == "1\n"


def test_a_lock_names_its_holder_and_not_a_former_one(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    (tmp_path / "lock").write_text("4194303\n")
    assert lock.holder() is None
    assert lock.acquire()
    assert lock.holder() == os.getpid()
    lock.release()
    assert lock.holder() is None
