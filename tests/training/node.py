"""A node with two ranks that do without PyTorch, so that a zygote is there in no time."""

import asyncio
import os
import sys
from typing import NoReturn

from ddpjob_rank.running.program import program_of
from ddpjob_supervisor.gang.settings import read_settings
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.node.warm import Warm
from ddpjob_supervisor.node.zygote_process import Preload
from ddpjob_supervisor.taking_part import take_part

NODE = {
    "NNODES": "1",
    "NODE_RANK": "0",
    "NPROC_PER_NODE": "2",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def supervise(method: str, script: str) -> NoReturn:
    """Is the supervisor, in an environment with NODE, and runs a script in ranks that are started warm or cold."""
    starter = Warm(Preload(["json"])) if method == "warm" else Cold()
    sys.exit(asyncio.run(take_part(read_settings(os.environ), program_of([script]), starter, os.environ)))


if __name__ == "__main__":
    supervise(*sys.argv[1:])
