"""What real ranks record, over a failure: as the report reads it."""

import signal
from pathlib import Path

from ddpjob_operator.local.record_files import read

from tests.training.holding import Hold
from tests.training.runs import Runs


def test_a_run_that_was_killed_and_resumed_has_each_step_once_in_its_metrics(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "tests.training.tasks:Perceptron", "--epochs", 2, "--checkpoint-every-steps", 15]
    job += ["--checkpoint-dir", tmp_path / "checkpoints"]
    killed = runs.start(2, *job, env=Hold(tmp_path / "go", after=38).env)
    killed.wait("a checkpoint", (tmp_path / "checkpoints/step-00000030").exists)
    metrics = tmp_path / "checkpoints" / "metrics"
    killed.wait("a step after it", lambda: '"step":38,' in (metrics / "metrics.jsonl").read_text())
    for rank in range(2):
        killed.send(signal.SIGKILL, rank)
    killed.end()
    runs.train(2, *job, env={"DDPJOB_ATTEMPT": "1"})
    recorded = read(metrics / "metrics.jsonl")
    assert [(start.began.attempt, start.began.step) for start in recorded.starts] == [(0, 0), (1, 30)]
    progress = recorded.of("progress")
    total = int(recorded.starts[-1].began.values["total_steps"])
    assert [entry.step for entry in progress] == list(range(1, total + 1))
    assert [entry.attempt for entry in progress] == [0] * 30 + [1] * (total - 30)
    assert recorded.repeated_steps() >= 8


def test_rank_0_records_how_long_the_own_part_of_each_ranks_steps_takes(runs: Runs, tmp_path: Path) -> None:
    late = "tests.training.tasks:Laggard"
    runs.train(2, "--workload", late, "--epochs", 4, "--log-dir", tmp_path / "metrics")
    (start,) = read(tmp_path / "metrics" / "metrics.jsonl").starts
    timed = start.of("timed")
    told = [one.numbers("rank_seconds") for one in timed]
    parts = {name for one in timed for name in one.numbers("seconds")}  # A busy machine may leave some out of one.
    ranks = [one for one in told if one.keys() == {"0", "1"}]
    assert ranks[-1:] == told[-1:]
    # The quickest: on a busy machine either may once take long.
    assert min(one["1"] for one in ranks) > max(0.04, min(one["0"] for one in ranks))
    assert parts == {"data", "forward", "backward", "communication", "optimizer"}
    assert start.began.values["world_size"] == 2
    assert start.of("evaluated")[-1].number("accuracy") is not None
    assert start.of("finished")


def test_a_start_that_was_stopped_on_request_says_so_in_its_last_line(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "tests.training.tasks:Perceptron", "--epochs", 2, "--log-dir", tmp_path / "metrics"]
    hold = Hold(tmp_path / "go", after=3)
    run = runs.start(1, *job, env=hold.env)
    run.wait("some steps", lambda: len(run.steps()) >= 3)
    hold.stop(run)
    run.end()
    (start,) = read(tmp_path / "metrics" / "metrics.jsonl").starts
    ended = start.entries[-1]
    assert (ended.event, ended.values["error"], ended.step) == ("ended", "StoppedOnRequest", run.steps()[-1])


def test_without_a_directory_for_checkpoints_or_metrics_nothing_is_recorded(runs: Runs, tmp_path: Path) -> None:
    runs.train(1, "--workload", "mlp", "--epochs", 1)
    assert not list(tmp_path.rglob("metrics*"))
