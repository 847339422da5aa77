"""Ways to start a run that are not a pod's process: by hand, several per node, torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.ranks import world

TRAIN = ["--epochs", "1", "--threads", "1", "--checkpoint-dir"]


def started(command: list[object], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in world(0, 1, 1)}
    return subprocess.run(
        [str(part) for part in command],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def test_without_any_variable_one_process_trains_alone(tmp_path: Path) -> None:
    done = started([sys.executable, "-m", "ddpjob_trainer", *TRAIN, tmp_path], {})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a world of one process on ")
    assert done.stderr == ""


def node(port: int) -> dict[str, str]:
    return {
        "NNODES": "1",
        "NODE_RANK": "0",
        "NPROC_PER_NODE": "2",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


@pytest.mark.parametrize("launcher", ["ddpjob-train", "torchrun"])
def test_two_processes_of_one_node_are_started(tmp_path: Path, launcher: str) -> None:
    if launcher == "torchrun":
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--master-port",
            hold_port(),
        ]
        done = started([*torchrun, "-m", "ddpjob_trainer", *TRAIN, tmp_path], {})
    else:
        done = started([sys.executable, "-m", "ddpjob_trainer", *TRAIN, tmp_path], node(hold_port()))
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout
    assert "rank 1 of 2" in done.stdout
    assert done.stdout.count("finished ") == 1
    told = {word for line in done.stdout.splitlines() if line.startswith("progress ") for word in line.split()}
    assert {word for word in told if word.startswith("rank=")} == {"rank=0", "rank=1"}
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000022"]


@pytest.mark.full(
    "--local-rank is read in tests/unit/trainer/places/test_variables.py; torchrun starts the same agent"
)
def test_torch_distributed_launch_passes_a_local_rank_and_that_is_right(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2", f"--master_port={hold_port()}"]
    done = started([*launch, "-m", "ddpjob_trainer", "--workload", "random", *TRAIN, tmp_path], {})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  In Model: input size torch.Size([30, 5]) output size torch.Size([30, 2])") == 2
    assert done.stdout.count("finished ") == 1
