"""Options of checkpoints."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.parsing import count_of, positive, positive_float

DEFAULT_KEEP = 3
AUTO: Final = "auto"
Seconds = float | Literal["auto"]
"""An interval, or the one that loses the least according to what was observed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """Where and when to save. Without an interval: at the end of each epoch. Always at the end of training."""

    directory: Path
    every_steps: int | None = None
    every_seconds: Seconds | None = None
    keep: int = DEFAULT_KEEP
    """How many checkpoints stay; older ones are removed once a new one is in place."""
    start_over: bool = False
    """Whether to begin at step 0 if none of the checkpoints that are there can be used."""
    allow_other_data: bool = False
    """Whether to go on from a checkpoint that was saved with another seed or other data."""
    mean_time_to_failure: float | None = None
    """Of this job, in seconds, for the automatic interval; None: not known."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("checkpoints")
    group.add_argument("--checkpoint-dir", type=Path, help="where to save and resume; without it nothing is saved")
    interval = group.add_mutually_exclusive_group()
    interval.add_argument("--checkpoint-every-steps", type=positive, help="default: at the end of each epoch")
    interval.add_argument(
        "--checkpoint-every-seconds", type=_interval, help="as above; auto: what loses the least time"
    )
    group.add_argument("--checkpoint-keep", type=positive, help=f"how many stay (default {DEFAULT_KEEP})")
    group.add_argument(
        "--start-over",
        action="store_true",
        help="begin at step 0 if no checkpoint there can be used (default: fail); has no effect while one can be",
    )
    group.add_argument(
        "--allow-other-data",
        action="store_true",
        help="go on from a checkpoint though --seed or the data is another than when it was saved (default: fail)",
    )


def read(flags: argparse.Namespace, env: Mapping[str, str]) -> CheckpointConfig | None:
    """What flags and environment ask for; None: nothing is saved.

    Raises:
        ConfigError: A variable has a value that it cannot have, or there is no directory for what is asked.
    """
    directory = flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR)
    if not directory:
        if flags.checkpoint_every_steps or flags.checkpoint_every_seconds or flags.checkpoint_keep:
            raise ConfigError("--checkpoint-... without a directory: name it with --checkpoint-dir")
        for permission in ("start_over", "allow_other_data"):
            if getattr(flags, permission):
                name = permission.replace("_", "-")
                raise ConfigError(f"--{name} without a directory: name it with --checkpoint-dir")
        return None
    every_steps, every_seconds = flags.checkpoint_every_steps, flags.checkpoint_every_seconds
    if every_steps is None and every_seconds is None:
        every_steps = count_of(env, Env.CHECKPOINT_EVERY_STEPS)
        every_seconds = _seconds(env, Env.CHECKPOINT_EVERY_SECONDS)
    return CheckpointConfig(
        directory=Path(directory),
        every_steps=every_steps,
        every_seconds=every_seconds,
        keep=flags.checkpoint_keep or count_of(env, Env.CHECKPOINT_KEEP) or DEFAULT_KEEP,
        start_over=flags.start_over,
        allow_other_data=flags.allow_other_data,
        mean_time_to_failure=count_of(env, Env.MEAN_TIME_TO_FAILURE),
    )


def _seconds(env: Mapping[str, str], name: str) -> Seconds | None:
    if env.get(name, "").lower() == AUTO:
        return AUTO
    try:
        return count_of(env, name)
    except ConfigError as error:
        raise ConfigError(f"{error}, or Auto") from None


def _interval(text: str) -> Seconds:
    if text.lower() == AUTO:
        return AUTO
    try:
        return positive_float(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor auto") from None
