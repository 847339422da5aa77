"""The last loss in the log of a run on this machine."""

from pathlib import Path

import pytest
from ddpjob_operator.cli import last_loss
from ddpjob_operator.cli.last_loss import logged_last
from ddpjob_operator.local import RunDirectory


def write(run: RunDirectory, gang: int, node: int, text: str) -> Path:
    log = run.logs_of(gang) / f"node-{node}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    return log


def test_it_is_that_of_node_0_in_the_last_gang(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "digits")
    assert logged_last(run).loss is None
    write(run, 1, 0, "progress step=1 loss=0.5\nprogress step=2 loss=0.25\n")
    write(run, 1, 1, "progress step=2 loss=9\n")
    assert logged_last(run).loss == "0.25"
    write(run, 2, 1, "progress step=2 loss=9\n")
    assert logged_last(run).loss is None, "node 0 has printed nothing in the last gang"
    write(run, 2, 0, "train loss: 0.125\n")
    assert str(logged_last(run).printed_loss) == "0.125 (from its log: train loss: 0.125)"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_loss, "TAIL", 100)
    run = RunDirectory(tmp_path / "digits")
    write(run, 1, 0, "progress step=1 loss=0.5\n" + "x" * 200 + "\n")
    assert logged_last(run).loss is None


def test_a_log_that_cannot_be_read_has_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path / "digits")
    write(run, 1, 0, "progress step=1 loss=0.5\n")

    def denied(*_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(last_loss, "tail", denied)
    assert logged_last(run).loss is None
