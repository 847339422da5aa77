"""Chooses the backend of a run, checks that this PyTorch has it, and chooses the device of a process."""

import os

import torch
import torch.distributed as dist
from ddpjob_rank.console import say
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.network import fabric
from ddpjob_rank.places.slurm import gives_each_task_its_gpu
from ddpjob_rank.world import World

from .fitting import GLOO, MPI, NCCL, backend_reason

SETTINGS = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_GLOO_")
"""Prefixes of the environment variables of NCCL and gloo."""


def backend_of(asked: str | None, world: World) -> str:
    """The requested backend or, if there is none, the backend that fits best, for which rank 0 logs the reason.

    Raises:
        ConfigError: This PyTorch lacks the requested backend.
    """
    if asked is None:
        gpus = torch.cuda.device_count()
        enough = _has_its_own_gpu() or gpus >= world.local_world_size
        if world.leads and not world.alone:
            one_machine = world.local_world_size == world.world_size
            say(backend_reason(gpus, world.local_world_size, None if one_machine else fabric(), enough=enough))
        return NCCL if enough else GLOO
    if asked == MPI and not dist.is_mpi_available():
        raise ConfigError(
            f"backend mpi: this PyTorch ({torch.__version__}) is built without it, and has {', '.join(_built_in())}."
            " Use gloo, or nccl with GPUs; for mpi build PyTorch from source on a machine with MPI"
        )
    if asked == NCCL and not dist.is_nccl_available():
        raise ConfigError(f"backend nccl: this PyTorch ({torch.__version__}) is built without it: use gloo")
    return asked


def device_of(backend: str, world: World) -> torch.device:
    """The device of this process.

    Raises:
        ConfigError: The backend needs a GPU for this process, but there is none.
    """
    if backend != NCCL:
        return torch.device("cpu")
    index = 0 if _has_its_own_gpu() else world.local_rank
    if index >= torch.cuda.device_count():
        raise ConfigError(
            f"backend nccl needs a GPU for each process: local rank {world.local_rank} sees"
            f" {torch.cuda.device_count()}; use fewer processes per node, or backend gloo"
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def settings() -> str:
    """The variables of NCCL and gloo that are set, except those that our supervisor has set for its own use."""
    own = os.environ.get(Env.HEARTBEAT) or "\0"  # If it is not set, nothing is left out: no value begins with NUL.
    known = ((name, value) for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS))
    return " ".join(f"{name}={value}" for name, value in known if not value.startswith(own))


def _has_its_own_gpu() -> bool:
    return torch.cuda.device_count() == 1 and gives_each_task_its_gpu(os.environ)


def _built_in() -> list[str]:
    return [GLOO] * dist.is_gloo_available() + [NCCL] * dist.is_nccl_available()
