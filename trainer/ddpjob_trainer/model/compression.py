"""Communication hooks: how gradients are compressed before processes exchange them.

Sending 16 bits instead of 32 needs no state. PowerSGD does: the error of its approximation in one step is added to
the gradient of the next step, and each process has an error of its own.
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
"""PowerSGD begins after 1/BEGINS_AFTER of all steps. torch's documentation suggests 10%, because compression does
most harm at the beginning of training."""
LEAST_STEPS = 2
"""The smallest `start_powerSGD_iter` that torch accepts."""


class _Kept(dict[int, Tensor]):
    """A dict into which PowerSGD puts matrices, in a thread of gloo, just before it multiplies them.

    The number of threads determines the last bits of the product. The linear algebra library chooses a number of its
    own unless the calling thread has called torch.get_num_threads(), so this dict calls it.
    """

    def __setitem__(self, index: int, tensor: Tensor) -> None:
        torch.get_num_threads()
        super().__setitem__(index, tensor)


class PowerSGD:
    """PowerSGD on a model, with the state that it keeps from step to step."""

    def __init__(self, model: DistributedDataParallel, settings: CommunicationConfig) -> None:
        self._settings = settings
        self._state = PowerSGDState(
            process_group=None, matrix_approximation_rank=settings.powersgd_rank, start_powerSGD_iter=LEAST_STEPS
        )
        self._state.p_memory_dict, self._state.q_memory_dict = _Kept(), _Kept()
        model.register_comm_hook(self._state, powerSGD_hook if model.device_type == "cuda" else _in_turn)

    def begin(self, total_steps: int) -> None:
        """Starts to count steps. Passes before this call, such as the warm-up, do not count."""
        self._state.start_powerSGD_iter = max(LEAST_STEPS, total_steps // BEGINS_AFTER)
        self._state.iter = 0

    def capture(self) -> dict[str, Any]:
        """The state of this process, which is a little larger than its gradients."""
        state = self._state
        return {
            "steps": state.iter,
            "layout": self._layout(),
            "errors": {index: error.cpu() for index, error in state.error_dict.items()},
            "ps": {index: p.cpu() for index, p in state.p_memory_dict.items()},
            "qs": {index: q.cpu() for index, q in state.q_memory_dict.items()},
        }

    def restore(self, saved: list[dict[str, Any]], world: World, device: torch.device) -> bool:
        """Restores PowerSGD from the states that all processes saved, by rank. Returns whether that was possible.

        If the number of processes has changed, each gets the mean of all saved errors, so that nothing is lost. If
        the sizes of the buckets have changed, the saved states do not fit.
        """
        same_world = len(saved) == world.world_size
        mine = saved[world.rank if same_world else 0]
        if mine["layout"] != self._layout():
            return False
        errors = mine["errors"] if same_world else _means([kept["errors"] for kept in saved])
        state = self._state
        state.iter = mine["steps"]
        for tensors, values in (
            (state.error_dict, errors),
            (state.p_memory_dict, mine["ps"]),
            (state.q_memory_dict, mine["qs"]),
        ):
            tensors.update({index: value.to(device, copy=True) for index, value in values.items()})
        return True

    def _layout(self) -> list[float | None]:
        """The settings that affect the sizes of the state."""
        settings = self._settings
        return [settings.bucket_cap_mb, settings.powersgd_rank, settings.find_unused_parameters]


def compress(model: DistributedDataParallel, settings: CommunicationConfig) -> PowerSGD | None:
    """Registers the hook that the settings name. Returns it if it is PowerSGD; the other hooks have no state."""
    match settings.comm_hook:
        case "fp16":
            model.register_comm_hook(None, fp16_compress_hook)
        case "bf16":
            model.register_comm_hook(None, _bf16)
        case "powersgd":
            return PowerSGD(model, settings)
    return None


def _bf16(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Calls torch's hook under another name: without NCCL, DistributedDataParallel refuses the hook's own name."""
    return bf16_compress_hook(group, bucket)


def _in_turn(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Runs PowerSGD over gloo, for one bucket after another.

    After its first all_reduce the hook starts two more, in threads of gloo. With several buckets at a time, the ranks
    could start these in different orders, and the threads would wait for each other forever.
    """
    future = powerSGD_hook(state, bucket)
    future.wait()
    return future


def _means(errors: list[dict[int, Tensor]]) -> dict[int, Tensor]:
    return {index: torch.stack([of_rank[index] for of_rank in errors]).mean(dim=0) for index in errors[0]}
