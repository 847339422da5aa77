"""Masks secrets in the data of a run."""

from dataclasses import replace

from ddpjob_operator.view_model import Mask

from .run_data import Kept, LastLines, RunData


def masked(found: RunData) -> RunData:
    """The data of a run without secrets."""
    mask = Mask()
    _masked(mask, found)  # The first call recognizes all secrets, so that the second can mask them everywhere.
    return _masked(mask, found)


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
