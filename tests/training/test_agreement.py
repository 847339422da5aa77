"""What ranks agree on, after which step."""

import json
from pathlib import Path

import pytest
from ddpjob_rank.world import World
from ddpjob_trainer.group.collective_agreement import MOST_STEPS, PERIOD_SECONDS

from tests.support.waiting import patience
from tests.training.agreeing import WISHED_AFTER, agree
from tests.training.forking import FORKS
from tests.training.ranks import DEADLINE_SECONDS

SHORT, LONG = PERIOD_SECONDS / 20, PERIOD_SECONDS * 1.5


@pytest.mark.parametrize(
    ("size", "seconds", "wishing", "at_most"),
    [
        (4, SHORT, 2, 2 * MOST_STEPS),
        (4, SHORT, 0, 2 * MOST_STEPS),
        (3, LONG, 2, 1),  # Proposed after a step, granted after the next.
        (1, LONG, 0, 1),
    ],
)
def test_all_are_granted_a_wish_of_one_after_the_same_step(
    tmp_path: Path, size: int, seconds: float, wishing: int, at_most: int
) -> None:
    ranks = [
        FORKS.Process(target=agree, args=(tmp_path, World(rank=rank, world_size=size), seconds, wishing))
        for rank in range(size)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(patience(DEADLINE_SECONDS))
    assert [rank.exitcode for rank in ranks] == [0] * size
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(size)]
    assert len({one["step"] for one in told}) == 1
    assert WISHED_AFTER < told[0]["step"] <= WISHED_AFTER + at_most
    assert told[0]["own"] == [rank + 1 for rank in range(size)], "rank 0 knows each rank's own part of a step"
