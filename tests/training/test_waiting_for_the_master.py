"""The wait for the master, as an init container runs it, beside PyTorch's own store."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.unit.engine.builders import a_job

HERE = "127.0.0.1"
PATIENCE = timedelta(seconds=60)

Waiting = subprocess.Popen[str]


@pytest.fixture
def wait() -> Iterator[Callable[[int], Waiting]]:
    """Runs the init container's own command and comes back when it has said that nobody listens yet."""
    pod: Any = a_job(nodes=2).decision.actions[-1]
    command = pod.build()["spec"]["initContainers"][-1]["command"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    started: list[Waiting] = []

    def start(port: int) -> Waiting:
        env = {"PATH": path, "MASTER_ADDR": HERE, "MASTER_PORT": str(port)}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"waiting for rank 0 at {HERE}:{port}: ")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("libuv", [True, False])
def test_it_ends_when_the_store_listens_and_is_no_worker_of_it(
    wait: Callable[[int], Waiting], *, libuv: bool
) -> None:
    port = hold_port()
    waiting = wait(port)

    def store(*, master: bool) -> TCPStore:
        return TCPStore(HERE, port, 2, master, timeout=PATIENCE, use_libuv=libuv)

    with ThreadPoolExecutor() as pool:
        master = pool.submit(store, master=True)
        assert waiting.wait(patience(PATIENCE.total_seconds())) == 0
        assert not master.done(), "the store took the one that only looked for a worker"
        worker = store(master=False)
        worker.set("greeting", "hello")
        assert master.result().get("greeting") == b"hello"


def test_it_ends_at_once_when_its_pod_is_deleted(wait: Callable[[int], Waiting]) -> None:
    waiting = wait(hold_port())
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(patience(PATIENCE.total_seconds())) == 128 + signal.SIGTERM
