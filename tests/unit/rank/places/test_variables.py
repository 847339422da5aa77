"""Places by flags, Slurm and MPI: in the contract's words, or one error that says what to type."""

from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.places.slurm import gives_each_task_its_gpu
from ddpjob_rank.places.variables import place_variables, rank_and_world_size
from ddpjob_rank.world import Node, World, read_world
from ddpjob_trainer.config import read_config

MASTER = {"MASTER_ADDR": "gpu1", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", **MASTER}
POD = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2", "WORLD_SIZE": "4", **MASTER}
TASK = {
    "SLURM_STEP_ID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "gpu[08-10],big1",
}
EACH = {**TASK, "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "1(x4)"}
"""One task on each of four nodes."""

MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def place(words: str, env: dict[str, str], *, needs_master: bool = True) -> World | Node:
    """What a command line means in an environment."""
    found = place_variables(read_config(words.split(), {}).place, env, needs_master=needs_master)
    return read_world({**env, **found}, needs_master=needs_master)


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ("", {"PATH": "/bin"}, World()),
        ("-n 2 -g 2 -nr 1 --epochs 3", {"MASTER_ADDR": "gpu1"}, Node(1, 2, 4)),
        ("--nodes 2 --procs-per-node 4 --node-rank 1 --master-addr gpu1", {}, Node(1, 4, 8)),
        ("--nnodes 3 --nproc_per_node 1 --node_rank 0 --master_addr gpu1", {}, Node(0, 1, 3)),
        ("--gpus 4", {}, Node(0, 4, 4)),
        ("--nodes 4 --node-rank 3 --init-method tcp://gpu1:2345", {}, Node(3, 1, 4)),
        ("--rank 3 --world-size 4 --init-method tcp://gpu1:2345", {}, World(3, 0, 4, 1, "gpu1", 2345)),
        ("--rank 3 --nodes 2 -g 2 --master-addr gpu1", {}, World(3, 1, 4, 2, "gpu1", 29500)),
        ("--rank 1 --world-size 2 --init-method tcp://[::1]:2345", {}, World(1, 0, 2, 1, "::1", 2345)),
        ("--local-rank=1", TORCHRUN, World(3, 1, 4, 2, "gpu1", 29500)),
        ("--local_rank=1 --init-method env://", TORCHRUN, World(3, 1, 4, 2, "gpu1", 29500)),
        ("-n 2 -g 2 -nr 1", POD, Node(1, 2, 4)),
        ("-n 2 -g 2", TORCHRUN, World(3, 1, 4, 2, "gpu1", 29500)),
        ("", TASK, World(5, 1, 7, 2, "gpu08", 20000 + 4 * 617)),
        ("", {**TASK, **MASTER}, World(5, 1, 7, 2, "gpu1", 29500)),
        ("", {**TASK, "MASTER_ADDR": "gpu1"}, World(5, 1, 7, 2, "gpu1", 20000 + 4 * 617)),
        ("", {**TASK, **TORCHRUN}, World(3, 1, 4, 2, "gpu1", 29500)),
        ("", {**TASK, **POD}, Node(1, 2, 4)),
        ("", {**TASK, "SLURM_STEP_NUM_TASKS": "1"}, World()),
        ("-g 2", {**TASK, "SLURM_STEP_NUM_TASKS": "1"}, Node(0, 2, 2)),
        ("--rank 1 --world-size 2 -g 2", {}, World(1, 1, 2, 2, "127.0.0.1", 29500)),
        ("--nodes 4", TASK, World(5, 1, 7, 2, "gpu08", 20000 + 4 * 617)),
        ("--procs-per-node 8", EACH, Node(2, 8, 32)),
        ("", {**MPIRUN, **MASTER}, World(2, 0, 4, 2, "gpu1", 29500)),
        ("", {**TASK, **MPIRUN, **MASTER}, World(2, 0, 4, 2, "gpu1", 29500)),
        ("-n 2 -g 2", {**MPIRUN, **MASTER}, World(2, 0, 4, 2, "gpu1", 29500)),
        ("", {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, World(2, 0, 4, 4, "127.0.0.1", 29500)),
    ],
)
def test_flags_and_launchers_say_where_a_process_is(words: str, env: dict[str, str], expected: World | Node) -> None:
    assert place(words, env) == expected


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ("--rank 1 --world-size 2 --init-method file:///shared/run", {}, World(1, 0, 2, 1)),
        ("--procs-per-node 2 --init-method file:///shared/run", {}, Node(0, 2, 2)),
        ("--backend mpi", MPIRUN, World(2, 0, 4, 2)),
    ],
)
def test_who_meets_elsewhere_needs_no_master(words: str, env: dict[str, str], expected: World | Node) -> None:
    assert place(words, env, needs_master=False) == expected


