"""The progress that a training program posts in Kubeflow's protocol, besides what its heartbeat says. Pure.

A document is `{"trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": "0.5"}, …]}}`, as
Hugging Face's Trainer sends it.
(https://github.com/kubeflow/trainer/tree/master/docs/proposals/2779-trainjob-progress) It comes at most every few
seconds, while steps are counted one by one. So it says which step a counted one is, and the total; the count goes on
from there.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpjob_rank.reporting.heartbeat import LARGEST
from ddpjob_rank.reporting.teller import TRAINING
from msgspec.structs import replace

from .beat import Beat

METRICS = 32
NAME_CHARACTERS = 64
"""Metrics beyond these are left out."""

STEP, TOTAL, LOSS, EPOCHS = "current_step", "total_steps", "loss", ("current_epoch", "epoch")
"""Metrics that mean the same in Hugging Face's Trainer as in a heartbeat."""


@dataclass(frozen=True, slots=True)
class Post:
    """What a program has last posted."""

    at: float
    """By the monotonic clock."""
    step: int | None = None
    total: int | None = None
    estimate: int | None = None
    """The total, computed from the posted share of it that the steps counted so far are."""
    epoch: int | None = None
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    ahead: int = 0
    """By how much the step exceeds the steps that were counted at that moment."""

    def after(self, former: "Post | None") -> "Post":
        """The same with what was posted before and is missing in it: the very last post has no steps."""
        if former is None:
            return self
        known = {name: getattr(former, name) for name in ("total", "epoch", "loss") if getattr(self, name) is None}
        if self.step is None:
            known |= {"at": former.at, "step": former.step, "ahead": former.ahead}
        return dataclasses.replace(self, **known)


def read_post(content: bytes, beat: Beat | None, now: float) -> Post:
    """The content of a document that was posted by a process with this heartbeat at that moment.

    Raises:
        ValueError: It is not such a document.
    """
    try:
        status = json.loads(content)["trainerStatus"]
        told = {_name(one["name"]): _number(one["value"]) for one in (status.get("metrics") or ())[:METRICS]}
        percent = _number(status.get("progressPercentage"))
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"it is no trainerStatus: {type(error).__name__}: {error}") from None
    counted = beat.step if beat is not None and beat.counted else None
    step, total, *epochs = (told.pop(name, None) for name in (STEP, TOTAL, *EPOCHS))
    whole = _whole(step)
    return Post(
        at=now,
        step=whole,
        total=_whole(total) or None,
        estimate=_whole(counted * 100 / percent) if counted and percent else None,
        epoch=next((_epoch(epoch) for epoch in epochs if epoch is not None), None),
        loss=told.pop(LOSS, None),
        metrics={name: value for name, value in told.items() if value is not None},
        ahead=0 if whole is None or counted is None else whole - counted,
    )


def merged(beat: Beat | None, post: Post | None, attempt: int, now: float) -> Beat | None:
    """What rank 0 reports in both ways. Its heartbeat takes precedence over its posts."""
    if post is None:
        return beat
    if beat is None:
        beat = Beat(rank=0, attempt=attempt, activity="starting")
    if beat.step is None and post.step:
        beat = replace(beat, step=post.step, step_age=max(0.0, now - post.at), activity=TRAINING)
    elif beat.step is not None and beat.counted and post.step is not None:
        first = None if beat.first_step is None else max(0, beat.first_step + post.ahead)
        beat = replace(beat, step=max(0, beat.step + post.ahead), first_step=first, counted=False, anew=False)
    return replace(
        beat,
        total_steps=beat.total_steps or post.total or post.estimate,
        epoch=post.epoch if beat.epoch is None else beat.epoch,
        loss=post.loss if beat.loss is None else beat.loss,
        metrics={**post.metrics, **beat.metrics},
    )


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS:
        raise ValueError(f"the name of a metric is a text of at most {NAME_CHARACTERS} characters")
    return value


def _number(value: Any) -> float | None:
    """A number, which is posted as a text; None: it is not one."""
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _epoch(done: float | None) -> int | None:
    """The present epoch, which counts from 1, where 1.2 of them are done: the second."""
    return None if _whole(done) is None or done is None else max(1, math.ceil(done))


def _whole(number: float | None) -> int | None:
    if number is None or not math.isfinite(number) or not 0 <= number <= LARGEST:
        return None
    return round(number)
