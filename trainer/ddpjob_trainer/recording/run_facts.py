"""The facts that are recorded at each start of a run: its world, machine, software and options."""

import dataclasses
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from ddpjob_rank.environment import Env
from ddpjob_rank.world import World

from ddpjob_trainer.config import TrainConfig

PREFIXES = ("NCCL_", "GLOO_", "TORCH_", "OMP_", "CUDA_", "MKL_")
"""Prefixes of environment variables that influence a run; none of these variables is a secret."""


def facts(config: TrainConfig, world: World, device: torch.device, **more: Any) -> dict[str, Any]:
    """The facts about this start of a run, as JSON values; `more` is added to them."""
    return {
        "job": os.environ.get(Env.NAME),
        "uid": config.uid,
        "world_size": world.world_size,
        "local_world_size": world.local_world_size,
        **more,
        "device": _name(device),
        "threads": torch.get_num_threads(),
        "host": platform.node(),
        "platform": platform.platform(),
        "versions": _versions(device),
        "options": dataclasses.asdict(config, dict_factory=_given),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)},
    }


def _versions(device: torch.device) -> dict[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "ddpjob": version("ddpjob")}
    if device.type == "cuda":
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        versions |= {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, nccl))}
    return versions


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _processor() or platform.machine()


def _processor() -> str | None:
    """The model of the CPU, according to Linux; None if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _given(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of the fields that have a value."""
    return {name: value for name, value in fields if value is not None}
