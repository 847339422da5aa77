"""What a program can find out about its resumption."""

from collections.abc import Mapping
from dataclasses import dataclass

from ddpjob_rank.console import say, warn

from .named import Named
from .saver import Saved, TrainingSaver


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a training run resumes.

        training = ddpjob.Training(model=model, optimizer=optimizer, directory="checkpoints")
        if training.resumed:
            print("goes on after step", training.resumed.step, *training.resumed.changes)

    `Training` and `Checkpoints` have it as their attribute `resumed`.
    """

    step: int
    """The number of steps that were finished before."""
    epoch: int
    """The epoch in which training resumes, from 0. Log lines, messages and the status count from 1."""
    path: str
    """The path or URL of the checkpoint. Empty on ranks that receive replicated state from rank 0."""
    changes: tuple[str, ...] = ()
    """What differs from the run that saved the checkpoint, in words: the number of processes, the number of samples
    and the batch size of the loader, and objects of which only one of the two runs has a state."""


def restore(named: Named, saved: Saved, saver: TrainingSaver, data: Mapping[str, int] | None = None) -> Resumed:
    """Restores the named objects, and prints what differs from the run that saved the checkpoint.

    `data` describes the loader, as `loader_parts.described` does.

    Raises:
        ConfigError: A state does not fit its object.
    """
    named.arrange(saved.ranks[0].get("buckets") or {})
    missing = named.load(saver.shared_state(saved, named.objects))
    former = saved.ranks[0].get("data_of", {})
    changed = [
        f"the {fact} changed from {former[fact]} to {value}"
        for fact, value in (data or {}).items()
        if former.get(fact, value) != value
    ]
    if saver.world.leads:
        for sentence in missing:
            warn(f"resumed: {sentence}")
        for sentence in changed:
            say(f"resumed: {sentence}")
    # Checkpoints of ddpjob-train have no "epoch".
    epoch = saved.ranks[0].get("epoch", saved.state["position"][1] - 1)
    ranks = len(saved.ranks), saver.world.world_size
    if ranks[0] != ranks[1]:  # This change is printed where the random generators are seeded.
        changed += ["the number of processes changed from {} to {}".format(*ranks)]
    return Resumed(saved.step, epoch, saved.location, (*missing, *changed))
