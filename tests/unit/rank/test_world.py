"""Who am I: environments and the places that they describe."""

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import Node, World, read_world

MASTER = {"MASTER_ADDR": "job-0-abcde.job.default.svc", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", **MASTER}
POD = {"WORLD_SIZE": "8", "NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "4", **MASTER}
POD_OF_ONE = {
    **POD,
    "NNODES": "8",
    "NODE_RANK": "3",
    "NPROC_PER_NODE": "1",
    "RANK": "3",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
}


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"PATH": "/bin"}, World(0, 0, 1, 1, "", 0)),
        (TORCHRUN, World(5, 1, 8, 4, MASTER["MASTER_ADDR"], 29500)),
        (POD_OF_ONE, World(3, 0, 8, 1, MASTER["MASTER_ADDR"], 29500)),
        ({**POD, **TORCHRUN}, World(5, 1, 8, 4, MASTER["MASTER_ADDR"], 29500)),
        (POD, Node(node_rank=1, processes=4, world_size=8)),
    ],
    ids=["nothing", "torchrun", "pod with one process", "torchrun in a pod", "pod with several processes"],
)
def test_an_environment_describes_a_place(env: dict[str, str], place: World | Node) -> None:
    assert read_world(env) == place


@pytest.mark.parametrize(
    ("env", "change", "message"),
    [
        (TORCHRUN, {"MASTER_ADDR": None}, "MASTER_ADDR is not set: RANK is set, so"),
        (TORCHRUN, {"MASTER_PORT": None, "LOCAL_RANK": None}, "LOCAL_RANK, MASTER_PORT are not set"),
        (POD, {"NODE_RANK": None}, "NODE_RANK is not set: the environment describes a node"),
        ({}, {"WORLD_SIZE": "2"}, "NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR, MASTER_PORT are not set"),
        (TORCHRUN, {"RANK": "8"}, "RANK is 8, but WORLD_SIZE is 8: it must be less"),
        (TORCHRUN, {"RANK": "-1"}, "RANK is '-1': it must be a whole number of at least 0"),
        (TORCHRUN, {"RANK": "one"}, "RANK is 'one'"),
        (TORCHRUN, {"RANK": ""}, "RANK is ''"),
        (TORCHRUN, {"WORLD_SIZE": "0"}, "WORLD_SIZE is '0': it must be a whole number of at least 1"),
        (TORCHRUN, {"LOCAL_RANK": "4"}, "LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4: it must be less"),
        (TORCHRUN, {"LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE is 9, but WORLD_SIZE is 8"),
        (TORCHRUN, {"NPROC_PER_NODE": "2"}, "NPROC_PER_NODE is 2, but LOCAL_WORLD_SIZE is 4: the two must be equal"),
        (TORCHRUN, {"NODE_RANK": "0"}, "RANK is 5, but NODE_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK is 1"),
        (TORCHRUN, {"NNODES": "3"}, "WORLD_SIZE is 8, but NNODES * LOCAL_WORLD_SIZE is 12"),
        (POD, {"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but NNODES * NPROC_PER_NODE is 8: the two must be equal"),
        (POD, {"NODE_RANK": "2"}, "NODE_RANK is 2, but NNODES is 2: it must be less"),
        (POD, {"MASTER_PORT": "65536"}, "MASTER_PORT is 65536: a port is at most 65535"),
        (POD, {"MASTER_ADDR": ""}, "MASTER_ADDR is empty"),
    ],
)
def test_a_contradiction_is_named(env: dict[str, str], change: dict[str, str | None], message: str) -> None:
    changed = {name: value for name, value in {**env, **change}.items() if value is not None}
    with pytest.raises(ConfigError) as error:
        read_world(changed)
    assert message in str(error.value)
