"""Ranks with batches of their own, of which one has more than another."""

import torch
from ddpjob_rank.world import World
from ddpjob_trainer.data.feed import Uneven


def test_in_a_world_in_which_more_has_been_seen_than_there_is_nothing_is_left() -> None:
    fed = Uneven([(torch.ones(1, 1), None)] * 3, World(), torch.device("cpu"), batch_size=1, seed=0)
    assert [fed.left(samples) for samples in (0, 2, 3, 7)] == [3, 1, 0, 0]
