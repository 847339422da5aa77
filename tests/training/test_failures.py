"""What a run leaves that ends badly: one clear message, an exit code, and a report."""

import re
import signal
from pathlib import Path

import pytest

from tests.support.waiting import patience
from tests.training.runs import Runs

TASKS = "tests.training.tasks"


def test_an_error_of_the_training_code_keeps_its_traceback_and_its_peers_say_one_line(runs: Runs) -> None:
    run = runs.start(2, "--workload", f"{TASKS}:FailsAtStepFive")
    assert run.end() == [1, 1], run.story()
    assert "Traceback" in run.errors(1)
    assert "in loss\n" in run.errors(1)
    report = run.report(1)
    assert (report["cause"], report["exception"], report["step"]) == ("Application", "ValueError", 4)
    assert report["message"] == "a mistake of the training code"
    assert re.fullmatch(r"error: lost a peer in training at step 4: .*\n", run.errors(0)), run.story()
    assert (run.report(0)["cause"], run.report(0)["rank"], run.report(0)["exitCode"]) == ("PeerLost", 0, 1)


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP])
def test_a_peer_that_is_killed_or_hangs_is_lost(runs: Runs, signal_: signal.Signals) -> None:
    run = runs.start(2, "--epochs", 1000, "--timeout-seconds", round(patience(2)))
    run.wait("some steps", lambda: len(run.steps()) > 3)
    run.send(signal_, rank=1)
    assert run.end_of(0) == 1, run.story()
    assert re.fullmatch(r"error: lost a peer in training at step \d+: .*\n", run.errors(0)), run.story()
    assert run.report(0)["cause"] == "PeerLost"


@pytest.mark.parametrize(
    ("present", "message"),
    [
        ([0, 2], "error: waited {seconds} s for rank 1: 2 of 3 processes came to 127.0.0.1:"),
        ([1, 2], "error: waited {seconds} s for rank 0 to answer at 127.0.0.1:"),
    ],
)
def test_who_does_not_come_is_named(runs: Runs, present: list[int], message: str) -> None:
    seconds = round(patience(2))  # In which the others have to come.
    run = runs.start(3, "--timeout-seconds", seconds, ranks=present)
    assert run.end() == [1, 1], run.story()
    said = [run.errors(rank).splitlines()[-1] for rank in present]
    # Who waits longer may see the other's end.
    assert any(line.startswith(message.format(seconds=seconds)) for line in said), run.story()
    assert [run.report(rank)["cause"] for rank in present] == ["PeerLost", "PeerLost"]
    assert "Traceback" not in run.story()


def test_without_room_for_a_checkpoint_a_run_ends_and_those_before_it_are_intact(runs: Runs, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    runs.train(2, "--epochs", 1, "--checkpoint-dir", checkpoints)
    full = runs.start(2, "--epochs", 2, "--checkpoint-dir", checkpoints, file_limit=100_000)
    assert full.end() == [2, 1], full.story()
    assert full.errors(0).startswith(f"error: checkpoint {checkpoints}/step-00000044 could not be saved: ")
    assert full.errors(0).count("\n") == 1
    assert (full.report(0)["cause"], full.report(0)["step"]) == ("StorageFull", 44)
    assert full.report(1)["cause"] == "PeerLost"
    assert [path.name for path in checkpoints.glob("step-*")] == ["step-00000022"]
    assert runs.train(2, "--epochs", 2, "--checkpoint-dir", checkpoints).value("resumed", "step") == "22"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "none"], "argument --epochs: 'none' is not a whole number of at least 1"),
        (
            ["--workload", "resnet"],
            "--workload resnet: it must be convnet, mlp, random, imagenet, layers or MODULE:ATTRIBUTE",
        ),
        (["--workload", "no.such:Task"], "--workload no.such:Task: there is no module no in "),
        (["--workload", f"{TASKS}:Missing"], "has no attribute Missing"),
        (["--workload", f"{TASKS}:NUMBER"], "has a value that is not callable as attribute NUMBER"),
        (["--workload", f"{TASKS}:no_task"], "makes an instance of dict: it must be a subclass of"),
        (["--workload", f"{TASKS}:NoSamples"], "generator has no length: a task's data must have a length"),
        (["--batch-size", "2000"], "one step takes 2000 samples across all processes, but the data set has only"),
        (["--data", "mnist"], "--data mnist needs --data-dir"),
        (["--data", "mnist", "--data-dir", "/nowhere"], "/nowhere/MNIST/raw must hold train-images-idx3-ubyte"),
        (["--backend", "nccl"], "backend nccl needs a GPU for each process: local rank 0 sees 0"),
        (["--checkpoint-dir", "/dev/null/x"], "the checkpoint directory /dev/null/x cannot be used: Not a directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(runs: Runs, arguments: list[str], message: str) -> None:
    run = runs.start(1, *arguments, env={"CUDA_VISIBLE_DEVICES": ""})
    assert run.end() == [2], run.story()
    assert run.errors().startswith("error: ")
    assert message in run.errors()
    assert run.errors().count("\n") == 1
    assert (run.report()["cause"], run.report()["exitCode"]) == ("ConfigError", 2)


def test_a_contradictory_environment_is_a_mistake_too(runs: Runs) -> None:
    run = runs.start(2, ranks=[0], env={"WORLD_SIZE": "3"})
    assert run.end() == [2]
    assert "WORLD_SIZE is 3, but NNODES * LOCAL_WORLD_SIZE is 2" in run.errors()
