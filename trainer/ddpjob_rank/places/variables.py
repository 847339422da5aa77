"""Finds RANK and related variables for a process that was started without them.

The first of these sources that applies is used:

1. the environment of a pod or of torchrun, whatever other sources there are;
2. `--rank`, for a process that somebody has started individually;
3. MPI or Slurm, for a process that `mpirun` or `srun` has started as one of several;
4. `--nodes`, `--procs-per-node` and `--node-rank`, for a node whose processes have not been started yet.

Flags must not contradict the source.
"""

from collections.abc import Mapping

from ddpjob_rank.console import counted
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.parsing import count_of, counting_from
from ddpjob_rank.world import MASTER

from . import mpi, slurm
from .flags import PlaceConfig

SETTLED = (Env.RANK, Env.NODE_RANK, Env.NNODES, Env.NPROC_PER_NODE)
"""If any of these variables is set, the environment already describes the place."""

DEFAULT_PORT = 29500
THIS_MACHINE = "127.0.0.1"

FLAGS = {
    Env.NNODES: "--nodes",
    Env.NPROC_PER_NODE: "--procs-per-node",
    Env.NODE_RANK: "--node-rank",
    Env.RANK: "--rank",
    Env.WORLD_SIZE: "--world-size",
    Env.LOCAL_RANK: "--local-rank",
    Env.MASTER_ADDR: "the master's address",
    Env.MASTER_PORT: "the master's port",
}
"""The flag for each variable, as it is named in messages."""


def place_variables(place: PlaceConfig, env: Mapping[str, str], *, needs_master: bool = True) -> dict[str, str]:
    """The variables to set in addition to the environment; empty for a world of one process.

    Without `needs_master`, a process may lack a master, because it does not meet the others at rank 0's port.

    Raises:
        ConfigError: The place is incomplete, or contradicts the environment.
    """
    given = _given(place, env)
    if any(name in env for name in SETTLED):
        return given
    known = {**env, **given}
    of_mpi = mpi.variables(env)
    task = _task(env)
    if place.rank is not None:
        found = given | _process(place, known)
    elif of_mpi is not None:
        _refuse_others(given, of_mpi, "MPI")
        found = given | of_mpi
    elif task is not None:
        found = _of_slurm(place, task)
        _refuse_others(given, found | {Env.NNODES: str(task.nodes), Env.NODE_RANK: str(task.node)}, "Slurm")
    elif place.world_size is not None or place.local_rank is not None:
        raise ConfigError("--world-size and --local-rank need --rank: add it")
    elif (place.nodes, place.procs_per_node, place.node_rank) != (None, None, None):
        found = _node(place)
    elif given or place.init_file is not None:
        raise ConfigError(
            "the number of processes is missing: add --nodes and --procs-per-node, or --rank and --world-size"
        )
    else:
        return {}
    master = _master(known, found, task)
    if not master and (needs_master or Env.RANK not in found):
        raise ConfigError(_where(place))
    return found | master


