"""For every fault, at every place of a job's life, the job reaches the same end, with the same objects."""

import os
from pathlib import Path

import pytest

from tests.plant.needs import leave_out

from .conftest import Matrix
from .faults import Answer, Fault, On
from .lives import BRIEF
from .page import record
from .plan import Family, Plan
from .plans import PLANS, chosen

IN_FULL = pytest.mark.full("another plan shows the same thing, and another the same place (plans.py: chosen)")


# If an operator opens a connection at the moment when it is killed, the connection may be accepted after the proxy
# has closed. asyncio leaves it to the garbage collector, which warns during whichever test runs at that time.
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


NEVER = Fault(On("delete", "nodes"), Answer(409, "Conflict"))


@pytest.mark.timeout(660)
@pytest.mark.parametrize("plan", [Plan("never", Family.ERROR, faults=(NEVER,), life=BRIEF)], ids=str)
def test_a_fault_that_strikes_nowhere_is_no_proof(plan: Plan, matrix: Matrix) -> None:
    outcome = matrix.outcome(plan)
    assert outcome.wrong == [f"the fault never struck: {NEVER}"], outcome.story
