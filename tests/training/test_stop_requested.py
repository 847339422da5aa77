"""In which step the ranks of a script stop, over real groups."""

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ddpjob
import pytest
import torch
import torch.distributed as dist
from ddpjob_rank.reporting import agreement_rules

from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for
from tests.training.forking import FORKS
from tests.training.ranks import DEADLINE_SECONDS

SIZE = 3
LONG_SECONDS = 0.5
SOON_SECONDS = 5.0


def join(rank: int, stage: str | int) -> None:
    """By a port, which each group of the script has for itself, or else by a file of this group."""
    patience_ = timedelta(seconds=60)
    if isinstance(stage, int):
        dist.init_process_group(
            "gloo", init_method=f"tcp://localhost:{stage}", rank=rank, world_size=SIZE, timeout=patience_
        )
    else:
        store = dist.FileStore(stage, SIZE)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=patience_)


def train(directory: Path, rank: int, *, stages: list[str | int], told: int, seconds: float) -> None:
    """Takes steps until the ranks stop, and writes down in which: rank 1 is told to in the step `told`."""
    os.environ["DDPJOB_NAME"] = "any"
    signalled = 0.0
    for stage in stages:
        join(rank, stage)
        last = stage is stages[-1]
        step, stops = 0, False
        while not stops and (last or step < 3):
            step += 1
            time.sleep(0.005 * (rank == step % SIZE))  # Another rank is the slowest one each time.
            if last and (rank, step) == (1, told):
                signalled = time.monotonic()
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(seconds)
            dist.all_reduce(torch.ones(8))
            stops = ddpjob.stop_requested()
        dist.destroy_process_group()
        if isinstance(stage, int):
            wait_for_the_servers_end(directory / "server.over", rank, stage)
    after = time.monotonic() - signalled if signalled else 0.0
    (directory / f"{rank}.json").write_text(json.dumps([step, after]))


def wait_for_the_servers_end(mark: Path, rank: int, port: int) -> None:
    """Waits until the server of a group is gone, as rank 0 sees and says.

    PyTorch leaves that to scripts: a rank that came to the old server for the next group would be lost with it.
    """
    if rank == 0:
        wait_for("the end of the server", lambda: not listens(port))
        mark.touch()
    else:
        wait_for("rank 0 to see the end of the server", mark.exists)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("localhost", port)) == 0


def finish(ranks: list[Any]) -> list[int | None]:
    """Starts processes, and returns their exit codes."""
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(patience(DEADLINE_SECONDS))
    return [rank.exitcode for rank in ranks]


def stopped(directory: Path, ranks: list[int]) -> list[Any]:
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in ranks]


@pytest.mark.parametrize(
    ("seconds", "stages"),
    [
        (0.0, lambda path: [f"{path}/store"]),
        (LONG_SECONDS, lambda path: [f"{path}/store"]),
        (0.0, lambda path: [f"{path}/store-1", f"{path}/store-2"]),
        (0.0, lambda _: [hold_port()] * 2),
    ],
    ids=["short steps", "long steps", "the second group of a script", "the second group at the same port"],
)
def test_all_ranks_stop_after_the_same_step(
    tmp_path: Path, seconds: float, stages: Callable[[Path], list[str | int]]
) -> None:
    told = random.randint(3, 5)
    same = {"stages": stages(tmp_path), "told": told, "seconds": seconds}
    assert (
        finish([FORKS.Process(target=train, args=(tmp_path, rank), kwargs=same) for rank in range(SIZE)]) == [0] * 3
    )
    steps, after = zip(*stopped(tmp_path, [0, 1, 2]), strict=True)
    assert len(set(steps)) == 1
    assert after[1] < patience(SOON_SECONDS)
    if seconds:
        assert steps[0] == told, "in the step in which it was told to"


def go_alone(directory: Path, rank: int, *, told: dict[int, int], killed: dict[int, int], silent: int) -> None:
    """Takes steps without collectives, until the rank stops, or is killed in a step. The rank `silent` never asks."""
    os.environ["DDPJOB_NAME"] = "any"
    sys.stderr = (directory / f"{rank}.err").open("w", buffering=1)
    for wish in agreement_rules.PATIENCE_SECONDS:
        agreement_rules.PATIENCE_SECONDS[wish] = 1.0
    agreement_rules.RETURN_SECONDS = 0.2  # Shorter than that, as usual.
    join(rank, f"{directory}/store")
    step, stops = 0, False
    while not stops:
        step += 1
        time.sleep(0.01)
        if step == killed.get(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == silent:
            stops = len([*directory.glob("*.json")]) == SIZE - 1
            continue
        stops = ddpjob.stop_requested()
        if step == told.get(rank):  # Not in the first step, before which nothing handles the signal.
            os.kill(os.getpid(), signal.SIGTERM)
    (directory / f"{rank}.json").write_text(json.dumps(step))
    os._exit(0)  # The group's end would wait for the others.


@pytest.mark.parametrize("killed", [0, 2])
def test_ranks_stop_although_another_was_killed(killed: int, tmp_path: Path) -> None:
    """Those that are left agree, unless rank 0 is gone, which leads: then each stops when it is told to itself."""
    rest = [rank for rank in range(SIZE) if rank != killed]
    told = {1: random.randint(1, 60)} if killed else {rank: random.randint(20, 60) for rank in rest}
    same = {"told": told, "killed": {killed: random.randint(2, 60)}, "silent": -1}
    codes = finish([FORKS.Process(target=go_alone, args=(tmp_path, rank), kwargs=same) for rank in range(SIZE)])
    assert codes.pop(killed) in {-signal.SIGKILL, 0}, "it may have stopped before, with the others"
    assert codes == [0, 0]
    steps = stopped(tmp_path, rest)
    if killed:
        assert steps[0] == steps[1]


def test_a_rank_that_does_not_ask_is_named_and_the_others_stop_when_they_are_told_to(tmp_path: Path) -> None:
    same = {"told": {0: 5, 1: 5}, "killed": {}, "silent": 2}
    assert (
        finish([FORKS.Process(target=go_alone, args=(tmp_path, rank), kwargs=same) for rank in range(SIZE)])
        == [0] * 3
    )
    told = (tmp_path / "0.err").read_text().splitlines()
    assert [line.partition(",")[0] for line in told] == ["warning: rank 2 never called ddpjob.stop_requested()"]
