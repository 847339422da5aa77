"""Measures what it costs to read each checkpoint back before older ones are removed: CPU and wall time of a save.

The same state is saved with and without reading back, in turn.
"""

import time
from dataclasses import replace
from pathlib import Path

import torch
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.encoding import encode
from ddpjob_rank.manifests.manifest import Manifest

from bench import pairs
from bench.table import Row

BYTES_OF_A_NUMBER = 4


class Unread(CheckpointDirectory):
    """Checkpoints that are not read back after a save."""

    def _is_good(self, path: Path) -> bool:
        return path.exists()


def measure(directory: Path, *, megabytes: int, count: int) -> list[Row]:
    """Compares `count` pairs of saves of a state of `megabytes`."""
    weights = {"model": torch.randn(megabytes * 1_000_000 // BYTES_OF_A_NUMBER)}
    saved = Manifest(0, 1, 0, 1, 1, "", (0,))

    def save(files: CheckpointDirectory) -> tuple[float, float]:
        nonlocal saved
        saved = replace(saved, step=saved.step + 1)
        wall, cpu = time.perf_counter(), time.process_time()
        files.write(saved, lambda file: encode(weights, file))
        return time.process_time() - cpu, time.perf_counter() - wall

    read, unread = CheckpointDirectory(directory / "read", keep=1), Unread(directory / "unread", keep=1)
    for files in (read, unread):
        save(files)  # Otherwise the first measured save would have no older checkpoint to remove.
    found = pairs.in_turn(count, lambda: save(read), lambda: save(unread))
    names = (f"CPU time of a save of {megabytes} MB, read back", "the same, from begin to end")
    return [
        pairs.ratio(name, [(mine[number], other[number]) for mine, other in found], "s")
        for number, name in enumerate(names)
    ]
