"""In which step the ranks of a script stop, over real groups."""

import json
import os
import random
import signal
import time
from datetime import timedelta
from math import inf
from pathlib import Path

import ddpjob
import pytest
import torch
import torch.distributed as dist
from ddpjob_rank.reporting import vote

from tests.support.waiting import patience
from tests.training.forking import FORKS
from tests.training.ranks import DEADLINE_SECONDS

SIZE = 3


def train(directory: Path, rank: int, *, backend: str, long_seconds: float, told: int, stages: int) -> None:
    """Takes steps until the ranks stop, and writes down in which: rank 1 is told to in the step `told`."""
    os.environ["DDPJOB_NAME"] = "any"
    vote.LONG_SECONDS = long_seconds
    for stage in range(stages):
        store = dist.FileStore(f"{directory}/store-{stage}", SIZE)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=60))
        last = stage == stages - 1
        step, stops = 0, False
        while not stops and (last or step < 3):
            step += 1
            time.sleep(0.02 * (rank == step % SIZE))  # Another rank is the slowest one each time.
            if last and (rank, step) == (1, told):
                os.kill(os.getpid(), signal.SIGTERM)
            dist.all_reduce(torch.ones(8))
            stops = ddpjob.stop_requested()
        dist.destroy_process_group()
    (directory / f"{rank}.json").write_text(json.dumps(step))


@pytest.mark.parametrize(
    ("backend", "long_seconds", "stages", "later"),
    [("gloo", inf, 1, 1), ("cpu:gloo,cuda:gloo", inf, 2, 1), ("gloo", 0.0, 1, 0)],
    ids=["short steps", "the second group of a script", "long steps"],
)
def test_all_ranks_stop_after_the_same_step(
    tmp_path: Path, backend: str, long_seconds: float, stages: int, later: int
) -> None:
    told = random.randint(4, 8)
    same = {"backend": backend, "long_seconds": long_seconds, "told": told, "stages": stages}
    ranks = [FORKS.Process(target=train, args=(tmp_path, rank), kwargs=same) for rank in range(SIZE)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(patience(DEADLINE_SECONDS))
    assert [rank.exitcode for rank in ranks] == [0] * SIZE
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(SIZE)] == [told + later] * SIZE
