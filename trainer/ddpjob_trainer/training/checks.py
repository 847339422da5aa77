"""Mistakes in a task that would not be seen: training would go on, and learn nothing."""

from torch import nn
from torch.optim import Optimizer

from ddpjob_trainer.console import warn
from ddpjob_trainer.errors import ConfigError

NAMED = 3


def check_optimizer(optimizer: Optimizer, model: nn.Module, *, aloud: bool) -> None:
    """Makes sure that the optimizer trains the model; parameters that it leaves out are told of, if `aloud`.

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
        named = ", ".join(left_out[:NAMED]) + (", …" if len(left_out) > NAMED else "")
        warn(
            f"the optimizer has not these parameters of the model, which never change: {named}; if that is meant,"
            " requires_grad_(False) spares the work for their gradients"
        )
