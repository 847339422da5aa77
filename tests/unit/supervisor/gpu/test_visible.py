"""Which GPUs the processes of a node use, and where these are."""

from pathlib import Path

import pytest
from ddpjob_supervisor.gpu.health import Gpu
from ddpjob_supervisor.gpu.visible import nodes_of, of_rank, visible

A, B = Gpu(0, "GPU-a1", "0000:17:00.0"), Gpu(1, "GPU-b2", "0000:98:00.0")


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({}, [A, B]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [B, A]),
        ({"CUDA_VISIBLE_DEVICES": " GPU-b2 , GPU-a1 "}, [B, A]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, [B]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [B]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [A]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-x,1"}, [None, B]),
        ({"DDPJOB_BACKEND": "nccl"}, [A, B]),
    ],
    ids=[
        *("all", "in an order", "by UUID", "by the beginning of one", "one of them", "none"),
        *("what follows an invalid name does not count", "a part of one is left alone", "NCCL"),
    ],
)
def test_processes_see_the_gpus_that_cuda_shows(env: dict[str, str], shown: list[Gpu | None]) -> None:
    assert [*visible([A, B], env)] == shown


def test_a_rank_has_the_gpu_with_its_local_rank_and_a_process_alone_has_all() -> None:
    assert [of_rank([B, A], local, 2) for local in range(2)] == [[B], [A]]
    assert of_rank([B, A], 0, 1) == [B, A]
    assert [of_rank([None, B], local, 3) for local in range(3)] == [[], [B], []]


@pytest.mark.parametrize(
    ("shown", "processes", "nodes"),
    [
        ([A, B], 2, [0, 1]),
        ([B, A], 2, [1, 0]),
        ([B], 2, [1, None]),
        ([None, B], 2, [None, 1]),
        ([B], 1, [1]),
        ([A, B], 1, [None]),
        ([Gpu(0)], 1, [None]),
        ([], 2, [None, None]),
    ],
)
def test_each_process_has_the_node_of_its_gpus(
    shown: list[Gpu | None], processes: int, nodes: list[int | None], tmp_path: Path
) -> None:
    for gpu, node in ((A, "0"), (B, "1")):
        (tmp_path / "sys/bus/pci/devices" / gpu.pci).mkdir(parents=True)
        (tmp_path / "sys/bus/pci/devices" / gpu.pci / "numa_node").write_text(f"{node}\n")
    assert nodes_of(shown, processes, tmp_path) == nodes


def test_a_node_that_the_firmware_does_not_tell_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices" / A.pci).mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices" / A.pci / "numa_node").write_text("-1\n")
    assert nodes_of([A], 1, tmp_path) == [None]
