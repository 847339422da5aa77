"""Ranks that do nothing but agree."""

import json
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.world import World
from ddpjob_trainer.group.collective_agreement import CollectiveAgreement

WISHED_AFTER = 5


def agree(directory: Path, world: World, seconds: float, wishing: int) -> None:
    """Takes steps of so many seconds until all are to stop, and writes down after which step that was.

    One rank wishes to stop after its fifth step.
    """
    if not world.alone:
        store = dist.FileStore(f"{directory}/store", world.world_size)  # type: ignore[attr-defined]
        size, patience = world.world_size, timedelta(seconds=60)
        dist.init_process_group("gloo", store=store, rank=world.rank, world_size=size, timeout=patience)
    agreement = CollectiveAgreement(world)
    step, decision, wish = 0, Wish.NOTHING, Wish.NOTHING
    while decision is not Wish.STOP:
        time.sleep(seconds)
        step += 1
        if world.rank == wishing and step == WISHED_AFTER:
            wish = Wish.STOP
        decision = agreement.decision()
        agreement.propose(lambda: wish, busy_seconds=world.rank + 1)  # noqa: B023  (asked at once)
    agreement.finish()
    (directory / f"{world.rank}.json").write_text(json.dumps({"step": step, "own": agreement.rank_seconds}))
    if not world.alone:
        dist.barrier()
