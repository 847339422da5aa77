"""What the kernel says about a process."""

import signal
from pathlib import Path

import pytest
from ddpjob_supervisor.watch import procfs


def test_a_process_handles_a_signal_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tloader:1:2\nSigCgt:\t0000000000004000\n")
    assert procfs.handles(7, signal.SIGTERM)
    assert not procfs.handles(7, signal.SIGINT)
    assert not procfs.handles(8, signal.SIGTERM), "it is gone"