def test_a_rank_of_a_supervisor_has_its_flags_and_the_master_of_the_attempt() -> None:
    rank = {**TORCHRUN, "MASTER_PORT": "41234", "DDPJOB_HEARTBEAT": "/tmp/beat"}
    assert place("-n 2 -g 2 -nr 1 --master-addr gpu0 --master-port 29500", rank) == World(3, 1, 4, 2, "gpu1", 41234)


def test_all_flags_of_a_place_are_read() -> None:
    read = read_config(["--init-method", "file:///shared/run", "--rank", "1", "--world-size", "2"], {}).place
    assert (read.init_file, read.rank, read.world_size) == (Path("/shared/run"), 1, 2)


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        ("-n 2 -g 2", {}, "which of the 2 nodes is this? Add --node-rank 0 on the first one, and so on up to"),
        ("-n 2 -g 2 -nr 0", {}, "where is node 0? Add --master-addr HOST on every node: HOST is the name or address"),
        ("-n 2 -nr 0 --init-method file:///x", {}, "on every node, for their supervisors, which do not meet in a"),
        ("-n 2 -nr 2 --master-addr gpu1", {}, "NODE_RANK is 2, but NNODES is 2: it must be less"),
        ("--rank 0 --master-addr gpu1", {}, "--rank 0 needs the number of processes: add --world-size"),
        ("--rank 2 --world-size 2 --master-addr gpu1", {}, "RANK is 2, but WORLD_SIZE is 2"),
        ("--rank 0 --world-size 2", {}, "where is node 0?"),
        ("--world-size 2", {}, "--world-size and --local-rank need --rank"),
        ("--local-rank 1", {}, "--world-size and --local-rank need --rank"),
        ("--init-method tcp://gpu1:23", {}, "the number of processes is missing: add --nodes"),
        ("--init-method file:///x", {}, "the number of processes is missing: add --nodes"),
        ("-g 4", TORCHRUN, "NPROC_PER_NODE is 4, but LOCAL_WORLD_SIZE is 2: the two must be equal"),
        ("-n 3", POD, "--nodes is 3, but NNODES is 2: leave one of them out"),
        ("--local-rank 0", TORCHRUN, "--local-rank is 0, but LOCAL_RANK is 1: leave one of them out"),
        ("--master-port 1", TORCHRUN, "the master's port is 1, but MASTER_PORT is 29500: leave one of them out"),
        ("--nodes 2", TASK, "--nodes is 2, but Slurm says 4: leave out --nodes"),
        ("--procs-per-node 8", TASK, "--procs-per-node is 8, but Slurm has started 2 processes on this node"),
        ("--world-size 8", TASK, "--world-size is 8, but Slurm says 7: leave out --world-size"),
        ("-g 8 --world-size 8", EACH, "--world-size is 8, but Slurm says 32: leave out --world-size"),
        ("-g 8", {**MPIRUN, **MASTER}, "NPROC_PER_NODE is 8, but LOCAL_WORLD_SIZE is 2: the two must be equal"),
        ("-n 3", {**MPIRUN, **MASTER}, "WORLD_SIZE is 4, but NNODES * LOCAL_WORLD_SIZE is 6: the two must be equal"),
        ("--world-size 8", {**MPIRUN, **MASTER}, "--world-size is 8, but MPI says 4: leave out --world-size"),
        ("--rank 1 --world-size 4 --nodes 3 --master-addr x", {}, "NNODES * LOCAL_WORLD_SIZE is 3: the two must be"),
        ("", {**TASK, "SLURM_LOCALID": "x"}, "SLURM_LOCALID is 'x': it must be a whole number"),
        ("", {**TASK, "SLURM_STEP_TASKS_PER_NODE": "2x"}, "SLURM_STEP_TASKS_PER_NODE is '2x': it must have"),
        ("", {**TASK, "SLURM_NODEID": "4"}, "SLURM_NODEID is 4, but Slurm lists 4 nodes"),
        (
            "",
            {**TASK, "SLURM_STEP_TASKS_PER_NODE": "7", "SLURM_NODEID": "1"},
            "SLURM_NODEID is 1, but Slurm lists 1 node:",
        ),
        ("", {**TASK, "SLURM_STEP_NODELIST": "gpu[1-"}, "Slurm's node list 'gpu[1-' cannot be read"),
        ("", MPIRUN, "where is node 0?"),
    ],
)
def test_what_is_missing_or_contradicts_is_one_error(words: str, env: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        place(words, env)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", sorted(TASK.keys() - {"SLURM_STEP_ID", "SLURM_PROCID"}))
def test_a_variable_that_slurm_has_not_set_is_named(missing: str) -> None:
    env = {name: value for name, value in TASK.items() if name != missing}
    with pytest.raises(ConfigError, match=f"{missing} is not set, but Slurm has started this process"):
        place("", env)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("gpu1", "gpu1"),
        ("gpu[08-10]", "gpu08"),
        ("gpu[2-3,7],big1", "gpu2"),
        ("zeta,alpha", "zeta"),
        ("rack[1-2]node[01-04]", "rack1node01"),
    ],
)
def test_the_master_is_the_first_host_of_a_list_as_slurm_writes_it(hosts: str, first: str) -> None:
    found = place("", {**TASK, "SLURM_STEP_NODELIST": hosts})
    assert isinstance(found, World)
    assert found.master_addr == first


