"""Batches: what a data set gives, and what is made of it."""

import torch
from ddpjob_trainer.data.loader import Loader

from tests.unit.trainer.test_batches import CPU, OpenedLate


def test_no_worker_inherits_what_a_data_set_has_opened_for_its_first_sample() -> None:
    loader = Loader(OpenedLate(), seed=0, device=CPU, workers=2)
    loader.batch(torch.arange(2))
    for opened_by, read_by in loader.batches(1, iter([torch.arange(4), torch.arange(4, 8)])):
        assert torch.equal(opened_by, read_by)
