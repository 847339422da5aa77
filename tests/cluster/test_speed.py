"""The operator is as fast, and as frugal, beside a client that does nothing else as when it was last measured."""

import asyncio

import pytest

from tests.bench.operator import report
from tests.bench.operator.contestants import DDPJOB
from tests.bench.operator.scenarios import shares
from tests.bench.operator.stage import Figures, a_stage
from tests.plant.needs import demand

TRIES = 5
"""The machine may be busy: the best of so many counts."""
KEPT = 0.8


@pytest.mark.timeout(900)
def test_the_operator_is_not_slower_beside_a_client_than_recorded() -> None:
    demand("fake")
    least = {figure: KEPT * share for figure, share in report.recorded().items()}
    best = asyncio.run(_best(least))
    lost = {figure: (best[figure], wanted) for figure, wanted in least.items() if best[figure] < wanted}
    assert not lost, f"below {KEPT:.0%} of docs/reference/performance.json (best of {TRIES}, least): {lost}"


async def _best(least: Figures) -> Figures:
    best = dict.fromkeys(least, 0.0)
    async with a_stage(DDPJOB, nodes=4, node_grace_seconds=60, quick=False) as stage:
        for _ in range(TRIES):
            found = await shares(stage)
            print(found)
            best = {figure: max(best[figure], found[figure]) for figure in best}
            if all(best[figure] >= least[figure] for figure in best):
                break
    return best
