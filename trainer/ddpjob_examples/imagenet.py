"""ImageNet, or any images with classes, and the networks of torchvision that classify them."""

import difflib
from collections.abc import Mapping
from typing import Any

from ddpjob.group.collectives import all_gather
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.utils.data import Dataset

from ddpjob_examples.images.image import Sample, normalised
from ddpjob_examples.images.layout import image_classes

WITH_MORE_OUTPUTS = ("googlenet", "inception_v3")
"""Networks that return more than one output in training, unless `aux_logits` is False."""

TOP = 5


class ImageNetTask(Task):
    """Trains a network of torchvision like PyTorch's ImageNet example: SGD, and a rate that falls every 30 epochs."""

    epochs = 90
    batch_size = 32
    lr = 0.1
    momentum = 0.9
    weight_decay = 1e-4
    lr_scheduler = "steplr"
    workers = None

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        asked = config.images
        self.images = image_classes(config.data_dir, asked.size, skip_broken=asked.skip_broken)

    def model(self) -> nn.Module:
        """The network that `--arch` names, not pretrained, with as many outputs as the data has classes."""
        from torchvision import models  # noqa: PLC0415  (its import takes seconds)

        name, known = self.config.images.arch, models.list_models(module=models)
        if name not in known:
            near = difflib.get_close_matches(name, known)
            like = (
                f"such as {', '.join(near)}" if near else "https://pytorch.org/vision/stable/models.html names them"
            )
            raise ConfigError(f"--arch {name} is not a classification model of torchvision: {like}")
        only = {"aux_logits": False, "init_weights": True} if name in WITH_MORE_OUTPUTS else {}
        model: nn.Module = models.get_model(name, weights=None, num_classes=self.images.classes, **only)
        return model

    def train_data(self) -> Dataset[Sample]:
        """The images to train on. A different random part of an image is taken each time."""
        return self.images.train

    def inputs(self, samples: Tensor) -> Tensor:
        """Normalised images, as the networks expect them."""
        return samples if samples.is_floating_point() else normalised(samples)

    def test_data(self) -> Dataset[Sample] | None:
        """The held-out images, if there are any."""
        return self.images.test

    def broken_samples(self, world: World) -> int | None:
        """How many images were skipped on all ranks; None if `--skip-broken-images` is not given."""
        known = [data.broken for data in (self.images.train, self.images.test) if data and data.broken]
        for broken in known:
            for numbers in all_gather(broken.numbers(), world):
                broken.update(numbers)
        return sum(len(broken.numbers()) for broken in known) if self.config.images.skip_broken else None

    def metrics(self, output: Any, target: Any) -> Mapping[str, Tensor]:
        """How often the right class is the most likely class, and how often it is among the five most likely."""
        hits = output.topk(min(TOP, output.shape[1])).indices == target.unsqueeze(1)
        return {"top1": hits[:, 0].sum(), "top5": hits.sum()}
