"""Whether a program of one's own was told to stop, by real signals to a real process."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from ddpjob_rank.reporting.vote import device_of

from tests.support.waiting import patience

DEADLINE_SECONDS = 20.0
IN_A_JOB = {"DDPJOB_NAME": "digits"}

ASKED = """
import os, signal, sys
import ddpjob
print(ddpjob.stop_requested())
os.kill(os.getpid(), signal.SIGTERM)
print(ddpjob.stop_requested(), "torch" in sys.modules)
"""
OWN_HANDLER = """
import os, signal
import ddpjob
signal.signal(signal.SIGTERM, lambda *_: print("the program's own"))
ddpjob.stop_requested()
os.kill(os.getpid(), signal.SIGTERM)
print(ddpjob.stop_requested())
"""
TWICE = "import os, signal, ddpjob\nddpjob.stop_requested()\n" + "os.kill(os.getpid(), signal.SIGTERM)\n" * 2
IN_A_THREAD = """
import threading, ddpjob
thread = threading.Thread(target=lambda: print(ddpjob.stop_requested()))
thread.start()
thread.join()
print(ddpjob.stop_requested())
"""
GROUP = """
import sys, types
import ddpjob
from ddpjob_rank.reporting import vote
vote.LONG_SECONDS = LONG
seen = []
class Tensor:
    def __init__(self, shape, value, dtype, device): self.value = value
    def item(self): return self.value
    def wait(self): seen.append("read")
def all_reduce(sent, op, async_op):
    seen.append(sent.value)
    sent.value = max(sent.value, others.pop(0))
    return sent
dist = types.SimpleNamespace(
    is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2, all_reduce=all_reduce,
    get_backend_config=lambda group: "cpu:gloo", group=types.SimpleNamespace(WORLD="the group"),
    ReduceOp=types.SimpleNamespace(MAX="max"))
sys.modules["torch.distributed"] = dist
sys.modules["torch"] = types.SimpleNamespace(
    distributed=dist, int32=None, full=Tensor, device=lambda kind: types.SimpleNamespace(type=kind))
others = [0, 0, 0, vote.STOP]
print([ddpjob.stop_requested() for _ in range(7)], seen)
"""
CUDA = "cuda"


def run(code: str, **env: str) -> tuple[int, list[str], str]:
    """Exit code, lines of output, and errors of a process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**{name: value for name, value in os.environ.items() if not name.startswith("DDPJOB_")}, **env},
        capture_output=True,
        text=True,
        timeout=patience(DEADLINE_SECONDS),
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("env", [IN_A_JOB, {"DDPJOB_HEARTBEAT": "/nowhere"}], ids=["in a pod", "under a supervisor"])
def test_a_first_signal_is_told_and_does_not_end_the_program(env: dict[str, str]) -> None:
    assert run(ASKED, **env) == (0, ["False", "True False"], "")


def test_outside_a_job_a_signal_does_what_it_did_before() -> None:
    assert run(ASKED)[0] == -signal.SIGTERM


def test_a_second_signal_ends_the_program() -> None:
    assert run(TWICE, **IN_A_JOB)[0] == -signal.SIGTERM


def test_a_programs_own_handler_is_called_as_well() -> None:
    assert run(OWN_HANDLER, **IN_A_JOB) == (0, ["the program's own", "True"], "")


def test_a_program_that_asks_in_a_thread_only_is_told_once_that_signals_are_not_heard() -> None:
    code, lines, warning = run(IN_A_THREAD, **IN_A_JOB)
    assert (code, lines) == (0, ["False", "False"])
    assert warning.count("stop_requested()") == 1


@pytest.mark.parametrize(
    ("long", "answers", "seen"),
    [
        ("1e6", [False] * 4 + [True] * 3, [1, "read", 0, "read", 0, "read", 0, "read"]),
        ("0.0", [False] * 3 + [True] * 4, [1, "read", 1, "read", 1, "read", 1, "read"]),
    ],
    ids=["short steps", "long steps"],
)
def test_all_processes_of_a_group_get_the_same_answer_and_then_ask_no_more(
    long: str, answers: list[bool], seen: list[object]
) -> None:
    assert run(f"LONG = {long}\n{GROUP}", **IN_A_JOB) == (0, [f"{answers} {seen}"], "")


@dataclass(frozen=True)
class Device:
    """Torch's, where there is none."""

    type: str
    index: int | None = None


@pytest.mark.parametrize(
    ("backends", "bound", "local_rank", "device"),
    [
        ("cpu:gloo,cuda:gloo", None, "1", Device("cpu")),
        ("cpu:gloo,cuda:nccl", Device(CUDA, 3), "1", Device("cpu")),
        ("cuda:nccl", None, "1", Device(CUDA, 1)),
        ("cuda:nccl", Device(CUDA, 3), "1", Device(CUDA, 3)),
        ("cuda:nccl", None, "4", Device(CUDA, 2)),  # It sees fewer: each rank was given its own.
        ("cuda:nccl", None, None, Device(CUDA, 2)),
        ("cuda:nccl", None, "-1", Device(CUDA, 2)),
        ("xpu:xccl", Device(CUDA, 3), "0", Device("xpu", 0)),
    ],
)
def test_a_group_asks_on_the_cpu_or_on_the_device_of_its_rank(
    backends: str, bound: Device | None, local_rank: str | None, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = SimpleNamespace(device_count=lambda: 4, current_device=lambda: 2)
    distributed = SimpleNamespace(get_backend_config=lambda _: backends)
    torch = SimpleNamespace(device=Device, distributed=distributed, cuda=four, xpu=four)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert device_of(torch, SimpleNamespace(bound_device_id=bound)) == device
