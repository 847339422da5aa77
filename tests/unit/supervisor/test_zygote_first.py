"""The zygote's imports take longest, and so they begin before the supervisor's own, with the ranks' environment."""

import json
import os
import subprocess
import sys
from typing import Any
from unittest.mock import Mock, call

import pytest
from ddpjob_rank.running.script.script_environment import ROOM
from ddpjob_supervisor.node import zygote
from ddpjob_supervisor.node.zygote_process import Preload, words_of

LATER = ("asyncio", "msgspec", "ddpjob_supervisor.gang", "ddpjob_supervisor.taking_part")

TOLD = {"DDPJOB_CONTROL_PORT": "29502", "DDPJOB_UID": "a-uid"}

SCRIPT = f"""
import os, sys
from ddpjob_supervisor.node import zygote_process

def start(*_):
    print("imported before it:", [name for name in {LATER} if name in sys.modules])
    print("told it:", [os.environ.get(name) for name in {list(TOLD)}])
    sys.exit()

zygote_process.start = start
sys.argv = {{argv}}
{{begin}}
"""


@pytest.mark.parametrize(
    ("begin", "argv"),
    [
        ("from ddpjob_supervisor.entry import supervise; supervise()", ["ddpjob-supervise", "-m", "json"]),
        ("from ddpjob_trainer.entry import train; train()", ["ddpjob-train"]),
    ],
    ids=["ddpjob-supervise", "ddpjob-train"],
)
def test_the_zygote_is_started_before_the_supervisor_imports_its_own_parts(begin: str, argv: list[str]) -> None:
    node = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "1", "WORLD_SIZE": "2"}
    place = {"MASTER_ADDR": "master", "MASTER_PORT": "29500", "DDPJOB_SUPERVISOR": json.dumps(TOLD)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(argv=argv, begin=begin)],
        env={**node, **place, "RANK": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"imported before it: []\ntold it: {list(TOLD.values())}\n", done.stderr


@pytest.mark.parametrize("character", ["\U0001f600", '"', "\1", "\udc80"], ids=ascii)
def test_what_a_script_sets_fits_into_one_argument_of_a_process(character: str) -> None:
    words = words_of(Preload(set_by_program={"A": (ROOM - 1) * character}))
    assert max(len(os.fsencode(word)) for word in words) < 128 << 10  # MAX_ARG_STRLEN, see execve(2)


@pytest.mark.parametrize("last", [(0, 0), ChildProcessError])
def test_of_all_children_that_have_ended_the_ends_are_told(monkeypatch: pytest.MonkeyPatch, last: Any) -> None:
    wait = Mock(side_effect=[(5, 256), (7, 9), last])
    monkeypatch.setattr(zygote.os, "waitpid", wait)
    assert [*zygote._ended()] == [(5, 256), (7, 9)]
    assert wait.call_args_list == [call(-1, os.WNOHANG)] * 3
