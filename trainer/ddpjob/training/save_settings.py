"""Where and when a training run saves: arguments win over the job's environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Literal

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.storage import checked_address
from ddpjob_rank.parsing import count_of

from ddpjob.checkpoint.reading import PATIENCE_SECONDS

AUTO: Literal["auto"] = "auto"
DEFAULT_KEEP = 3

GRACE_SECONDS, STOP_SHARE = 30.0, 1 / 3
"""The usual time between SIGTERM and SIGKILL, and the part of it in which the ranks' own states have to arrive. The
rest is for their agreement and for the writing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveSettings:
    """Where and when to save, and for which job."""

    uid: str
    attempt: int
    directory: str | None = None
    """Where to save; None: nothing is saved."""
    every_steps: int | None = None
    every_seconds: float | Literal["auto"] | None = None
    """If there is neither a number of steps nor of seconds, the end of each epoch is saved."""
    keep: int = DEFAULT_KEEP
    on_nonfinite: Literal["stop", "ignore"] = "stop"
    mean_time_to_failure: float | None = None
    """Mean seconds between failures of this job, for the automatic interval; None if unknown."""
    stop_seconds: float = GRACE_SECONDS * STOP_SHARE
    """How long rank 0 waits for the other ranks' states if the job is to stop."""
    waits: bool = False
    """Whether a save waits until the previous one is written. If not, the save is skipped, and made up for
    afterwards."""
    start_over: bool = False
    """Whether to begin at step 0 if no checkpoint can be used."""
    retry_seconds: float = PATIENCE_SECONDS
    """How long to keep trying if a checkpoint cannot be read."""


def read_settings(
    directory: str | os.PathLike[str] | None,
    *,
    every_steps: int | None,
    every_seconds: float | Literal["auto"] | None,
    keep: int | None,
    on_nonfinite: Literal["stop", "ignore"] = "stop",
    env: Mapping[str, str] | None = None,
) -> SaveSettings:
    """The settings from a program's arguments and its environment.

    Raises:
        ConfigError: An argument or a variable has an invalid value.
    """
    env = os.environ if env is None else env
    if every_steps is not None and every_seconds is not None:
        raise ConfigError("every_steps and every_seconds exclude each other: pass only one of them")
    if every_steps is None and every_seconds is None:
        every_steps = count_of(env, Env.CHECKPOINT_EVERY_STEPS)
        automatic = env.get(Env.CHECKPOINT_EVERY_SECONDS, "").lower() == AUTO
        every_seconds = AUTO if automatic else count_of(env, Env.CHECKPOINT_EVERY_SECONDS)
    _check_positive("every_steps", every_steps, int)
    _check_positive("every_seconds", None if every_seconds == AUTO else every_seconds, int | float, f' or "{AUTO}"')
    _check_positive("keep", keep, int)
    if on_nonfinite not in {"stop", "ignore"}:
        raise ConfigError(f'on_nonfinite is {on_nonfinite!r}: it must be "stop" or "ignore"')
    attempt = env.get(Env.ATTEMPT, "")
    address = os.fspath(directory) if directory is not None else env.get(Env.CHECKPOINT_DIR) or None
    if address is not None:
        checked_address(address)  # Only rank 0 opens the address, but all ranks report that it is wrong.
    return SaveSettings(
        directory=address,
        every_steps=every_steps,
        every_seconds=every_seconds,
        keep=keep or count_of(env, Env.CHECKPOINT_KEEP) or DEFAULT_KEEP,
        on_nonfinite=on_nonfinite,
        uid=env.get(Env.UID, ""),
        attempt=int(attempt) if attempt.isdecimal() else 0,
        stop_seconds=stop_seconds(env),
        mean_time_to_failure=count_of(env, Env.MEAN_TIME_TO_FAILURE),
    )


def stop_seconds(env: Mapping[str, str]) -> float:
    """How long rank 0 waits for the other ranks' states if the job is to stop: a part of the job's grace period."""
    grace = env.get(Env.GRACE_PERIOD_SECONDS, "")
    return (int(grace) if grace.isdecimal() else GRACE_SECONDS) * STOP_SHARE


def _check_positive(name: str, value: object, kind: type | UnionType, otherwise: str = "") -> None:
    if value is not None and not (isinstance(value, kind) and not isinstance(value, bool) and value > 0):  # type: ignore[operator]
        number = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name} is {value!r}: it must be {number} above 0{otherwise}")
