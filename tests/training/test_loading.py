"""Samples fetched by workers: the very same, whoever fetches them."""

import re
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
import torch
from ddpjob_trainer.data.loader import Loader

from tests.plant.needs import leave_out
from tests.support.waiting import patience
from tests.training.gang import a_gang
from tests.training.holding import Hold
from tests.training.loading import SAMPLES, Drawn
from tests.training.ranks import DEADLINE_SECONDS, Run
from tests.training.runs import Runs

ROOT = str(Path(__file__).parents[2])
WATCHED = ["--workload", "tests.training.loading:Watched", "--global-batch-size", 6]
STEPS = SAMPLES // 6


def trained(*runs: Run) -> list[str]:
    """The samples that all ranks were trained on, with what was drawn for each, in the order of their numbers."""
    lines = [line for run in runs for rank in range(len(run.processes)) for line in run.output(rank).splitlines()]
    return sorted(line for line in lines if line.startswith("trained on "))


def workers(run: Run, rank: int = 0) -> list[psutil.Process]:
    return psutil.Process(run.processes[rank].pid).children()


def test_what_is_drawn_for_a_sample_depends_on_no_worker_and_no_rank(runs: Runs) -> None:
    alone = trained(runs.train(1, *WATCHED))
    assert len(set(alone)) == len(alone) == 2 * SAMPLES, "each sample is drawn for anew in each epoch"
    assert trained(runs.train(1, *WATCHED, "--workers", 2)) == alone
    assert trained(runs.train(2, *WATCHED, "-j", 1)) == alone


@pytest.mark.parametrize(
    ("before", "after"),
    [(2, 3), pytest.param(3, 1, marks=pytest.mark.full("how samples are divided is shown by unit tests"))],
)
def test_a_run_with_workers_that_is_stopped_and_resized_sees_each_sample_once(
    runs: Runs, tmp_path: Path, before: int, after: int
) -> None:
    calm = trained(runs.train(1, *WATCHED))
    job = [*WATCHED, "--workers", 1, "--checkpoint-dir", tmp_path / "checkpoints"]
    hold = Hold(tmp_path / "go", after=3, seconds=0.05)
    first = runs.start(before, *job, env=hold.env)
    first.wait("some steps", lambda: len(first.steps()) >= 3)
    hold.stop(first)
    assert set(first.end()) == {205}, first.story()
    assert 3 <= first.steps()[-1] < 2 * STEPS
    second = runs.train(after, *job)
    assert trained(first, second) == calm


