"""Gives a resumed DistributedDataParallel model the gradient buckets that it had in the saved run.

DistributedDataParallel rearranges its buckets after its first backward pass, in the order in which the gradients
arrived. With three or more ranks, the order of a sum depends on the layout of the buckets. So the first step after a
resumption would differ in the last bits from the same step of an uninterrupted run.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

KNOWN, FIRST = "rebuilt_per_bucket_param_indices", "prev_iteration_grad_ready_order_indices"
"""Keys of DDP's logging data: the order of the parameters in the buckets and, until that is known, the order in which
their gradients arrived."""

Orders = dict[str, list[int]]
"""For each model, by its name, the numbers of its parameters in the order of its buckets."""


def orders(models: Iterable[tuple[str, nn.Module]]) -> Orders:
    """The orders of the models. Models with an unknown order are left out."""
    known = ((name, _order(ddp)) for name, ddp in _wrapped(models))
    return {name: order for name, order in known if order}


def arrange(models: Iterable[tuple[str, nn.Module]], saved: Mapping[str, list[int]]) -> None:
    """Makes models use buckets in these orders from the first step on. All ranks call it together.

    Call it before the states are restored: it runs a backward pass, with gradients of zero.
    """
    for name, ddp in _wrapped(models):
        parameters = _parameters(ddp)
        order = saved.get(name, ())
        fresh = all(parameter.grad is None for parameter in parameters)
        if sorted(order) == list(range(len(parameters))) and fresh and not ddp.static_graph:
            _pass_backward(ddp, [parameters[number] for number in order])


def _wrapped(models: Iterable[tuple[str, nn.Module]]) -> Iterable[tuple[str, DistributedDataParallel]]:
    for name, model in models:
        for module in model.modules():
            if isinstance(module, DistributedDataParallel):
                yield name, module
                break


def _parameters(ddp: DistributedDataParallel) -> list[nn.Parameter]:
    return [parameter for parameter in ddp._module_parameters if parameter.requires_grad]  # noqa: SLF001


def _order(ddp: DistributedDataParallel) -> list[int]:
    log: Any = ddp  # DDP has no public way to get the order.
    known = log._get_ddp_logging_data()  # noqa: SLF001
    if not known.get(KNOWN) and next(ddp.parameters()).is_cpu:
        # Without this, the order is unknown after the first step. Only for CPUs: with a GPU, it would wait.
        log.logger.set_runtime_stats_and_log()
        known = log._get_ddp_logging_data()  # noqa: SLF001
    text: str = known.get(KNOWN) or known.get(FIRST) or ""
    return [int(number) for number in text.replace(",", " ").split()]


def _pass_backward(ddp: DistributedDataParallel, arriving: list[nn.Parameter]) -> None:
    ddp.reducer.prepare_for_backward([])
    for parameter in arriving:
        zero: Tensor = (parameter * 0).sum()
        zero.backward()  # type: ignore[no-untyped-call]
    for parameter in arriving:
        parameter.grad = None
