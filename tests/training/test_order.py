"""The order of samples, whatever the number of processes."""

import torch
from ddpjob_examples.mlp import MlpTask
from torch import Tensor

from tests.training.runs import Runs


class Drawing(MlpTask):
    """Says what its model draws in a step, as dropout does."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        print(f"drew {torch.rand(1).item()}")
        return super().loss(output, target)


def test_each_rank_draws_other_numbers_and_the_same_in_each_start_of_a_seed(runs: Runs) -> None:
    def drawn(*seed: object) -> list[list[str]]:
        run = runs.train(2, "--workload", f"{__name__}:Drawing", "--max-steps", 2, *seed)
        # The first is the warm-up's, and an evaluation follows.
        return [
            [line for line in run.output(rank).splitlines() if line.startswith("drew ")][1:3] for rank in range(2)
        ]

    first, again, other = drawn(), drawn(), drawn("--seed", 1)
    assert first == again
    assert len({number for ranks in (first, other) for rank in ranks for number in rank}) == 8
