"""Ways to start a run that are not a pod's process: by hand, several per node, torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.forking import fork_supervisor
from tests.training.ranks import world

TRAIN = ["--epochs", "1", "--threads", "1", "--checkpoint-dir"]


def without_a_place() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in world(0, 1, 1)}


def said_by(launcher: str, port: object, *words: object) -> str:
    """What a launcher of PyTorch's prints that starts two of our processes."""
    launch = [sys.executable, "-m", launcher, "--nproc-per-node=2", f"--master-port={port}", "-m", "ddpjob_trainer"]
    done = subprocess.run(
        [*launch, *map(str, words)],
        env=without_a_place(),
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said_by_ddpjob_train(directory: Path, *words: object, **env: str) -> str:
    """What `ddpjob-train` prints, started with these variables."""
    said = directory / "said"
    process = fork_supervisor("ddpjob_trainer", [*map(str, words)], without_a_place() | env, directory, said)
    try:
        assert process.wait(patience(60)) == 0, said.read_text()
    finally:
        process.kill()
    return said.read_text()


def test_without_any_variable_one_process_trains_alone(tmp_path: Path) -> None:
    said = said_by_ddpjob_train(tmp_path, *TRAIN, tmp_path)
    assert said.startswith("a world of one process on ")
    assert "warning" not in said.lower()


@pytest.mark.parametrize(
    "launcher",
    [
        "ddpjob-train",
        pytest.param("torchrun", marks=pytest.mark.full("docs/how-to/run-without-an-operator.md trains so")),
    ],
)
def test_two_processes_of_one_node_are_started(tmp_path: Path, launcher: str) -> None:
    port = str(hold_port())
    if launcher == "torchrun":
        said = said_by("torch.distributed.run", port, *TRAIN, tmp_path)
    else:
        node = {"NNODES": "1", "NODE_RANK": "0", "NPROC_PER_NODE": "2", "WORLD_SIZE": "2"}
        said = said_by_ddpjob_train(tmp_path, *TRAIN, tmp_path, **node, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert "rank 0 of 2" in said
    assert "rank 1 of 2" in said
    assert said.count("finished ") == 1
    told = {word for line in said.splitlines() if line.startswith("progress ") for word in line.split()}
    assert {word for word in told if word.startswith("rank=")} == {"rank=0", "rank=1"}
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000022"]


@pytest.mark.full("--local-rank is read in tests/unit/rank/places/test_variables.py; torchrun starts the same agent")
def test_torch_distributed_launch_passes_a_local_rank_and_that_is_right(tmp_path: Path) -> None:
    said = said_by("torch.distributed.launch", hold_port(), "--workload", "random", *TRAIN, tmp_path)
    assert said.count("  In Model: input size torch.Size([30, 5]) output size torch.Size([30, 2])") == 2
    assert said.count("finished ") == 1
