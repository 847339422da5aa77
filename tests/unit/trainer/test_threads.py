"""What ranks make of cores, where a node has more of them than most machines that run tests."""

import pytest
import torch
from ddpjob_rank.world import World
from ddpjob_trainer import train
from ddpjob_trainer.config import TrainConfig


@pytest.mark.parametrize(
    ("said", "asked", "threads"),
    [(None, None, 3), ("5", None, 12), (None, 7, 7), ("5", 7, 7)],
    ids=["its share", "as it was given them", "as asked", "as asked all the same"],
)
def test_a_process_divides_only_what_nobody_has_divided_before(
    monkeypatch: pytest.MonkeyPatch, said: str | None, asked: int | None, threads: int
) -> None:
    of_torch = [12]
    monkeypatch.setattr(torch, "get_num_threads", lambda: of_torch[-1])
    monkeypatch.setattr(torch, "set_num_threads", of_torch.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    train._set_threads(TrainConfig(threads=asked), World(local_world_size=4, world_size=4))
    assert of_torch[-1] == threads
