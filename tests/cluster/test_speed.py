"""The operator is as fast, and as frugal, beside a client that does nothing else as when it was last measured.

It has the machine to itself (the Makefile's ALONE): what else there is to do weighs on both, and not on both alike.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tests.bench.operator import report
from tests.bench.operator.contestants import DDPJOB
from tests.bench.operator.scenarios import medians, pairs
from tests.bench.operator.stage import Figures, a_stage
from tests.plant.needs import demand

KEPT = 0.8
ENOUGH = 3
"""So many pairs are enough where each of them alone is fast enough."""
PAIRS, ROUNDS = 5, 3
"""Else the median of so many is to be, and as many more count with them: the machine may be busy."""


@pytest.mark.timeout(900)
def test_the_operator_is_not_slower_beside_a_client_than_recorded() -> None:
    demand("fake")
    least = {what: KEPT * share for what, share in report.recorded().items()}
    found = asyncio.run(_measured(least))
    lost = {what: (found[what], wanted) for what, wanted in least.items() if found[what] < wanted}
    assert not lost, f"below {KEPT:.0%} of {report.RATIOS.name} (median found, least): {lost}"


async def _measured(least: Figures) -> Figures:
    measured: list[Figures] = []
    async with a_stage(DDPJOB, nodes=4, node_grace_seconds=60, quick=False) as stage:
        async for pair in pairs(stage):
            measured.append(pair)
            if _is_clear(measured, least):
                break
    return medians(measured)


def _is_clear(measured: Sequence[Figures], least: Figures) -> bool:
    """Whether no more pairs are needed."""
    if len(measured) == ENOUGH:
        return all(_reaches(one, least) for one in measured)
    if len(measured) % PAIRS:
        return False
    return len(measured) == PAIRS * ROUNDS or _reaches(medians(measured), least)


def _reaches(found: Figures, least: Figures) -> bool:
    return all(found[what] >= wanted for what, wanted in least.items())
