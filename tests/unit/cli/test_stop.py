"""`ddpjob stop` of a run that nobody runs any more."""

import errno
import os
import signal
from unittest.mock import Mock
from unittest.mock import call as called

import pytest
from ddpjob_operator.cli import stop as stopping
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import RunDirectory, Runs


@pytest.mark.parametrize(("attached", "flag"), [(None, ""), (1, " --attach 1")])
def test_what_is_done_for_it_is_told(
    attached: int | None, flag: str, digits: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.attach(attached)
    assert call(parse(["stop", "digits"])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ddpjob: Nothing runs until the job is resumed",
        "digits: Suspended. Nothing runs until the job is resumed",
        f"Go on with: ddpjob run --resume digits{flag}",
    ]


@pytest.mark.usefixtures("digits")
def test_who_runs_it_is_interrupted_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Mock(**{"holder.return_value": 7})
    monkeypatch.setattr(RunDirectory, "lock", lock)
    monkeypatch.setattr(stopping, "_stop_what_goes_on", lambda _: lock.stopped())
    assert call(parse(["stop", "digits"])) == 0
    assert lock.mock_calls == [called.holder(), called.signal(signal.SIGINT), called.wait(), called.stopped()]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_on_a_full_disk_its_processes_end_all_the_same_and_it_says_what_is_missing(
    number: int, digits: RunDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Mock()
    why = OSError(number, os.strerror(number), "job.json")
    monkeypatch.setattr(stopping, "stop_job", Mock(side_effect=why))
    monkeypatch.setattr(stopping, "end_ranks", ended)
    if number == errno.EIO:
        with pytest.raises(OSError, match=r"job\.json"):
            stopping.stop(Runs(digits.root.parent), "digits")
        return
    assert stopping.stop(Runs(digits.root.parent), "digits") == 0
    ended.assert_called_once()
    says, _, resume, remove = capsys.readouterr().out.splitlines()
    assert says.endswith(f"its status cannot be written: {why.strerror}: job.json.")
    assert resume.endswith(" run --resume digits")
    assert remove.endswith(" rm digits")
    assert digits.lock.holder() is None
