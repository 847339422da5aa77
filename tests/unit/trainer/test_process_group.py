"""What the process group is made of: the backend that fits, the time that it has, the interface that leads out."""

import socket
from pathlib import Path

import psutil
import pytest
from ddpjob_rank.machine.network import Fabric, address_towards, fabric, interface_of, is_loopback
from ddpjob_trainer.config import read_config
from ddpjob_trainer.group.fitting import backend_reason

WATCHED = {"DDPJOB_HEARTBEAT": "/run/0"}
"""As a supervisor has it for its ranks."""

INFINIBAND = Fabric(("mlx5_0",), ("ib0",))


@pytest.mark.parametrize(
    ("arguments", "env", "joining", "collective"),
    [
        ([], {}, 600, 600),
        (["--timeout-seconds", "30"], {}, 30, 30),
        ([], WATCHED, 600, 3660),
        ([], WATCHED | {"DDPJOB_STALL_TIMEOUT_SECONDS": "0"}, 600, 3660),
        ([], WATCHED | {"DDPJOB_STALL_TIMEOUT_SECONDS": "5"}, 600, 660),
        ([], WATCHED | {"DDPJOB_STALL_TIMEOUT_SECONDS": "300"}, 600, 3060),
        ([], WATCHED | {"DDPJOB_STALL_TIMEOUT_SECONDS": "7200"}, 600, 72060),
        ([], WATCHED | {"DDPJOB_FIRST_STEP_TIMEOUT_SECONDS": "7200"}, 600, 7260),
        ([], WATCHED | {"DDPJOB_FIRST_STEP_TIMEOUT_SECONDS": "60"}, 600, 3660),
        (["--timeout-seconds", "30"], WATCHED | {"DDPJOB_STALL_TIMEOUT_SECONDS": "300"}, 30, 30),
        ([], {"DDPJOB_STALL_TIMEOUT_SECONDS": "300"}, 600, 600),
    ],
    ids=[
        *("nobody watches", "as asked", "a limit is learned", "so it is by 0", "ten minutes at least"),
        *(
            "ten times what is set",
            "hours",
            "hours for the first step",
            "minutes for it",
            "as asked all the same",
            "nobody watches, whatever is set",
        ),
    ],
)
def test_a_collective_gives_up_after_the_supervisor_has_looked_unless_it_is_told_when(
    arguments: list[str], env: dict[str, str], joining: float, collective: float
) -> None:
    group = read_config(arguments, env).group
    assert (group.joining_seconds, group.collective_seconds) == (joining, collective)


@pytest.mark.parametrize(
    ("said", "env", "backend"),
    [
        ([], {}, None),
        (["--backend", "auto"], {"DDPJOB_BACKEND": "gloo"}, None),
        ([], {"DDPJOB_BACKEND": "nccl"}, "nccl"),
        (["--backend", "mpi"], {"DDPJOB_BACKEND": "nccl"}, "mpi"),
    ],
)
def test_a_backend_is_asked_for_or_left_to_the_devices(
    said: list[str], env: dict[str, str], backend: str | None
) -> None:
    assert read_config(said, env).group.backend == backend


@pytest.mark.parametrize(
    ("gpus", "processes", "between", "line"),
    [
        (2, 2, None, "backend nccl: a GPU for each of 2 processes of a node"),
        (1, 1, INFINIBAND, "backend nccl: a GPU for each of 1 process of a node; it alone uses InfiniBand (mlx5_0)"),
        (8, 8, Fabric(), "; over Ethernet; if NCCL fails there, use gloo, which is slower"),
        (0, 2, None, "backend gloo: 0 GPUs for 2 processes of a node"),
        (1, 2, Fabric(), "backend gloo: 1 GPU for 2 processes of a node; over Ethernet"),
        (0, 1, INFINIBAND, "; it can use InfiniBand (mlx5_0) through its IP interface (ib0)"),
        (0, 1, Fabric(("mlx5_0",)), "; over Ethernet: InfiniBand (mlx5_0) has no IP here, and only mpi could use it"),
    ],
)
def test_a_chosen_backend_says_why(gpus: int, processes: int, between: Fabric | None, line: str) -> None:
    assert line in backend_reason(gpus, processes, between, enough=gpus >= processes)


def test_the_kernel_knows_of_infiniband_and_of_ip_over_it(tmp_path: Path) -> None:
    files = {
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
        "sys/class/infiniband/mlx5_1/ports/1/link_layer": "Ethernet",
        "sys/class/net/ib0/type": "32",
        "sys/class/net/eth0/type": "1",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"{content}\n")
    assert fabric(tmp_path) == INFINIBAND
    assert fabric(tmp_path / "nothing") == Fabric()


def local_addresses() -> list[tuple[str, str]]:
    """Names and addresses of this machine's interfaces, as another library finds them."""
    families = {socket.AF_INET, socket.AF_INET6}
    found = psutil.net_if_addrs().items()
    return [(name, one.address.split("%")[0]) for name, all_of in found for one in all_of if one.family in families]


def test_an_address_of_this_machine_belongs_to_an_interface() -> None:
    for name, address in local_addresses():
        found = interface_of(address)
        shared = [other for other, theirs in local_addresses() if theirs == address]
        # Others' interfaces, as those of virtual machines, come and go.
        assert found in shared or not shared, (name, address)
        assert is_loopback(address) == (name == "lo")


def test_an_address_of_another_machine_belongs_to_none() -> None:
    assert interface_of("192.0.2.1") is None


def test_the_way_to_this_machine_is_loopback_and_to_nowhere_there_is_none() -> None:
    assert address_towards("127.0.0.1", 29500) == "127.0.0.1"
    assert address_towards("nowhere.invalid", 29500) is None
