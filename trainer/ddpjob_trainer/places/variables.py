"""The contract's variables of a process that was started without them.

The first of these that applies says what they are:

1. the environment of a pod or of torchrun, whatever else there is;
2. `--rank`: a process that somebody has started by itself;
3. MPI or Slurm, in a process that `mpirun` or `srun` has started as one of several;
4. `--nodes`, `--procs-per-node` and `--node-rank`: a node whose processes are still to be started.

What a flag says must be what these say.
"""

from collections.abc import Mapping

from ddpjob_trainer.environment import Env
from ddpjob_trainer.errors import ConfigError
from ddpjob_trainer.options.place import PlaceConfig

from . import mpi, slurm

SETTLED = (Env.RANK, Env.NODE_RANK, Env.NNODES, Env.NPROC_PER_NODE)
"""Whoever sets one of these knows the place."""

MASTER = (Env.MASTER_ADDR, Env.MASTER_PORT)
DEFAULT_PORT = 29500
THIS_MACHINE = "127.0.0.1"


def place_variables(place: PlaceConfig, env: Mapping[str, str], *, needs_master: bool = True) -> dict[str, str]:
    """What is to be set beside what the environment has; nothing for a world of one.

    Processes that meet elsewhere than at rank 0's port need no master.

    Raises:
        ConfigError: It is not said whole, or contradicts what the environment says.
    """
    said = _said(place, env)
    if any(name in env for name in SETTLED):
        return said
    known = {**env, **said}
    of_mpi = mpi.variables(env)
    task = slurm.task(env) if of_mpi is None else None  # mpirun may have used srun to get to other nodes.
    if place.rank is not None:
        found = _process(place, known)
    elif of_mpi is not None:
        found = of_mpi
    elif task is not None:
        found = _of_slurm(place, task)
    elif place.world_size is not None or place.local_rank is not None:
        raise ConfigError("--world-size and --local-rank are of a process with a --rank: add that")
    elif (place.nodes, place.procs_per_node, place.node_rank) != (None, None, None):
        found = _node(place)
    elif said or place.init_file is not None:
        raise ConfigError(
            "how many processes are to meet there? Add --nodes and --procs-per-node, or --rank and --world-size"
        )
    else:
        return {}
    master = _master(place, known, task)
    if not master and (needs_master or Env.RANK not in found):
        raise ConfigError(_where(place))
    return found | master


def _said(place: PlaceConfig, env: Mapping[str, str]) -> dict[str, str]:
    """Flags as variables.

    A rank of a supervisor's has the same flags, and a master that is another one in each attempt.
    """
    flags = {
        Env.NNODES: ("--nodes", place.nodes),
        Env.NPROC_PER_NODE: ("--procs-per-node", place.procs_per_node),
        Env.NODE_RANK: ("--node-rank", place.node_rank),
        Env.RANK: ("--rank", place.rank),
        Env.WORLD_SIZE: ("--world-size", place.world_size),
        Env.LOCAL_RANK: ("--local-rank", place.local_rank),
        Env.MASTER_ADDR: ("the master's address", place.master_addr),
        Env.MASTER_PORT: ("the master's port", place.master_port),
    }
    said = {}
    for name, (flag, value) in flags.items():
        if value is None or (name in MASTER and Env.HEARTBEAT in env):
            continue
        if name in env and env[name] != str(value):
            raise ConfigError(f"{flag} is {value}, but {name} is {env[name]}: leave one of them away")
        said[name] = str(value)
    return said


def _process(place: PlaceConfig, known: Mapping[str, str]) -> dict[str, str]:
    """A process that somebody has started by itself, and that must be told how many there are."""
    assert place.rank is not None, "the caller has seen to it"
    local_size = place.procs_per_node or 1
    size = known.get(Env.WORLD_SIZE) or (place.nodes and str(place.nodes * local_size))
    if not size:
        raise ConfigError(f"--rank {place.rank} of how many processes? Add --world-size, the same for each of them")
    return {
        Env.RANK: str(place.rank),
        Env.WORLD_SIZE: size,
        Env.LOCAL_RANK: str(place.rank % local_size if place.local_rank is None else place.local_rank),
        Env.LOCAL_WORLD_SIZE: str(local_size),
    }


def _of_slurm(place: PlaceConfig, task: slurm.Task) -> dict[str, str]:
    """One of Slurm's tasks: a process of the world, or a node if it is to start more processes than itself."""
    for flag, asked, given in (("--nodes", place.nodes, task.nodes), ("--node-rank", place.node_rank, task.node)):
        if asked not in (None, given):
            raise ConfigError(f"{flag} is {asked}, but Slurm says {given}: leave it away")
    procs = place.procs_per_node
    if procs in (None, task.local_tasks):
        return {
            Env.RANK: str(task.rank),
            Env.WORLD_SIZE: str(task.tasks),
            Env.LOCAL_RANK: str(task.local_rank),
            Env.LOCAL_WORLD_SIZE: str(task.local_tasks),
        }
    if task.tasks != task.nodes:
        raise ConfigError(
            f"--procs-per-node is {procs}, but Slurm has started {task.local_tasks} processes on this node: leave it"
            " away, or let srun start one for each node (--ntasks-per-node=1)"
        )
    return _node_variables(task.nodes, procs, task.node)


def _node(place: PlaceConfig) -> dict[str, str]:
    """A node whose processes are still to be started."""
    nodes, procs, rank = place.nodes or 1, place.procs_per_node or 1, place.node_rank
    if rank is None and nodes > 1:
        raise ConfigError(
            f"which of the {nodes} nodes is this? Add --node-rank 0 on the first one, and so on up to"
            f" --node-rank {nodes - 1} on the last"
        )
    return _node_variables(nodes, procs, rank or 0)


def _node_variables(nodes: int, procs: int, rank: int) -> dict[str, str]:
    return {
        Env.NNODES: str(nodes),
        Env.NODE_RANK: str(rank),
        Env.NPROC_PER_NODE: str(procs),
        Env.WORLD_SIZE: str(nodes * procs),
    }


def _master(place: PlaceConfig, known: Mapping[str, str], task: slurm.Task | None) -> dict[str, str]:
    """Where rank 0 is: as it is said, else as Slurm says, else on this machine if all are."""
    port = known.get(Env.MASTER_PORT) or str(DEFAULT_PORT if task is None else task.port)
    if addr := known.get(Env.MASTER_ADDR):
        return {Env.MASTER_ADDR: addr, Env.MASTER_PORT: port}
    if task is not None:
        return {Env.MASTER_ADDR: task.first_host(), Env.MASTER_PORT: port}
    here = place.rank is None and (place.nodes or 1) == 1 and mpi.variables(known) is None
    return {Env.MASTER_ADDR: THIS_MACHINE, Env.MASTER_PORT: port} if here else {}


def _where(place: PlaceConfig) -> str:
    also = "" if place.init_file is None else ", for their supervisors, which do not meet in a file"
    return (
        f"where is node 0? Add --master-addr HOST on every node{also}: its name or address, or {THIS_MACHINE} where"
        f" all run on this machine. Setting {Env.MASTER_ADDR} does the same"
    )
