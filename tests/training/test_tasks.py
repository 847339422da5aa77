"""Tasks: the workloads that come along, and one's own."""

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.training.runs import Runs

TASKS = "tests.training.tasks"


def test_a_task_of_ones_own_trains_with_its_own_loss_optimizer_and_metrics(runs: Runs) -> None:
    run = runs.train(2, "--workload", f"{TASKS}:Line", "--epochs", 20)
    assert float(run.value("finished", "distance")) < 10
    assert run.value("evaluated", "samples") == "100"


@pytest.mark.parametrize(("size", "samples"), [(3, 100), (3, 2), (1, 7)])
def test_evaluation_counts_every_sample_once(runs: Runs, size: int, samples: int) -> None:
    run = runs.train(size, "--workload", f"{TASKS}:Constant", env={"TEST_SAMPLES": str(samples)})
    seen = Counter(line for rank in range(size) for line in run.output(rank).splitlines() if line.startswith("saw "))
    assert seen == Counter({f"saw {index}": 1 for index in range(samples)})
    of_class_0 = len(range(0, samples, 4))
    assert run.value("evaluated", "accuracy") == f"{of_class_0 / samples:.4f}"
    assert run.value("evaluated", "samples") == str(samples)


def test_every_rank_evaluates_with_the_statistics_of_rank_0(runs: Runs) -> None:
    run = runs.train(3, "--workload", f"{TASKS}:Statistics", env={"TEST_SAMPLES": "12"})
    assert run.value("evaluated", "running_mean") == "0.0000"


def test_the_same_seed_trains_the_same_and_another_another(runs: Runs) -> None:
    losses = [runs.train(2, "--epochs", 1, "--seed", seed).value("progress", "loss") for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_digits_are_read_well_enough_after_the_default_training(runs: Runs) -> None:
    assert float(runs.train(2).value("finished", "accuracy")) >= 0.97


def test_mnist_is_read_from_idx_files(runs: Runs, tmp_path: Path) -> None:
    for name, count in (("train", 128), ("t10k", 16)):
        write_idx(tmp_path / "MNIST" / "raw" / f"{name}-images-idx3-ubyte", np.zeros((count, 28, 28), dtype=np.uint8))
        write_idx(tmp_path / "MNIST" / "raw" / f"{name}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)
    run = runs.train(1, "--workload", "mlp", "--data", "mnist", "--data-dir", tmp_path, "--epochs", 1)
    assert run.steps() == [1, 2, 3, 4]
    assert run.value("evaluated", "samples") == "16"


def write_idx(path: Path, values: np.ndarray) -> None:
    """The format of http://yann.lecun.com/exdb/mnist: type and number of dimensions, their sizes, the values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes())
