"""Options of what is recorded."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddpjob_rank.environment import Env

METRICS = "metrics"
"""Name of the directory within that of the checkpoints."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingConfig:
    """Where rank 0 keeps its record of the training."""

    directory: Path | None = None
    """None: it is not recorded."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("what is recorded")
    group.add_argument(
        "--log-dir",
        type=Path,
        help=f"where rank 0 writes metrics.jsonl (default: {METRICS} in --checkpoint-dir, where that is given)",
    )


def read(flags: argparse.Namespace, env: Mapping[str, str]) -> RecordingConfig:
    """What flags and environment ask for."""
    if flags.log_dir:
        return RecordingConfig(directory=flags.log_dir)
    checkpoints = flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR)
    return RecordingConfig(directory=Path(checkpoints) / METRICS if checkpoints else None)
