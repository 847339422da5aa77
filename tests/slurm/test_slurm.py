"""Under a real Slurm: what its processes find, and training as its users start it."""

import json
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "slurm"
PLACE = (
    "import json, os, sys; from ddpjob_rank.places.flags import PlaceConfig;"
    " from ddpjob_rank.places.variables import place_variables;"
    " print(json.dumps(place_variables(PlaceConfig(**json.loads(sys.argv[1])), os.environ)))"
)
TRAIN = ("--epochs", "1", "--threads", "1")


def places(slurm: Cluster, *command: object, **flags: int) -> list[dict[str, str]]:
    """The places of the processes that a command starts, by rank."""
    lines = slurm.output(*command, sys.executable, "-c", PLACE, json.dumps(flags)).splitlines()
    return sorted(map(json.loads, lines), key=lambda place: int(place.get("RANK") or place.get("NODE_RANK") or 0))


def short(place: dict[str, str]) -> tuple[str, ...]:
    return tuple(place[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"))


def test_the_tasks_of_one_node_are_processes_of_one_world(slurm: Cluster) -> None:
    found = places(slurm, "srun", "--nodes=1", "-n3", "--ntasks-per-node=3")
    assert [short(place) for place in found] == [(str(rank), "3", str(rank), "3", "node1") for rank in range(3)]
    assert len({place["MASTER_PORT"] for place in found}) == 1


def test_the_tasks_of_two_nodes_count_their_local_ranks_on_each(slurm: Cluster) -> None:
    found = places(slurm, "srun", "-n4", "--ntasks-per-node=2")
    assert [short(place) for place in found] == [
        ("0", "4", "0", "2", "node1"),
        ("1", "4", "1", "2", "node1"),
        ("2", "4", "0", "2", "node1"),
        ("3", "4", "1", "2", "node1"),
    ]


def test_tasks_that_are_dealt_out_unevenly_or_in_turns_know_who_shares_their_node(slurm: Cluster) -> None:
    found = places(slurm, "srun", "--nodes=2", "-n3", "--distribution=cyclic")
    assert [short(place)[:4] for place in found] == [
        ("0", "3", "0", "2"),
        ("1", "3", "0", "1"),
        ("2", "3", "1", "2"),
    ]


def test_one_task_for_each_node_starts_as_many_processes_as_it_is_told(slurm: Cluster) -> None:
    found = places(slurm, "srun", "--nodes=2", "--ntasks-per-node=1", procs_per_node=4)
    assert [
        (place["NODE_RANK"], place["NNODES"], place["NPROC_PER_NODE"], place["WORLD_SIZE"]) for place in found
    ] == [
        ("0", "2", "4", "8"),
        ("1", "2", "4", "8"),
    ]


def test_two_steps_of_a_job_at_the_same_time_have_two_masters(slurm: Cluster) -> None:
    command = f'{sys.executable} -c "$0" "{{}}"'
    both = f"srun -N1 -n2 --exact {command} & srun -N1 -n2 --exact {command}; wait"
    lines = slurm.output("salloc", "--nodes=1", "-n4", "bash", "-c", both, PLACE).splitlines()
    ports = [json.loads(line)["MASTER_PORT"] for line in lines]
    assert sorted(ports.count(port) for port in set(ports)) == [2, 2]


@pytest.mark.parametrize("flags", [{}, {"rank": 1, "world_size": 2, "master_addr": "127.0.0.1"}])
def test_in_a_shell_of_an_allocation_slurm_says_nothing(slurm: Cluster, flags: dict[str, object]) -> None:
    (found,) = places(slurm, "salloc", "--nodes=2", "--ntasks-per-node=2", **flags)  # type: ignore[arg-type]
    assert (found.get("RANK"), found.get("WORLD_SIZE")) == (("1", "2") if flags else (None, None))


def test_a_batch_script_without_srun_is_one_process(slurm: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "alone.sbatch"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --output=alone.log\n"
        f"exec {sys.executable} -c '{PLACE}' '{{}}'\n"
    )
    assert slurm.batch(script, cwd=tmp_path) == "{}\n"


def test_torchruns_and_a_users_own_word_counts_more_than_slurms(slurm: Cluster) -> None:
    place = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "x"}
    command = ("srun", "-n2", sys.executable, "-c", PLACE, "{}")
    assert slurm.output(*command, env=place).splitlines() == ["{}", "{}"]
    said = [
        json.loads(line) for line in slurm.output(*command, env={"MASTER_ADDR": "x", "MASTER_PORT": "9"}).splitlines()
    ]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in said} == {("x", "9")}


@pytest.mark.parametrize("example", ["tasks", "nodes"])
def test_an_example_trains_on_two_nodes_as_it_is(slurm: Cluster, tmp_path: Path, example: str) -> None:
    said = slurm.batch(EXAMPLES / f"{example}.sbatch", cwd=tmp_path)
    assert {f"rank {rank} of 4: backend gloo, device cpu" for rank in range(4)} <= set(said.splitlines()), said
    assert said.count("finished ") == 1
    assert list((tmp_path / "checkpoints").iterdir())


def test_a_plain_script_finds_its_place_by_the_example_for_it(slurm: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "ranks = torch.tensor([dist.get_rank()])\n"
        "dist.all_reduce(ranks)\n"
        "print('sum', ranks.item(), *sys.argv[1:], flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    said = slurm.batch(EXAMPLES / "script.sbatch", "train.py", "a", "b", cwd=tmp_path)
    assert said.splitlines() == ["sum 1 a b", "sum 1 a b"]


@pytest.mark.full("tasks.sbatch trains so on two nodes")
def test_srun_alone_trains_on_one_node(slurm: Cluster) -> None:
    said = slurm.output("srun", "-n2", "--ntasks-per-node=2", sys.executable, "-m", "ddpjob_trainer", *TRAIN)
    assert "backend gloo: 0 GPUs for 2 processes of a node\n" in said
    assert said.count("finished ") == 1