def test_workers_end_with_a_rank_that_is_killed_whatever_they_do(runs: Runs) -> None:
    run = runs.start(1, "--workload", "tests.training.loading:WithStuck", "--batch-size", 6, "-j", 2)
    run.wait("a sample for each worker", lambda: run.output().count("stuck") == 2)
    children = workers(run)
    run.send(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=patience(DEADLINE_SECONDS))
    assert (len(children), alive) == (2, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_that_reaches_the_workers_too_ends_the_run_as_it_should(
    runs: Runs, number: signal.Signals, tmp_path: Path
) -> None:
    hold = Hold(tmp_path / "go", after=1, seconds=0.05)
    run = runs.start(1, *WATCHED, "--workers", 2, env=hold.env)
    run.wait("a step", lambda: bool(run.steps()))
    for worker in workers(run):
        worker.send_signal(number)
    hold.stop(run, number)
    assert run.end() == [205], run.story()


def test_a_rank_that_is_killed_takes_its_workers_along_and_the_next_attempt_has_new_ones(
    runs: Runs, tmp_path: Path
) -> None:
    calm = trained(runs.train(1, *WATCHED))
    hold = Hold(tmp_path / "go", after=3)
    with a_gang(tmp_path, 1, 2, PYTHONPATH=ROOT, **hold.env) as gang:
        gang.module = "ddpjob_trainer"
        gang.start(*map(str, WATCHED), "-j", "1", "--checkpoint-dir", "saved", "--checkpoint-every-steps", "3")
        gang.wait("a checkpoint", (tmp_path / "saved/step-00000003").exists)
        (zygote,) = psutil.Process(gang.supervisors[0].pid).children()
        ranks = zygote.children()
        children = [worker for rank in ranks for worker in rank.children()]
        ranks[1].kill()
        hold.let_go()
        _, alive = psutil.wait_procs([*ranks, *children], timeout=patience(DEADLINE_SECONDS))
        assert (len(ranks), len(children), alive) == (2, 2, [])
        assert gang.ends() == [0], gang.story()
        assert "resumed step=" in gang.log(0)
        seen = {line for line in gang.log(0).splitlines() if line.startswith("trained on ")}
        assert seen == set(calm), "what came after the checkpoint is seen again, as it was"


@pytest.mark.parametrize("count", [0, 2])
def test_a_broken_sample_is_told_in_one_line_whoever_fetches_it(runs: Runs, count: int) -> None:
    run = runs.start(1, "--workload", "tests.training.loading:WithBroken", "--workers", count)
    assert run.end() == [2]
    assert re.fullmatch(r"error: sample \d+ is broken\n", run.errors()), run.errors()


def test_too_little_shared_memory_is_told_with_what_to_do(runs: Runs) -> None:
    run = runs.start(1, "--workload", "tests.training.loading:InLittleSharedMemory", "--workers", 2)
    code = run.end()
    if code == [77]:
        leave_out("left out: there is no right to make a mount namespace")
    assert code == [1], run.story()
    told = run.errors().splitlines()[-1]
    assert "workers pass their batches through /dev/shm, which is too small here" in told, run.errors()
    assert told.startswith("error: unable to allocate shared memory"), run.errors()


def test_an_evaluation_has_workers_too(runs: Runs) -> None:
    inside = runs.train(2, "--workload", "tests.training.tasks:Noisy", "--epochs", 1)
    beside = runs.train(2, "--workload", "tests.training.tasks:Noisy", "--epochs", 1, "--workers", 1)
    assert beside.value("finished", "accuracy") == inside.value("finished", "accuracy")
    assert beside.value("evaluated", "loss") == inside.value("evaluated", "loss")


def test_training_ends_after_so_many_steps_and_goes_on_when_there_may_be_more(runs: Runs, tmp_path: Path) -> None:
    job = [*WATCHED, "--checkpoint-dir", tmp_path / "checkpoints", "--max-steps"]
    cut = runs.train(2, *job, 7)
    assert cut.steps() == list(range(1, 8))
    assert cut.value("progress", "step") == "7/7"
    more = runs.train(2, *job, STEPS + 4)
    assert more.steps() == list(range(8, STEPS + 5))
    assert Counter(line.split()[2] for line in trained(cut, more)).total() == (STEPS + 4) * 6
    whole = runs.train(2, *job, 1000)
    assert whole.steps() == list(range(STEPS + 5, 2 * STEPS + 1))
    assert trained(cut, more, whole) == trained(runs.train(1, *WATCHED))


def test_batches_are_pinned_for_a_gpu_alone() -> None:
    loaders = [Loader(Drawn(), seed=0, device=torch.device(name)) for name in ("cpu", "cuda")]
    assert [loader._loader.pin_memory for loader in loaders] == [False, True]


def shards(run: Run) -> list[list[int]]:
    """What is told of each step: the samples of all ranks together."""
    steps: dict[str, list[int]] = {}
    for line in run.output().splitlines():
        if line.startswith("shard "):
            fields = dict(token.split("=") for token in line.split()[1:])
            steps.setdefault(fields["step"], []).extend(map(int, fields["samples"].split(",")))
    return list(steps.values())


def test_what_each_rank_sees_is_told_without_training_for_as_many_as_there_are_or_might_be(runs: Runs) -> None:
    job = [*WATCHED, "--explain-shards", STEPS]
    told = [runs.train(1, *job, "--world-size", size) for size in (1, 2, 3)]
    told += [runs.train(2, *job), runs.train(1, *job, "--nodes", 3, "--procs-per-node", 2)]
    ranks = [len({line.split()[3] for line in run.output().splitlines() if "rank=" in line}) for run in told]
    assert ranks == [1, 2, 3, 2, 6]
    assert all(shards(run) == shards(told[0]) for run in told), "the same samples in each step, whatever the world"
    assert sorted(index for step in shards(told[0]) for index in step) == list(range(SAMPLES))
    assert told[3].output(rank=1) == ""
    assert trained(*told) == []


def test_what_is_told_is_what_is_trained_on(runs: Runs) -> None:
    told = runs.train(2, *WATCHED, "--explain-shards", 2)
    run = runs.train(2, *WATCHED, "--max-steps", 2)
    for rank in range(2):
        lines = [line for line in told.output().splitlines() if f"rank={rank} " in line]
        samples = [int(index) for line in lines for index in line.split("samples=")[1].split(",")]
        seen = [int(float(line.split()[2])) for line in run.output(rank).splitlines() if line.startswith("trained")]
        assert seen == samples
