"""A module that asks CUDA for its devices cannot be imported before the ranks are forked."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import patience

ZYGOTE = """
import sys
from ddpjob_supervisor.node import zygote
zygote.CUDA = sys.argv.pop(1)
zygote.main()
"""


@pytest.mark.parametrize(
    ("module", "answer"),
    [
        ("opened = open({device!r})", "asks asks CUDA for its devices when it is imported"),
        ("open({device!r}).close()", None),
    ],
    ids=["keeps it open", "looks only"],
)
def test_a_module_that_opens_a_gpu_when_it_is_imported_is_refused(
    module: str, answer: str | None, tmp_path: Path
) -> None:
    (device := tmp_path / "nvidia-uvm").touch()
    (tmp_path / "asks.py").write_text(module.format(device=str(device)))
    ours, theirs = socket.socketpair()
    ours.settimeout(patience(20))
    call = [sys.executable, "-c", ZYGOTE, str(device), str(theirs.fileno()), str(os.getpid())]
    with subprocess.Popen([*call, str(tmp_path), "{}", "asks"], pass_fds=[theirs.fileno()]):
        theirs.close()
        with ours:
            told = json.loads(ours.makefile().readline())
    assert told.get("ready") is (None if answer else True)
    assert (answer or "") in told.get("error", "")
