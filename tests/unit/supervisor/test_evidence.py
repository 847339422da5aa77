"""Where the evidence of a stall is kept."""

import stat
import tempfile
from pathlib import Path

import pytest
from ddpjob_supervisor.watch.evidence import directories


def test_beside_no_checkpoints_it_is_kept_where_nobody_else_can_lay_anything_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (directory,) = directories({})
    assert stat.S_IMODE(directory.stat().st_mode) == stat.S_IRWXU
    assert list(directories({})) == [directory], "the attempts of one supervisor stand beside each other"
    assert list(directories({"DDPJOB_CHECKPOINT_DIR": "/saved"})) == [Path("/saved/stalls"), directory]
    assert list(directories({"DDPJOB_RUN_DIR": "/run"})) == [Path("/run/stalls"), directory]


def test_where_no_directory_can_be_made_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert list(directories({})) == []
