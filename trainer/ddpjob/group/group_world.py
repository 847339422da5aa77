"""This process's place among the processes of a training run, from the default process group."""

import os

import torch.distributed as dist
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World


def world_of_group(whose: str) -> World:
    """This process's place in the process group. Without a group, the process is alone.

    Args:
        whose: What needs the group, for the message.

    Raises:
        ConfigError: There is no process group yet, although the environment describes several processes.
    """
    if not dist.is_available() or not dist.is_initialized():
        size = os.environ.get(Env.WORLD_SIZE, "1")
        if size.isdecimal() and int(size) > 1:
            raise ConfigError(
                f"{whose} needs the process group of all {size} processes: call"
                " torch.distributed.init_process_group() before it"
            )
        return World()
    rank, processes = dist.get_rank(), dist.get_world_size()
    local_rank, local_size = (os.environ.get(name, "") for name in (Env.LOCAL_RANK, Env.LOCAL_WORLD_SIZE))
    if local_rank.isdecimal() and local_size.isdecimal() and int(local_rank) < int(local_size) <= processes:
        return World(rank, int(local_rank), processes, int(local_size))
    return World(rank, 0, processes, 1)
