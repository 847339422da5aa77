"""What the kernel says about a process."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from ddpjob_supervisor.node.ranks import Rank
from ddpjob_supervisor.watch import procfs

TELLS = "import signal, sys; {}; print(flush=True); signal.pause()"


def test_a_process_handles_a_signal_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tloader:1:2\nSigCgt:\t0000000000004000\n")
    assert procfs.handles(7, signal.SIGTERM)
    assert not procfs.handles(7, signal.SIGINT)
    assert not procfs.handles(8, signal.SIGTERM), "it is gone"


@pytest.mark.parametrize(
    ("first", "only_interruptible"),
    [
        ("pass", True),
        ("signal.signal(signal.SIGTERM, lambda *_: None)", False),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", False),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", True),
    ],
    ids=["as Python is", "it handles both", "it ignores interrupts", "it ignores the other"],
)
def test_a_script_that_knows_of_no_signals_is_told_by_an_interrupt(first: str, *, only_interruptible: bool) -> None:
    async def script() -> bool:
        command = (sys.executable, "-S", "-c", TELLS.format(first))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        rank = Rank(process.pid)
        assert rank.runs
        found = rank.only_interruptible
        process.kill()
        await process.wait()
        assert not rank.runs, "whether or not anybody has said so"
        return found

    assert asyncio.run(script()) == only_interruptible