def rank_and_world_size(place: PlaceConfig, env: Mapping[str, str]) -> tuple[int, int]:
    """The rank of this process and the world size: the actual values, or the values that the flags assume.

    Raises:
        ConfigError: A variable is not a number.
    """
    env = {**env, **(mpi.variables(env) or {})}
    if Env.RANK not in env and (task := _task(env)) is not None:
        env = {**env, **_task_variables(task)}
    rank = counting_from(0, env.get(Env.RANK, env.get(Env.NODE_RANK, "0")), Env.RANK)
    size = count_of(env, Env.WORLD_SIZE) or 1
    if place.nodes is None and place.procs_per_node is None:
        return rank, place.world_size or size
    procs = count_of(env, Env.NPROC_PER_NODE) or count_of(env, Env.LOCAL_WORLD_SIZE) or 1
    return rank, (place.nodes or size // procs) * (place.procs_per_node or procs)


def _task(env: Mapping[str, str]) -> slurm.SlurmTask | None:
    """This process's Slurm task. None under `mpirun`, which may use `srun` only to reach other nodes."""
    return slurm.task(env) if mpi.variables(env) is None else None


def _given(place: PlaceConfig, env: Mapping[str, str]) -> dict[str, str]:
    """The flags that were given, as variables.

    A rank that a supervisor has started ignores the flags for the master: it gets the supervisor's flags, but the
    master is a different one in each attempt.
    """
    values = {
        Env.NNODES: place.nodes,
        Env.NPROC_PER_NODE: place.procs_per_node,
        Env.NODE_RANK: place.node_rank,
        Env.RANK: place.rank,
        Env.WORLD_SIZE: place.world_size,
        Env.LOCAL_RANK: place.local_rank,
        Env.MASTER_ADDR: place.master_addr,
        Env.MASTER_PORT: place.master_port,
    }
    given = {name: str(value) for name, value in values.items() if value is not None}
    if Env.HEARTBEAT in env:
        given = {name: value for name, value in given.items() if name not in MASTER}
    for name, value in given.items():
        if env.get(name, value) != value:
            raise ConfigError(f"{FLAGS[name]} is {value}, but {name} is {env[name]}: leave one of them out")
    return given


def _refuse_others(given: Mapping[str, str], launched: Mapping[str, str], launcher: str) -> None:
    for name, value in launched.items():
        if given.get(name, value) != value:
            raise ConfigError(f"{FLAGS[name]} is {given[name]}, but {launcher} says {value}: leave out {FLAGS[name]}")


def _process(place: PlaceConfig, known: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that was started individually, with `--rank`."""
    assert place.rank is not None, "the caller has seen to it"
    local_size = place.procs_per_node or 1
    size = known.get(Env.WORLD_SIZE) or (place.nodes and str(place.nodes * local_size))
    if not size:
        raise ConfigError(
            f"--rank {place.rank} needs the number of processes: add --world-size, the same for each of them"
        )
    return {
        Env.RANK: str(place.rank),
        Env.WORLD_SIZE: size,
        Env.LOCAL_RANK: str(place.rank % local_size if place.local_rank is None else place.local_rank),
        Env.LOCAL_WORLD_SIZE: str(local_size),
    }


def _of_slurm(place: PlaceConfig, task: slurm.SlurmTask) -> dict[str, str]:
    """The variables of a Slurm task, which is a process of the world, or starts the processes of a node."""
    procs = place.procs_per_node
    if procs in (None, task.local_tasks):
        return _task_variables(task)
    if task.tasks != task.nodes:
        raise ConfigError(
            f"--procs-per-node is {procs}, but Slurm has started {counted(task.local_tasks, 'process')} on "
            "this node: leave out --procs-per-node, or let srun start one process per node (--ntasks-per-node=1)"
        )
    return _node_variables(task.nodes, procs, task.node)


def _task_variables(task: slurm.SlurmTask) -> dict[str, str]:
    return {
        Env.RANK: str(task.rank),
        Env.WORLD_SIZE: str(task.tasks),
        Env.LOCAL_RANK: str(task.local_rank),
        Env.LOCAL_WORLD_SIZE: str(task.local_tasks),
    }


def _node(place: PlaceConfig) -> dict[str, str]:
    """The variables of a node whose processes have not been started yet."""
    nodes, procs, node = place.nodes or 1, place.procs_per_node or 1, place.node_rank
    if node is None and nodes > 1:
        raise ConfigError(
            f"which of the {nodes} nodes is this? Add --node-rank 0 on the first one, and so on up to"
            f" --node-rank {nodes - 1} on the last"
        )
    return _node_variables(nodes, procs, node or 0)


def _node_variables(nodes: int, procs: int, node: int) -> dict[str, str]:
    return {
        Env.NNODES: str(nodes),
        Env.NODE_RANK: str(node),
        Env.NPROC_PER_NODE: str(procs),
        Env.WORLD_SIZE: str(nodes * procs),
    }


def _master(known: Mapping[str, str], found: Mapping[str, str], task: slurm.SlurmTask | None) -> dict[str, str]:
    """The master's variables, from the environment or flags, or else from Slurm, or else for this machine.

    This machine is the master only if all processes run here. If there is no master, the result is empty.
    """
    here = found.get(Env.LOCAL_WORLD_SIZE, found.get(Env.NPROC_PER_NODE)) == found[Env.WORLD_SIZE]
    # Processes that are started one by one do not use Slurm's port: they need the same port in every shell, but not
    # every shell has Slurm's variables.
    of_job = slurm.port(known) if task is not None or (here and Env.RANK not in found) else None
    port = known.get(Env.MASTER_PORT) or str(of_job or DEFAULT_PORT)
    if addr := known.get(Env.MASTER_ADDR):
        return {Env.MASTER_ADDR: addr, Env.MASTER_PORT: port}
    if task is not None:
        return {Env.MASTER_ADDR: task.first_host(), Env.MASTER_PORT: port}
    return {Env.MASTER_ADDR: THIS_MACHINE, Env.MASTER_PORT: port} if here else {}


def _where(place: PlaceConfig) -> str:
    also = "" if place.init_file is None else ", for their supervisors, which do not meet in a file"
    return (
        f"where is node 0? Add --master-addr HOST on every node{also}: HOST is the name or address of node 0, or"
        f" {THIS_MACHINE} if all nodes run on this machine. Setting {Env.MASTER_ADDR} does the same"
    )
