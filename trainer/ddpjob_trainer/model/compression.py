"""Communication hooks: how gradients are made smaller on their way from process to process.

16 bits instead of 32 need no state. PowerSGD does: what it left out of a step it adds to the next one's gradient, and
each process leaves out something else.
"""

from typing import Any

import torch
import torch.distributed as dist
from ddpjob_rank.world import World
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from ddpjob_trainer.options import CommunicationConfig

BEGINS_AFTER = 10
"""PowerSGD begins after one step in this many, as torch's documentation suggests: early gradients bear it badly."""
LEAST_STEPS = 2
"""torch's minimum."""


class _Kept(dict[int, Tensor]):
    """What a gloo thread keeps just before it multiplies matrices.

    A thread that has asked torch for the number of its threads multiplies with that many; until then the linear
    algebra library decides by itself, and that determines the last bits.
    """

    def __setitem__(self, index: int, tensor: Tensor) -> None:
        torch.get_num_threads()
        super().__setitem__(index, tensor)


class PowerSGD:
    """PowerSGD on a model, with what it keeps from step to step."""

    def __init__(self, model: DistributedDataParallel, settings: CommunicationConfig) -> None:
        self._settings = settings
        self._state = PowerSGDState(
            process_group=None, matrix_approximation_rank=settings.powersgd_rank, start_powerSGD_iter=LEAST_STEPS
        )
        self._state.p_memory_dict, self._state.q_memory_dict = _Kept(), _Kept()
        model.register_comm_hook(self._state, powerSGD_hook if model.device_type == "cuda" else _in_turn)

    def begin(self, total_steps: int) -> None:
        """The first step comes next: what was done before was not a step."""
        self._state.start_powerSGD_iter = max(LEAST_STEPS, total_steps // BEGINS_AFTER)
        self._state.iter = 0

    def capture(self) -> dict[str, Any]:
        """What this process keeps: as much as its gradients, and a little more."""
        state = self._state
        return {
            "steps": state.iter,
            "layout": self._layout(),
            "errors": {index: error.cpu() for index, error in state.error_dict.items()},
            "ps": {index: p.cpu() for index, p in state.p_memory_dict.items()},
            "qs": {index: q.cpu() for index, q in state.q_memory_dict.items()},
        }

    def restore(self, saved: list[dict[str, Any]], world: World, device: torch.device) -> bool:
        """Restores what the processes kept; returns whether it could.

        With another number of processes each gets the mean of what all had left out, so that nothing is lost. With
        buckets of another size nothing fits any more.
        """
        same_world = len(saved) == world.world_size
        mine = saved[world.rank if same_world else 0]
        if mine["layout"] != self._layout():
            return False
        errors = mine["errors"] if same_world else _means([one["errors"] for one in saved])
        state = self._state
        state.iter = mine["steps"]
        for kept, values in (
            (state.error_dict, errors),
            (state.p_memory_dict, mine["ps"]),
            (state.q_memory_dict, mine["qs"]),
        ):
            kept.update({index: value.to(device, copy=True) for index, value in values.items()})
        return True

    def _layout(self) -> list[float | None]:
        """What the sizes of the kept state depend on, besides the model."""
        settings = self._settings
        return [settings.bucket_cap_mb, settings.powersgd_rank, settings.find_unused_parameters]


def compress(model: DistributedDataParallel, settings: CommunicationConfig) -> PowerSGD | None:
    """Makes a model send its gradients as asked; returns what has a state."""
    match settings.comm_hook:
        case "fp16":
            model.register_comm_hook(None, fp16_compress_hook)
        case "bf16":
            model.register_comm_hook(None, _bf16)
        case "powersgd":
            return PowerSGD(model, settings)
    return None


def _bf16(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Under our own name: by torch's name DistributedDataParallel refuses the hook without NCCL."""
    return bf16_compress_hook(group, bucket)


def _in_turn(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """PowerSGD for gloo: one bucket after another.

    After its first reduction the hook begins two more, in gloo threads. So those of several buckets would be in
    another order on each rank, and all threads could end up waiting for each other.
    """
    future = powerSGD_hook(state, bucket)
    future.wait()
    return future


def _means(errors: list[dict[int, Tensor]]) -> dict[int, Tensor]:
    return {index: torch.stack([one[index] for one in errors]).mean(dim=0) for index in errors[0]}
