"""What ranks make of cores, where a node has more of them than most machines that run tests."""

import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob_trainer.task import Task
from torch import Tensor, nn

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.forking import Launch, fork_supervisor, start_supervisor_cold
from tests.training.ranks import world

EIGHT_CORES = """
import os
from ddpjob_trainer.main import main
from ddpjob_rank.machine import cores

usable = set(range(8))
def settle(_, those):
    usable.intersection_update(those)
os.cpu_count, os.sched_getaffinity, os.sched_setaffinity = lambda: 64, lambda _: set(usable), settle
cores._quotas = lambda _: []
main()
"""
"""`ddpjob-train` in a container that has eight of a machine's cores for itself; what is forked has them too."""


class Telling(Task):
    epochs = 1
    batch_size = 4
    workers = None

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def train_data(self) -> Any:
        return [(torch.zeros(1), torch.zeros(1))] * 8

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        words = torch.get_num_threads(), len(multiprocessing.active_children())
        os.write(1, "rank {} has {} threads and {} workers\n".format(os.environ["RANK"], *words).encode())
        return nn.functional.mse_loss(output, target)


def supervised(module: str, words: list[str], directory: Path, launch: Launch = fork_supervisor) -> tuple[int, str]:
    """What a supervisor ends with and has said, without any thread's number in its environment."""
    told = {*world(0, 1, 1), "OMP_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in told}
    process = launch(module, words, environment, directory, directory / "output")
    try:
        code = process.wait(patience(60))
    finally:
        process.kill()
    return code, (directory / "output").read_text()


def test_ranks_of_a_node_divide_its_cores_once(tmp_path: Path) -> None:
    (tmp_path / "eight_cores.py").write_text(EIGHT_CORES)
    words = ["--procs-per-node", "2", "--master-port", str(hold_port()), "--workload", f"{__name__}:Telling"]
    code, said = supervised("eight_cores", words, tmp_path)
    assert code == 0, said
    told = re.findall(r"rank (\d) has (\d+) threads and ([1-9]\d*) workers", said)
    assert set(told) == {("0", "4", "4"), ("1", "4", "4")}, said


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="nobody computes with more than one thread")
def test_a_module_that_computes_when_it_is_imported_is_refused_since_forked_ranks_would_hang(tmp_path: Path) -> None:
    (tmp_path / "tables.py").write_text("import torch\nTABLE = torch.rand(600, 600) @ torch.rand(600, 600)\n")
    (tmp_path / "threads.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    (tmp_path / "train.py").write_text("import torch\ntorch.rand(600, 600) @ torch.rand(600, 600)\n")
    words = ["--preload", "threads", "--preload", "tables", "train.py"]
    # A fork would have the one thread that all tests have.
    code, said = supervised("ddpjob_supervisor", words, tmp_path, start_supervisor_cold)
    assert code == 2, said
    assert said.startswith("error: tables computes with PyTorch when it is imported, "), said
    assert len(said.splitlines()) == 1
