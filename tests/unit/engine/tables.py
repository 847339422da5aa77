"""Tables of moments of a job's life: a sentence, what is there, and what the engine makes of it."""

import pytest

from .builders import Moment, plan

Table = dict[str, tuple[Moment, str, str, str]]
"""By a sentence: the moment; the plan, as `plan` writes it; the state; what the status says the job does."""


def rows(table: Table) -> pytest.MarkDecorator:
    """One test for each row."""
    return pytest.mark.parametrize(("moment", "expected"), [(row[0], row[1:]) for row in table.values()], ids=table)


def verdict(moment: Moment) -> tuple[str, str, str]:
    """A decision in three words: the plan, the state, and what the status says the job does."""
    status = moment.decision.status or moment.status
    return plan(moment), str(status.state), status.message
