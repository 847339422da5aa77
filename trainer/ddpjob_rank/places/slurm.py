"""A process's place according to Slurm, and a master on which a step's processes agree without communication.

Only `srun` starts the processes of a step. A batch script or an interactive shell has some of the variables too, but
counts as a single process, as does the only task of a step.

The master is the first host of the step's node list, which runs task 0. Its port is

    20000 + 4 * ((8 * job id + step id) mod 2000)

This port is below Linux's ephemeral ports (32768 and up), is the same for all tasks of a step, and differs from the
ports of other steps and of jobs with neighboring ids, which may share a node. The three ports above it are free for
programs that run beside the master. A single process of a step or of a job's script gets a port by the same formula,
for the processes that it starts.

(https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.parsing import counting_from

FIRST_PORT, PORTS_OF_A_STEP, STEPS_OF_A_JOB, STEPS = 20000, 4, 8, 2000
NO_STEP = STEPS_OF_A_JOB - 1
"""The number that is used if there is no step: srun counts steps from 0."""

JOB = ("SLURM_JOB_ID", "SLURM_JOBID")

SUGGESTION = "set MASTER_ADDR, or start the processes without srun"


@dataclass(frozen=True, slots=True)
class SlurmTask:
    """One of several tasks of a Slurm step. Ranks and node numbers count from 0."""

    rank: int
    tasks: int
    local_rank: int
    local_tasks: int
    """The number of tasks on this node."""
    node: int
    nodes: int
    host_list: str

    def first_host(self) -> str:
        """The host of task 0, which is the first host in `host_list`, such as `gpu[01-04,07],big1`.

        Raises:
            ConfigError: `host_list` is not a list of hosts in this form.
        """
        from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415  (Imported only if Slurm is used)

        # Only the first part is parsed, because a NodeSet of all parts would not keep Slurm's order.
        first = re.match(r"((?:[^,\[]|\[[^]]*])+)(?:,|$)", self.host_list)
        try:
            return str(NodeSet(first[1] if first else "")[0])
        except (NodeSetException, IndexError):
            raise ConfigError(f"Slurm's node list {self.host_list!r} cannot be read: {SUGGESTION}") from None


def task(env: Mapping[str, str]) -> SlurmTask | None:
    """This process's task, if Slurm has started it as one of several; otherwise None.

    Raises:
        ConfigError: One of Slurm's variables is missing, or does not have Slurm's format.
    """
    if not {"SLURM_STEP_ID", "SLURM_PROCID"} <= env.keys():
        return None
    tasks = _number(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    if tasks == 1:
        return None
    node = _number(env, "SLURM_NODEID")
    of_nodes = _tasks_of_nodes(env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    if node >= len(of_nodes):
        raise ConfigError(f"SLURM_NODEID is {node}, but Slurm lists {counted(len(of_nodes), 'node')}: {SUGGESTION}")
    return SlurmTask(
        rank=_number(env, "SLURM_PROCID"),
        tasks=tasks,
        local_rank=_number(env, "SLURM_LOCALID"),
        local_tasks=of_nodes[node],
        node=node,
        nodes=len(of_nodes),
        host_list=_first(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")[1],
    )


def port(env: Mapping[str, str]) -> int | None:
    """The master's port for this step, or for this job's script; None outside a Slurm job.

    Raises:
        ConfigError: A variable does not have Slurm's format.
    """
    if not any(name in env for name in (*JOB, "SLURM_STEP_ID")):
        return None
    step = _number(env, "SLURM_STEP_ID") if "SLURM_STEP_ID" in env else NO_STEP
    return FIRST_PORT + PORTS_OF_A_STEP * ((STEPS_OF_A_JOB * _number(env, *JOB) + step) % STEPS)


def gives_each_task_its_gpu(env: Mapping[str, str]) -> bool:
    """Whether a task sees only its own GPU (`--gpus-per-task`)."""
    return bool(env.get("SLURM_GPUS_PER_TASK")) or "gpu" in env.get("SLURM_TRES_PER_TASK", "")


def _tasks_of_nodes(env: Mapping[str, str], *names: str) -> list[int]:
    """The number of tasks on each node, from a text such as `2(x3),1`: three nodes with two, and one with one."""
    name, text = _first(env, *names)
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ConfigError(f"{name} is {text!r}: it must have Slurm's format, such as 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(env: Mapping[str, str], *names: str) -> int:
    name, text = _first(env, *names)
    return counting_from(0, text, name)


def _first(env: Mapping[str, str], *names: str) -> tuple[str, str]:
    """The name and the value of the first of these variables that is set."""
    for name in names:
        if name in env:
            return name, env[name]
    raise ConfigError(f"{names[0]} is not set, but Slurm has started this process: {SUGGESTION}")
