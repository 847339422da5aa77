"""Options of how a step is computed."""

import pytest
import torch
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.model.parallel import prepare_model
from ddpjob_trainer.options import ComputingConfig
from torch import Tensor, nn

CPU = torch.device("cpu")


class Layout(nn.Module):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.seen: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        self.seen = images
        return self.convolution(images)


@pytest.mark.parametrize("asked", [False, True])
def test_weights_and_images_are_laid_out_with_their_channels_last_if_asked_to(*, asked: bool) -> None:
    config = TrainConfig(computing=ComputingConfig(channels_last=asked))
    model = prepare_model(Layout(), config, World(), CPU)
    model(torch.zeros(2, 3, 8, 8))
    for tensor in (model.seen, model.convolution.weight):
        assert tensor.is_contiguous(memory_format=torch.channels_last) == asked
