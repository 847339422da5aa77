"""What a program can find out about its resumption."""

from dataclasses import dataclass

from ddpjob_rank.console import warn

from .named import Named
from .saver import Saved, TrainingSaver


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a training goes on."""

    step: int
    """The number of steps that were finished before."""
    epoch: int
    """The epoch in which training resumes, from 0."""
    path: str
    """The path or URL of the checkpoint. Empty on ranks other than 0, which receive the checkpoint from rank 0."""
    changes: tuple[str, ...] = ()
    """What differs from the training that saved the checkpoint, in words."""


def restore(named: Named, saved: Saved, saver: TrainingSaver) -> Resumed:
    """Restores the named objects, and prints what differs from the training that saved the checkpoint.

    Raises:
        ConfigError: A state does not fit its object.
    """
    named.arrange(saved.ranks[0].get("buckets") or {})
    changes = tuple(named.load(saver.shared_state(saved, named.objects)))
    if saver.world.leads:
        for change in changes:
            warn(f"resumed: {change}")
    epoch = saved.ranks[0].get("epoch", saved.state["position"][1] - 1)  # ddpjob-train saves no such number.
    return Resumed(saved.step, epoch, saved.location, changes)
