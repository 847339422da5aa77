"""Who trains: all processes, or one."""

import pytest

from tests.training.runs import Runs


def sizes(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("  In Model", "Outside"))]


def told(samples: int) -> list[str]:
    return [
        f"  In Model: input size torch.Size([{samples}, 5]) output size torch.Size([{samples}, 2])",
        f"Outside: input size torch.Size([{samples}, 5]) output_size torch.Size([{samples}, 2])",
    ]


def test_one_process_alone_is_given_whole_batches(runs: Runs) -> None:
    run = runs.train(1, "--workload", "random", "--mode", "single")
    assert sizes(run.output()) == told(30) * 3


def test_with_ddp_each_process_is_given_batches_of_its_own(runs: Runs) -> None:
    run = runs.train(2, "--workload", "random", "--batch-size", 15)
    assert [sizes(run.output(rank)) for rank in range(2)] == [told(15) * 3] * 2


def test_without_a_gpu_data_parallel_says_that_one_process_trains_and_gives_the_same_weights(runs: Runs) -> None:
    single, parallel = (
        runs.train(1, "--workload", "layers", "--mode", mode, env={"CUDA_VISIBLE_DEVICES": ""})
        for mode in ("single", "data-parallel")
    )
    assert parallel.errors().startswith("warning: --mode data-parallel: this process sees no GPU")
    assert parallel.value("progress", "loss") == single.value("progress", "loss")


@pytest.mark.parametrize(
    ("size", "flags", "message"),
    [
        (2, ["--mode", "single"], "--mode single trains with one process, but 2 are started"),
        (1, ["--mode", "data-parallel", "--device-ids", "0,1"], "--device-ids names GPU 0, but this process sees 0"),
        (
            1,
            ["--mode", "data-parallel", "--output-device", "1"],
            "--output-device names GPU 1, but this process sees 0",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(runs: Runs, size: int, flags: list[str], message: str) -> None:
    run = runs.start(size, *flags, env={"CUDA_VISIBLE_DEVICES": ""})
    assert run.end() == [2] * size
    for rank in range(size):
        assert run.errors(rank).startswith(f"error: {message}")
        assert run.errors(rank).count("\n") == 1
    assert run.report()["cause"] == "ConfigError"
