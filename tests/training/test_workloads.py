"""The workloads that come along do what the tutorials show that they were taken from."""

import os
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from ddpjob_examples import handwriting
from ddpjob_trainer.config import TrainConfig

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training import ranks
from tests.training.forking import FORKS
from tests.training.runs import Runs
from tests.training.test_tasks import write_idx

SAMPLES = 640
EPOCHS = 10


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Handwritten digits in the files and the size of MNIST."""
    images, labels = handwriting.load(TrainConfig()).train[:SAMPLES]
    grey = ((images.squeeze(1).numpy() + 1) * 127).astype(np.uint8)
    large = np.pad(grey.repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))
    for name in ("train", "t10k"):
        write_idx(tmp_path / "MNIST" / "raw" / f"{name}-images-idx3-ubyte", large)
        write_idx(tmp_path / "MNIST" / "raw" / f"{name}-labels-idx1-ubyte", labels.numpy().astype(np.uint8))
    return tmp_path


def test_the_loss_of_the_mlp_falls_as_in_the_tutorial_s_own_program_and_each_rank_tells_its_own(
    runs: Runs, mnist: Path
) -> None:
    theirs = tutorial(runs.directory, mnist)
    run = runs.train(2, "--workload", "mlp", "--data", "mnist", "--data-dir", mnist, "--log-every", 10)
    ours = [losses(run.output(rank), "progress", "loss=") for rank in range(2)]
    assert [len(told) for told in ours] == [1 + EPOCHS] * 2, "the first step, and each tenth"
    assert ours[0] != ours[1]
    assert fall(ours) == pytest.approx(fall(theirs), abs=0.06)
    assert fall(theirs) < 0.9


def fall(told: list[list[float]]) -> float:
    """What is left of the first loss at the end."""
    return mean(losses[-1] for losses in told) / mean(losses[0] for losses in told)


def tutorial(directory: Path, data: Path) -> list[list[float]]:
    """The losses that the tutorial's program prints, by rank."""
    port = hold_port()
    files = [directory / f"tutorial-{rank}" for rank in range(2)]
    processes = [
        FORKS.Process(target=_tutorial, args=(rank, str(data), port, str(file)), daemon=True)
        for rank, file in enumerate(files)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(patience(ranks.DEADLINE_SECONDS))
        assert process.exitcode == 0
    return [losses(file.read_text(), "Rank", "Loss: ") for file in files]


def _tutorial(rank: int, data: str, port: int, file: str) -> None:
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), 1)
    import torch  # noqa: PLC0415  (in the child)

    from tests.training.tutorials import mlp  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    mlp.train(rank, 2, data, port)


def losses(output: str, line_begins: str, before: str) -> list[float]:
    lines = (line for line in output.splitlines() if line.startswith(line_begins))
    return [float(line.partition(before)[2].split()[0]) for line in lines]


def test_a_net_of_a_list_of_layers_tells_its_batches_and_learns(runs: Runs) -> None:
    run = runs.train(2, "--workload", "layers", "--lr", 0.5, "--epochs", 20)
    batches = {line for line in run.output().splitlines() if line.startswith("forward")}
    assert batches == {"forward batchsize is: 16"}
    told = losses(run.output(), "progress", "loss=")
    assert told[-1] < told[0]
