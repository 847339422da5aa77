"""Tables of moments of a job's life: a sentence, what is there, and what the engine makes of it."""

import pytest

from .builders import Scene, plan

Table = dict[str, tuple[Scene, str, str, str]]
"""By a sentence: the scene; the plan, as `plan` writes it; the state; what the status says the job does."""


def rows(table: Table) -> pytest.MarkDecorator:
    """One test for each row."""
    return pytest.mark.parametrize(("scene", "expected"), [(row[0], row[1:]) for row in table.values()], ids=table)


def verdict(scene: Scene) -> tuple[str, str, str]:
    """A decision in three words: the plan, the state, and what the status says the job does."""
    status = scene.decision.status or scene.status
    return plan(scene), str(status.state), status.message
