"""Every fault, at every place of a job's life: the job comes to the same end, by the same objects."""

import pytest

from .conftest import Matrix
from .plan import Plan
from .plans import PLANS


@pytest.mark.timeout(660)
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_life_comes_to_the_same_end(plan: Plan, matrix: Matrix) -> None:
    outcome = matrix.outcome(plan)
    print(outcome.story)
    if outcome.wrong:
        pytest.fail("\n".join(outcome.wrong), pytrace=False)
