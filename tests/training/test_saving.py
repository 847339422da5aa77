"""Saving while training goes on: what is saved is the state of one step, whatever happens meanwhile."""

import json
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.support.waiting import patience
from tests.training.holding import Hold
from tests.training.ranks import Run
from tests.training.runs import Runs

TASKS = "tests.training.tasks"
KILLS = 6


def saved(run: Run) -> list[int]:
    """The steps that a run has told to be saved."""
    lines = [line.split() for line in run.output().splitlines() if line.startswith("saved step=")]
    return [int(line[1].removeprefix("step=")) for line in lines]


def there(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in directory.glob("step-*"))


def weights(checkpoint: Path) -> set[float]:
    """The least and the greatest of each part of a checkpoint's weights."""
    state = torch.load(checkpoint / "state.pt", weights_only=True)
    return {value.item() for part in state["shared"]["model"].values() for value in part.aminmax()}


@pytest.mark.parametrize("size", [1, 2])
def test_a_checkpoint_is_one_steps_state_though_training_went_on_while_it_was_written(
    runs: Runs, tmp_path: Path, size: int
) -> None:
    often = ["--checkpoint-dir", tmp_path / "saved", "--checkpoint-every-steps", 4, "--checkpoint-keep", 100]
    run = runs.train(size, "--workload", f"{TASKS}:Counts", "--global-batch-size", 40, *often)
    assert saved(run) == there(tmp_path / "saved") == [4, 8, 12, 16, 20, 24, 25]
    assert {step: weights(tmp_path / f"saved/step-{step:08}") for step in saved(run)} == {
        step: {-float(step)} for step in saved(run)
    }


def test_whenever_it_is_killed_while_it_writes_a_whole_checkpoint_is_there_and_none_is_lost_that_it_told_of(
    runs: Runs, tmp_path: Path
) -> None:
    job = ["--workload", f"{TASKS}:Counts", "--checkpoint-dir", tmp_path, "--checkpoint-every-steps", 1]
    last = 0
    for attempt in range(KILLS):
        run = runs.start(1, *job, "--checkpoint-keep", 1, env={"DDPJOB_ATTEMPT": str(attempt)})
        enough = random.randint(2, 5)
        run.wait("some saves", lambda run=run, enough=enough: len(saved(run)) >= enough)  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.05))  # To a moment at random within a save.
        run.send(signal.SIGKILL)
        run.end()
        if attempt:
            resumed = int(run.value("resumed", "step"))
            assert resumed >= last, run.story()
            assert run.steps()[0] == resumed + 1
        assert "warning" not in run.errors(), run.story()
        last = saved(run)[-1]
    newest = tmp_path / f"step-{there(tmp_path)[-1]:08}"
    manifest = json.loads((newest / "manifest.json").read_text())
    assert manifest["step"] >= last
    assert manifest["lineage"] == list(range(KILLS))
    assert weights(newest) == {-float(manifest["step"])}


def test_a_save_that_was_begun_is_finished_when_training_fails(runs: Runs, tmp_path: Path) -> None:
    run = runs.start(
        1, "--workload", f"{TASKS}:CountsToFive", "--checkpoint-dir", tmp_path, "--checkpoint-every-steps", 5
    )
    assert run.end() == [1]
    assert saved(run) == there(tmp_path) == [5], run.story()
    assert run.report()["message"] == "a mistake of the training code"


def test_when_training_fails_and_the_save_too_the_first_failure_is_told(runs: Runs, tmp_path: Path) -> None:
    run = runs.start(
        1,
        *("--workload", f"{TASKS}:CountsToFive", "--checkpoint-dir", tmp_path, "--checkpoint-every-steps", 5),
        file_limit=100_000,
    )
    assert run.end() == [1]
    assert run.report()["message"] == "a mistake of the training code"
    assert f"warning: checkpoint {tmp_path}/step-00000005 could not be saved: File too large" in run.errors()
    assert "(the run ends by ValueError)" in run.errors()
    assert list(tmp_path.glob("*step-*")) == []


def test_without_room_a_run_ends_soon_and_says_how_much_it_needs(runs: Runs, tmp_path: Path) -> None:
    run = runs.start(
        1,
        *("--workload", f"{TASKS}:Counts", "--epochs", 1000),
        *("--checkpoint-dir", tmp_path / "saved", "--checkpoint-every-steps", 50),
        file_limit=1_000_000,
    )
    assert run.end() == [2], run.story()
    assert run.errors().startswith(f"error: checkpoint {tmp_path}/saved/step-00000050 could not be saved: ")
    assert run.report()["step"] < 100, "it was told before the next save"
    # All of it is counted, not only what found room: 16 parts of 500,000 numbers of 4 bytes.
    assert 32_000_000 < int(run.errors().split("needed ")[1].split()[0]) < 32_100_000
    assert run.report()["cause"] == "StorageFull"


