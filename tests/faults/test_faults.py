"""Every fault, at every place of a job's life: the job comes to the same end, by the same objects."""

import os
from pathlib import Path

import pytest

from tests.plant.needs import leave_out

from .conftest import Matrix
from .page import record
from .plan import Plan
from .plans import PLANS, chosen

IN_FULL = pytest.mark.full("another plan shows the same thing, and another the same place (plans.py: chosen)")


# A connection that an operator opens in the moment in which it is killed may be accepted after the proxy has closed:
# asyncio leaves it to the garbage collector, which says so in whatever test is going on then.
UNCLOSED = "Exception ignored in. <(function _SelectorTransport|socket.socket)"


@pytest.mark.filterwarnings(f"ignore:{UNCLOSED}:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(660)
@pytest.mark.parametrize(
    "plan",
    [pytest.param(plan, id=plan.name, marks=() if plan.name in chosen() else IN_FULL) for plan in PLANS],
)
def test_a_life_comes_to_the_same_end(plan: Plan, matrix: Matrix) -> None:
    if plan.lacks:
        leave_out(f"left out: {plan.lacks}")
    outcome = matrix.outcome(plan)
    if "FAULT_MATRIX" in os.environ:
        record(Path(os.environ["FAULT_MATRIX"]), outcome, matrix.usual_seconds(plan))
    print(outcome.story)
    if outcome.wrong:
        pytest.fail("\n".join(outcome.wrong), pytrace=False)
