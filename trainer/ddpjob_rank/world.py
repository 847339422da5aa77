"""This process's place among all processes of a run, read from its environment.

Three kinds of environment are understood:

- none of the variables: a world of one process;
- `RANK` and the five variables that belong to it, from torchrun or from a pod with one process: one process;
- a node of several processes, without `RANK`: the processes of this node have not been started yet.

The package `places` first translates flags and the variables of Slurm and MPI into these variables.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .environment import Env
from .errors import ConfigError
from .parsing import counting_from

MASTER = (Env.MASTER_ADDR, Env.MASTER_PORT)
PROCESS = (Env.RANK, Env.WORLD_SIZE, Env.LOCAL_RANK, Env.LOCAL_WORLD_SIZE)
NODE = (Env.NNODES, Env.NODE_RANK, Env.NPROC_PER_NODE, Env.WORLD_SIZE)
MAX_PORT = 65535


def restart_of_torchrun() -> str:
    """How many times torchrun has restarted the processes. They may then get the former processes' store."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


@dataclass(frozen=True, slots=True)
class World:
    """One of `world_size` processes. Ranks count from 0. The defaults describe a world of one process."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    master_addr: str = ""
    master_port: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process reads and writes checkpoints, and prints what only one process should print."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there are no other processes."""
        return self.world_size == 1


@dataclass(frozen=True, slots=True)
class Node:
    """A node whose processes have not been started yet."""

    node_rank: int
    processes: int
    world_size: int


def read_world(env: Mapping[str, str], *, needs_master: bool = True) -> World | Node:
    """The place that an environment describes. Without `needs_master`, the master's variables may be missing.

    Raises:
        ConfigError: A variable is missing, is not a number, or contradicts another one.
    """
    if not any(name in env for name in (*PROCESS, *NODE, *MASTER)):
        return World()
    return _process(env, needs_master=needs_master) if Env.RANK in env else _node(env)


def _process(env: Mapping[str, str], *, needs_master: bool) -> World:
    _require(env, (*PROCESS, *MASTER) if needs_master else PROCESS, "RANK is set")
    size = _number(env, Env.WORLD_SIZE, least=1)
    rank = _number(env, Env.RANK, below=(Env.WORLD_SIZE, size))
    local_size = _number(env, Env.LOCAL_WORLD_SIZE, least=1, most=(Env.WORLD_SIZE, size))
    local_rank = _number(env, Env.LOCAL_RANK, below=(Env.LOCAL_WORLD_SIZE, local_size))
    _agree(env, {Env.NPROC_PER_NODE: (local_size, Env.LOCAL_WORLD_SIZE)})
    if Env.NODE_RANK in env:
        node_rank = _number(env, Env.NODE_RANK)
        _agree(env, {Env.RANK: (node_rank * local_size + local_rank, "NODE_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK")})
    if Env.NNODES in env:
        nodes = _number(env, Env.NNODES, least=1)
        _agree(env, {Env.WORLD_SIZE: (nodes * local_size, "NNODES * LOCAL_WORLD_SIZE")})
    master = (env[Env.MASTER_ADDR], _port(env)) if needs_master else ("", 0)
    return World(rank, local_rank, size, local_size, *master)


def _node(env: Mapping[str, str]) -> Node:
    _require(env, (*NODE, *MASTER), "the environment describes a node")
    nodes = _number(env, Env.NNODES, least=1)
    processes = _number(env, Env.NPROC_PER_NODE, least=1)
    node_rank = _number(env, Env.NODE_RANK, below=(Env.NNODES, nodes))
    _agree(env, {Env.WORLD_SIZE: (nodes * processes, "NNODES * NPROC_PER_NODE")})
    _port(env)
    return Node(node_rank, processes, nodes * processes)


def _require(env: Mapping[str, str], names: tuple[str, ...], since: str) -> None:
    if missing := [name for name in names if name not in env]:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            f"{', '.join(missing)} {verb} not set: {since}, so {', '.join(names)} must all be set; to train "
            "with one process, set none of them"
        )


def _agree(env: Mapping[str, str], rules: Mapping[str, tuple[int, str]]) -> None:
    for name, (right, why) in rules.items():
        if name in env and (value := _number(env, name)) != right:
            raise ConfigError(f"{name} is {value}, but {why} is {right}: the two must be equal")


def _port(env: Mapping[str, str]) -> int:
    port = _number(env, Env.MASTER_PORT, least=1)
    if port > MAX_PORT:
        raise ConfigError(f"MASTER_PORT is {port}: a port is at most {MAX_PORT}")
    if not env[Env.MASTER_ADDR]:
        raise ConfigError("MASTER_ADDR is empty: it must name the machine of rank 0")
    return port


def _number(
    env: Mapping[str, str],
    name: str,
    *,
    least: int = 0,
    below: tuple[str, int] | None = None,
    most: tuple[str, int] | None = None,
) -> int:
    """A variable as a number, within bounds that may be another variable's value."""
    value = counting_from(least, env[name], name)
    if below and value >= below[1]:
        raise ConfigError(f"{name} is {value}, but {below[0]} is {below[1]}: it must be less")
    if most and value > most[1]:
        raise ConfigError(f"{name} is {value}, but {most[0]} is {most[1]}: it cannot be more")
    return value