def test_what_may_pass_fails_a_run_in_a_way_that_is_tried_again(runs: Runs, tmp_path: Path) -> None:
    trouble = tmp_path / "trouble"
    job = ["--workload", f"{TASKS}:CountsOnAFailingDisk", "--max-steps", 4, "--checkpoint-dir", tmp_path / "saved"]
    told = {"TEST_TROUBLE": str(trouble)}
    trouble.touch()
    run = runs.start(1, *job, env=told)
    assert run.end() == [1], run.story()
    assert (run.report()["cause"], run.report()["exception"]) == ("Application", "StorageError")
    assert "step-00000004 could not be saved: Stale file handle; if this happens again, have the disk" in run.errors()
    trouble.unlink()
    assert saved(runs.train(1, *job, env=told)) == [4]


def test_what_cannot_be_read_is_waited_for_less_than_the_others_wait_and_nothing_is_started_over(
    runs: Runs, tmp_path: Path
) -> None:
    trouble, wait = tmp_path / "trouble", round(patience(8))
    saving = ["--checkpoint-dir", tmp_path / "saved", "--timeout-seconds", wait]
    job = ["--workload", f"{TASKS}:CountsOnAFileServerThatIsAway", "--global-batch-size", 40, *saving]
    told = {"TEST_TROUBLE": str(trouble)}
    assert saved(runs.train(2, *job, "--max-steps", 4, env=told)) == [4]
    trouble.touch()
    run = runs.start(2, *job, "--max-steps", 8, env=told)
    assert run.end() == [1, 1], run.story()
    assert (run.report(0)["cause"], run.report(1)["cause"]) == ("StorageUnavailable", "PeerLost")
    assert f"Retried for {wait / 4:g} s. Training does not start over" in run.errors(0)
    trouble.unlink()
    assert runs.train(2, *job, "--max-steps", 8, env=told).value("resumed", "step") == "4"


def test_a_checkpoint_of_a_newer_version_fails_a_run_and_asking_an_older_model(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", f"{TASKS}:Counts", "--max-steps", 4, "--checkpoint-dir", tmp_path]
    runs.train(1, *job)
    manifest = tmp_path / "step-00000004/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 3}))
    run = runs.start(1, *job)
    assert run.end() == [2], run.story()
    assert run.report()["cause"] == "CheckpointUnusable"
    assert "its format is 3, this version reads 1 to 2. Nothing was started or removed." in run.errors()
    assert "its format is 3, this version reads 1 to 2." in runs.command("predict", tmp_path, code=2).errors()
    assert saved(runs.train(1, *job, "--start-over")) == [4]
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000004", "step-00000004-2"]


def test_a_run_that_is_asked_to_stop_does_not_say_saved_where_there_was_no_room(runs: Runs, tmp_path: Path) -> None:
    run = runs.start(2, "--epochs", 1000, "--checkpoint-dir", tmp_path / "saved", file_limit=50_000)
    run.wait("some steps", lambda: len(run.steps()) > 3)
    run.send(signal.SIGTERM, 1)
    assert run.end() == [2, 1], run.story()
    assert "saved" not in run.output(0) + run.output(1)
    assert (run.report(0)["cause"], run.report(1)["cause"]) == ("StorageFull", "PeerLost")


def test_of_two_runs_in_one_directory_the_earlier_one_gives_way_though_neither_had_saved_when_the_other_began(
    runs: Runs, tmp_path: Path
) -> None:
    job = ["--workload", f"{TASKS}:Counts", "--checkpoint-dir", tmp_path, "--checkpoint-every-steps"]
    hold = Hold(tmp_path / "go", after=1)
    earlier = runs.start(1, *job, 40, "--max-steps", 100, env=hold.env)
    earlier.wait("its first step", lambda: bool(earlier.steps()))
    later = runs.start(1, *job, 3)
    later.wait("its first step, too", lambda: bool(later.steps()))
    hold.let_go()
    assert earlier.end() == [2], earlier.story()
    assert saved(earlier) == [], earlier.story()
    assert earlier.errors().startswith(f"error: a later run has taken over {tmp_path}: ")
    assert earlier.errors().count("\n") == 1
    later.wait("a save", lambda: bool(saved(later)))
    newest = tmp_path / f"step-{saved(later)[-1]:08}"
    assert json.loads((newest / "manifest.json").read_text())["lineage"] == [0]