def test_steps_and_neighbouring_jobs_have_ports_of_their_own_below_the_ephemeral_ones() -> None:
    def port(job: int, step: int) -> int:
        found = place("", {**TASK, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)})
        assert isinstance(found, World)
        return found.master_port

    ports = [port(job, step) for job in range(4_000_000, 4_000_200) for step in range(8)]
    assert len(set(ports)) == len(ports)
    assert min(abs(one - other) for one, other in zip(sorted(ports), sorted(ports)[1:], strict=False)) == 4
    assert (min(ports) >= 20000, max(ports) + 3 < 32768) == (True, True)


@pytest.mark.parametrize(
    ("env", "port"),
    [
        ({"SLURM_JOB_ID": "77"}, 20000 + 4 * 623),  # A batch script, or the shell of an allocation.
        ({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 20000 + 4 * 617),
        ({"SLURM_JOB_ID": "77", "MASTER_PORT": "1"}, 1),
        ({}, 29500),
    ],
)
def test_jobs_that_share_a_node_have_ports_of_their_own_also_where_slurm_starts_but_one_process(
    env: dict[str, str], port: int
) -> None:
    found = place_variables(read_config(["-g", "2"], {}).place, env)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("127.0.0.1", str(port))


def test_nodes_that_are_started_by_hand_have_the_same_port_whatever_their_shells_know() -> None:
    words = ["-n", "2", "-nr", "0", "--master-addr", "gpu1"]
    found = place_variables(read_config(words, {}).place, {"SLURM_JOB_ID": "77"})
    assert found["MASTER_PORT"] == "29500"


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ("", {}, (0, 1)),
        ("", TORCHRUN, (3, 4)),
        ("", POD, (1, 4)),
        ("", TASK, (5, 7)),
        ("", MPIRUN, (2, 4)),
        ("-g 8", EACH, (5, 32)),
        ("-g 4", POD, (1, 8)),
        ("-n 3", POD, (1, 6)),
        ("-n 3 -g 2", {}, (0, 6)),
        ("--world-size 9", POD, (1, 9)),
    ],
)
def test_a_question_is_about_as_many_processes_as_there_are_or_flags_presume(
    words: str, env: dict[str, str], expected: tuple[int, int]
) -> None:
    assert rank_and_world_size(read_config(words.split(), {}).place, env) == expected


@pytest.mark.parametrize(
    ("env", "own"),
    [
        ({"SLURM_GPUS_PER_TASK": "1"}, True),
        ({"SLURM_TRES_PER_TASK": "cpu:4,gres/gpu:1"}, True),
        ({"SLURM_TRES_PER_TASK": "cpu:4", "SLURM_GPUS_ON_NODE": "8"}, False),
        ({}, False),
    ],
)
def test_slurm_may_show_each_task_no_gpu_but_its_own(env: dict[str, str], *, own: bool) -> None:
    assert gives_each_task_its_gpu(env) is own


@pytest.mark.parametrize(
    "url",
    ["tcp://gpu1", "tcp://:23", "tcp://gpu1:x", "tcp://gpu1:23/x", "file://", "file:///", "gpu1:23", "http://x:1"],
)
def test_an_init_method_that_is_none_is_named_with_those_there_are(url: str) -> None:
    with pytest.raises(ConfigError, match=r"--init-method .*: it must be env://, tcp://HOST:PORT, or file:///PATH"):
        read_config(["--init-method", url], {})


def test_a_master_is_named_once() -> None:
    words: list[Any] = ["--init-method", "tcp://gpu1:23", "--master-addr", "gpu2"]
    with pytest.raises(ConfigError, match="--master-addr is gpu2, but --init-method is tcp://gpu1:23"):
        read_config(words, {})
    with pytest.raises(ConfigError, match="give the rank and the size with --rank"):
        read_config(["--init-method", "tcp://gpu1:23?rank=0"], {})
