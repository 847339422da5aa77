"""Masks secrets in the data of runs."""

from collections.abc import Iterable
from dataclasses import replace

from ddpjob_operator.view_model import Mask

from .run_data import Kept, LastLines, RunData


def masked(runs: Iterable[RunData]) -> list[RunData]:
    """The data of runs without secrets. What is a secret in one of them is masked in all."""
    mask, found = Mask(), [*runs]
    for run in found:
        _masked(mask, run)  # The first pass recognizes all secrets, so that the second can mask them everywhere.
    return [_masked(mask, run) for run in found]


def _masked(mask: Mask, found: RunData) -> RunData:
    return replace(
        found,
        job=found.job and mask.job(found.job),
        recorded=mask.records(found.recorded),
        stacks=[replace(one, story=mask.script(one.story)) for one in found.stacks],
        printed=mask.records(found.printed),
        kept=found.kept and _kept(mask, found.kept),
        last_lines=found.last_lines and _last_lines(mask, found.last_lines),
    )


def _last_lines(mask: Mask, said: LastLines) -> LastLines:
    # As one text: a secret may go on in the next line.
    return replace(said, lines=mask.script("\n".join(said.lines)).split("\n"))


def _kept(mask: Mask, kept: Kept) -> Kept:
    incidents = [one.model_copy(update={"message": mask.script(one.message)}) for one in kept.incidents]
    return replace(kept, incidents=incidents)
