"""Chooses the devices for a model: one for each process of a world, all GPUs of a single process, or one GPU."""

import os

import torch
from ddpjob_rank.console import say, warn
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine import devices
from torch import nn

from ddpjob_trainer.options import DATA_PARALLEL, ModeConfig


def device_of_model(mode: ModeConfig, device: torch.device) -> torch.device:
    """The device of the model and its inputs. If CUDA_VISIBLE_DEVICES renumbers the GPUs, logs which GPUs are used.

    `device` is the device that this process has in the process group.

    Raises:
        ConfigError: A GPU that a flag names does not exist.
    """
    if mode.mode == DATA_PARALLEL:
        _check(mode, torch.cuda.device_count())
        if device.type == "cuda":
            device = torch.device("cuda", _device_ids(mode)[0])
            torch.cuda.set_device(device)
    if device.type == "cuda" and (numbering := devices.renumbering(_meant(mode, device), os.environ)):
        say(numbering)
    return device


def data_parallel(model: nn.Module, mode: ModeConfig, device: torch.device) -> nn.Module:
    """Wraps the model in DataParallel: one thread per GPU computes its part of the batch, on a copy of the model.

    On a CPU, returns the model itself, because there are no devices to divide a batch among. torch.nn.DataParallel
    does the same.
    """
    if device.type == "cpu":
        why = "backend gloo uses no GPU" if torch.cuda.is_available() else "this process sees no GPU"
        warn(
            f"--mode data-parallel: {why}, so DataParallel has no GPUs to divide a batch among, and one "
            "process trains, as with --mode single; to train with several on a CPU: --mode ddp"
        )
        return model
    ids = _device_ids(mode)
    output = output_device(mode, device)
    say(f"DataParallel: parts of each batch on devices {', '.join(map(str, ids))}, outputs on device {output.index}")
    return nn.DataParallel(model, device_ids=ids, output_device=output.index)


def output_device(mode: ModeConfig, device: torch.device) -> torch.device:
    """The device of the outputs of a model on `device`, to which targets must be moved too."""
    # With a single device, DataParallel neither divides a batch nor gathers its outputs.
    if mode.output_device is None or device.type == "cpu" or len(_device_ids(mode)) == 1:
        return device
    return torch.device("cuda", mode.output_device)


def _check(mode: ModeConfig, gpus: int) -> None:
    named = {"--device-ids": mode.device_ids or (), "--output-device": (mode.output_device,)}
    for flag, ids in named.items():
        for index in ids:
            if index is not None and index >= gpus:
                raise ConfigError(
                    f"{flag} names GPU {index}, but this process sees {gpus}: GPUs are numbered from 0, and only"
                    f" those that {devices.VISIBLE} shows"
                )


def _device_ids(mode: ModeConfig) -> list[int]:
    return list(mode.device_ids) if mode.device_ids else list(range(torch.cuda.device_count()))


def _meant(mode: ModeConfig, device: torch.device) -> list[int]:
    return _device_ids(mode) if mode.mode == DATA_PARALLEL else [device.index]
