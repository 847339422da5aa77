"""Which library processes communicate with if none is named.

    the processes have       and between machines is     backend
    a GPU each               InfiniBand                  NCCL, which alone uses that and GPUDirect
    a GPU each               Ethernet                    NCCL; gloo is slower, and there if NCCL makes trouble
    none                     InfiniBand with IP          gloo
    none                     InfiniBand without IP       gloo over Ethernet; MPI would use InfiniBand
    none                     Ethernet                    gloo

(https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use)
"""

from ddpjob_rank.console import counted
from ddpjob_rank.machine.network import Fabric

NCCL, GLOO, MPI = "nccl", "gloo", "mpi"


def why(gpus: int, processes: int, between: Fabric | None, *, enough: bool) -> str:
    """A line about the backend that fits; `between`: what connects the machines, None if there is only one."""
    who = f"{counted(processes, 'process')} of a node"
    words = [
        f"backend nccl: a GPU for each of {who}" if enough else f"backend gloo: {counted(gpus, 'GPU')} for {who}"
    ]
    if between is not None:
        devices, over_ip = ", ".join(between.infiniband), ", ".join(between.over_ip)
        match enough, bool(devices), bool(over_ip):
            case True, True, _:
                words.append(f"it alone uses InfiniBand ({devices}) with GPUDirect")
            case True, False, _:
                words.append("over Ethernet; if it makes trouble there, gloo is slower and does without it")
            case False, True, True:
                words.append(f"it can use InfiniBand ({devices}) by its IP interface ({over_ip})")
            case False, True, False:
                words.append(f"over Ethernet: InfiniBand ({devices}) has no IP here, and only mpi could use it")
            case _:
                words.append("over Ethernet")
    return "; ".join(words)
