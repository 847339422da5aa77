"""Mistakes in a task that would go unnoticed: training would go on, and learn nothing."""

from collections.abc import Sized

from ddpjob_rank.console import counted, listed, warn
from ddpjob_rank.errors import ConfigError
from torch import nn
from torch.optim import Optimizer

NAMED = 3


def check_sampler(loader: object) -> None:
    """Makes sure that a DataLoader's sampler is over the data set of the loader.

    One over a smaller data set silently leaves samples out.

    Raises:
        ConfigError: It is over a data set of another length.
    """
    data, sampler = getattr(loader, "dataset", None), getattr(loader, "sampler", None)
    # A DistributedSampler has it as dataset, PyTorch's other samplers as data_source.
    sampled = getattr(sampler, "dataset", getattr(sampler, "data_source", None))
    if isinstance(data, Sized) and isinstance(sampled, Sized) and len(data) != len(sampled):
        raise ConfigError(
            f"the loader's data set has {counted(len(data), 'sample')}, but its sampler is over another one"
            f" of {len(sampled)}: make both over the same, as in DataLoader(data, sampler=DistributedSampler(data))"
        )


def check_optimizer(optimizer: Optimizer, model: nn.Module, *, aloud: bool) -> None:
    """Makes sure that the optimizer trains the model; parameters that it leaves out are reported, if `aloud`.

    Their gradients are computed and exchanged for nothing, and grow: an optimizer clears only those that it has.

    Raises:
        ConfigError: It has none of the model's parameters.
    """
    had = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    trainable = {name: id(value) for name, value in model.named_parameters() if value.requires_grad}
    left_out = [name for name, parameter in trainable.items() if parameter not in had]
    if trainable and len(left_out) == len(trainable):
        raise ConfigError(
            "the task's optimizer has none of the model's parameters, so nothing would be learned: make it of those"
            " of the model that it is given, optimizer(self, model)"
        )
    if left_out and aloud:
        warn(
            f"the optimizer has not these parameters of the model, which never change: {listed(left_out, NAMED)}; if"
            " that is meant, requires_grad_(False) spares the work for their gradients"
        )
