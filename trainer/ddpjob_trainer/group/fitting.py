"""The backend that fits best if the user names none, and the reason for it.

    the processes have       and between machines is     backend
    a GPU each               InfiniBand                  NCCL: only NCCL uses InfiniBand and GPUDirect
    a GPU each               Ethernet                    NCCL; gloo is slower, but can be used if NCCL fails
    none                     InfiniBand with IP          gloo
    none                     InfiniBand without IP       gloo over Ethernet; MPI would use InfiniBand
    none                     Ethernet                    gloo

(https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use)
"""

from ddpjob_rank.console import counted
from ddpjob_rank.machine.network import Fabric

NCCL, GLOO, MPI = "nccl", "gloo", "mpi"


def backend_reason(gpus: int, processes: int, between: Fabric | None, *, enough: bool) -> str:
    """A line of the log that gives the reason for the choice of a backend.

    Args:
        gpus: The number of GPUs that a process of this node sees.
        processes: The number of processes per node.
        between: What connects the machines; None if there is only one machine.
        enough: Whether there is a GPU for each process.
    """
    of_node = f"{counted(processes, 'process')} of a node"
    clauses = [
        f"backend nccl: a GPU for each of {of_node}"
        if enough
        else f"backend gloo: {counted(gpus, 'GPU')} for {of_node}"
    ]
    if between is not None:
        devices, over_ip = ", ".join(between.infiniband), ", ".join(between.over_ip)
        match enough, bool(devices), bool(over_ip):
            case True, True, _:
                clauses.append(f"it alone uses InfiniBand ({devices}) with GPUDirect")
            case True, False, _:
                clauses.append("over Ethernet; if NCCL fails there, use gloo, which is slower")
            case False, True, True:
                clauses.append(f"it can use InfiniBand ({devices}) through its IP interface ({over_ip})")
            case False, True, False:
                clauses.append(f"over Ethernet: InfiniBand ({devices}) has no IP here, and only mpi could use it")
            case _:
                clauses.append("over Ethernet")
    return "; ".join(clauses)
