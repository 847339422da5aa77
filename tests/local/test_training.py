"""Training for real: the trainer, the engine and local mode together, with faults on purpose."""

import json
import random
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.local.here import Here

EPOCHS, STEPS = 2, 44
"""A short run: long enough to be killed in the middle, short enough for several of them."""

RESIZED_TOLERANCE = 1e-5
"""After a resize the same samples are averaged in other groups, so sums differ in their last bits and training
carries that on. (A network with batch normalisation differs by more: it sees the statistics of other groups.)"""


def digits(here: Here, name: str, nodes: int, workload: str = "convnet") -> Path:
    """A short training of the example, with a checkpoint every few steps."""
    arguments = ["--workload", workload, "--data", "digits", "--global-batch-size", "64", "--seed", "7"]
    return here.job(
        name,
        "ddpjob-train",
        nodes=nodes,
        checkpoint={"path": "/checkpoints", "everySteps": 5, "keep": 100},
        restart={"backoffSeconds": 0},
        container={"args": [*arguments, "--epochs", str(EPOCHS), "--log-every", "1"]},
    )


def final(here: Here, name: str) -> dict[str, torch.Tensor]:
    """Every tensor of the last checkpoint: weights, buffers, and the optimizer's state."""
    last = max((here.run(name) / "volumes" / "checkpoints").glob("step-*"))
    assert int(last.name.removeprefix("step-")) == STEPS
    return dict(tensors(torch.load(last / "state.pt", weights_only=True)))


def tensors(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """Tensors in a nested value, with their paths; random states apart, which are bytes."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    return [found for key, item in items for found in tensors(item, f"{path}/{key}")]


def steps(here: Here, name: str, rank: int, attempt: int) -> list[int]:
    """The steps that a rank has said it finished."""
    return [
        int(step) for step in re.findall(r"^progress .*?step=(\d+)/", here.log(name, rank, attempt), re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, torch.Tensor]]:
    """The end of a run that nothing happened to, by number of ranks."""
    here = Here(tmp_path_factory.mktemp("undisturbed"))
    ends = {}
    for nodes in (2, 3):
        code, output = here.ddpjob("run", digits(here, f"calm-{nodes}", nodes))
        assert code == 0, output
        ends[nodes] = final(here, f"calm-{nodes}")
    return ends


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_rank_killed_at_a_random_step_changes_no_bit_of_the_result(
    here: Here, undisturbed: dict[int, dict[str, torch.Tensor]], nodes: int
) -> None:
    at, victim = random.randrange(1, STEPS - 5), random.randrange(nodes)
    run = here.start("run", digits(here, "killed", nodes))
    here.wait(f"step {at}", lambda: (done := steps(here, "killed", victim, 1)) and done[-1] >= at)
    here.trainers("killed")[victim].kill()
    output, _ = run.communicate(timeout=120)
    status = here.status("killed")
    assert run.returncode == 0, output
    assert (status["restarts"], status["disruptions"]) == (1, 0), output
    assert (status["lastFailure"]["rank"], status["lastFailure"]["signal"]) == (victim, 9), output
    resumed = steps(here, "killed", 0, 2)
    assert resumed[0] > 1 or at < 5, f"killed at {at}, resumed at {resumed[0]}"
    ours, theirs = final(here, "killed"), undisturbed[nodes]
    assert ours.keys() == theirs.keys()
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert different == [], f"rank {victim} killed at step {at}"


def test_a_run_resumed_with_another_number_of_nodes_ends_at_the_same_weights_within_tolerance(
    here: Here,
) -> None:
    code, output = here.ddpjob("run", digits(here, "calm", 2, "mlp"))
    assert code == 0, output
    run = here.start("run", digits(here, "resized", 2, "mlp"))
    here.wait("some steps", lambda: (done := steps(here, "resized", 0, 1)) and done[-1] >= 10)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 130, output
    code, output = here.ddpjob("run", digits(here, "resized", 3, "mlp"))
    assert code == 0, output
    assert here.status("resized")["nodes"] == 3
    ours, theirs = final(here, "resized"), final(here, "calm")
    weights = [name for name in theirs if "/model/" in name and theirs[name].is_floating_point()]
    assert weights
    largest = max((ours[name] - theirs[name]).abs().max().item() for name in weights)
    assert largest < RESIZED_TOLERANCE


def test_an_error_in_the_training_code_is_told_with_its_step_and_its_last_line(here: Here) -> None:
    (here.directory / "broken.py").write_text(
        "from ddpjob_trainer.workloads.convnet import ConvNetTask\n"
        "class Task(ConvNetTask):\n"
        "    calls = 0\n"
        "    def loss(self, model, batch):\n"
        "        Task.calls += 1\n"
        "        if Task.calls == 6 and __import__('os').environ['RANK'] == '1':\n"
        "            raise RuntimeError('the loss is not a number')\n"
        "        return super().loss(model, batch)\n"
    )
    file = here.job(
        "broken",
        "ddpjob-train",
        nodes=2,
        restart={"maxRestarts": 0},
        container={
            "args": ["--workload", "broken:Task", "--epochs", "1", "--log-every", "1"],
            "env": [{"name": "PYTHONPATH", "value": str(here.directory)}],
        },
    )
    code, output = here.ddpjob("run", file)
    status = here.status("broken")
    assert code == 1, output
    assert status["lastFailure"]["rank"] == 1, json.dumps(status, indent=1)
    assert status["lastFailure"]["cause"] == "Application"
    assert status["lastFailure"]["message"] == "RuntimeError: the loss is not a number"
    assert status["lastFailure"]["step"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "mnist", "--data-dir", "/nowhere"], "/nowhere"),
        (["--workload", "no_such_module:Task"], "no_such_module"),
        (["--epochs", "many"], "--epochs"),
    ],
)
def test_a_mistake_in_the_arguments_fails_at_once_with_exit_code_2(
    here: Here, arguments: list[str], message: str
) -> None:
    file = here.job("mistake", "ddpjob-train", nodes=2, container={"args": arguments})
    code, output = here.ddpjob("run", file)
    status = here.status("mistake")
    assert code == 2, output
    assert (status["restarts"], status["lastFailure"]["cause"]) == (0, "ConfigError"), output
    assert message in output
    assert "Traceback" not in output


def test_the_example_reaches_its_accuracy(here: Here) -> None:
    example = Path(__file__).parents[2] / "deploy" / "examples" / "digits.yaml"
    code, output = here.ddpjob("run", example)
    assert code == 0, output
    accuracy = re.search(r"accuracy +([\d.]+)", output.rpartition("Succeeded")[2])
    assert accuracy, output
    assert float(accuracy[1]) >= 0.97
