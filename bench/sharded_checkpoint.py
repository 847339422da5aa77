"""Measures how long a save of sharded state keeps training waiting, beside torch.distributed.checkpoint (DCP) itself.

Two processes over gloo hold a model divided by `fully_shard`, and its Adam state. They take turns to save with
DDPJob, with DCP's `async_save`, and with DCP's `save`, which blocks. Because of the turns, other load on the machine
affects all three. Each save ends before the next one begins. Exits with 1 if DDPJob keeps training waiting for more
than a given share of the time of the blocking save.
"""

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.divided import state_of
from ddpjob.checkpoint.sharded import ShardedSaver
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.world import World
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim import Adam

from bench.rounds import RANKS, flags_of, measured

BOUND = 0.3
WIDTH, BATCH = 512, 8
STATE_BYTES_PER_WEIGHT = 3 * 4
"""The bytes of a weight and of its two moments in Adam."""
WAYS = ("ours", "async_save", "save")


class Bench:
    """One process of the training."""

    def __init__(self, place: World, directory: Path, size: int) -> None:
        self._model = nn.Sequential(
            *(nn.Linear(WIDTH, WIDTH) for _ in range(max(1, size // (STATE_BYTES_PER_WEIGHT * WIDTH * WIDTH))))
        )
        for layer in (*self._model, self._model):
            fully_shard(layer)
        self._things = {"model": self._model, "optimizer": Adam(self._model.parameters())}
        self._directory, self._place, self._saves = directory, place, 0
        files = CheckpointDirectory(directory / "ours", keep=1) if place.leads else None
        group = dist.new_group(backend="gloo")
        self._saver = ShardedSaver(directory / "ours", files, place, self._things, group=group)

    def round(self) -> list[float]:
        """The seconds for which each way keeps training waiting."""
        return [self._stall(way) for way in (self._ours, self._async_save, self._save)]

    def _stall(self, way: Callable[[], Callable[[], object]]) -> float:
        self._model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        self._things["optimizer"].step()  # type: ignore[union-attr, operator]
        self._saves += 1
        dist.barrier()
        began = time.perf_counter()
        ended = way()
        seconds = time.perf_counter() - began
        ended()
        dist.barrier()
        if self._place.leads:
            for old in self._directory.glob("dcp-*"):
                shutil.rmtree(old)
        return seconds

    def _ours(self) -> Callable[[], object]:
        manifest = Manifest(self._saves, 0, 0, RANKS, BATCH, "", (0,))
        self._saver.begin(
            manifest, {name: state_of(thing) for name, thing in self._things.items()}, None, self._saves
        )
        return lambda: self._saver.finished(wait=True)

    def _async_save(self) -> Callable[[], object]:
        future: Any = dcp.async_save(self._state(), checkpoint_id=self._directory / f"dcp-{self._saves}")
        return future.result  # type: ignore[no-any-return]

    def _save(self) -> Callable[[], object]:
        dcp.save(self._state(), checkpoint_id=self._directory / f"dcp-{self._saves}")
        return lambda: None

    def _state(self) -> dict[str, Any]:
        return {name: thing.state_dict() for name, thing in self._things.items()}


def main() -> None:
    """Measures and prints the figures. Exits with 1 if the bound is exceeded."""
    with flags_of(__doc__, megabytes=200) as flags:
        rounds = measured(Bench, flags)
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    ratios = [statistics.median(one[way] / one[-1] for one in rounds) for way in range(len(WAYS))]
    for way, median, ratio in zip(WAYS, medians, ratios, strict=True):
        print(f"{way}: training waits {median * 1000:.1f} ms (median), {ratio:.2f} of a blocking save")
    sys.exit(ratios[0] > BOUND)


if __name__ == "__main__":
    main()
