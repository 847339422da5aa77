"""The trials of the full preflight, with a point before the sum over all ranks."""

from typing import Any

from ddpjob_preflight import collective
from ddpjob_preflight.plan import Kind, Outcome, PlanStep

from tests.training.faults.holds import reach

_try = collective.Trials._try


def _reach_and_try(trials: Any, step: PlanStep) -> Outcome:
    if step.kind is Kind.ALL:
        reach("preflight")
    return _try(trials, step)


collective.Trials._try = _reach_and_try  # type: ignore[method-assign]

if __name__ == "__main__":
    collective.main()
