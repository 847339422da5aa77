"""The operator is not slower beside a client that does nothing else, nor dearer, than its floors permit.

It has the machine to itself: what else there is to do weighs on both, and not on both alike.
"""

import asyncio

import pytest

from bench.operator import report
from bench.operator.contestants import DDPJOB
from bench.operator.scenarios import shares
from bench.operator.stage import Figures, a_stage
from tests.plant.needs import demand


@pytest.mark.timeout(900)
def test_the_operator_is_not_slower_beside_a_client_than_its_floors() -> None:
    demand("fake")
    rows = report.targets({DDPJOB.title: {"shares": [asyncio.run(_measured())]}})
    missed = [f"{row.what}: {row.found}, where {row.target}" for row in rows if row.met is False]
    assert not missed, f"floors are changed by hand alone, in {report.FLOORS.name}: {missed}"


async def _measured() -> Figures:
    async with a_stage(DDPJOB, nodes=8, node_grace_seconds=60, quick=False) as stage:
        return await shares(stage)
