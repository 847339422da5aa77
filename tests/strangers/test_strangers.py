"""Scripts that strangers wrote, in somebody else's directory, by `ddpjob run`.

What this shows of each is the table of docs/reference/strangers.md.
"""

import json
import re
import signal
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import Cause

from tests.local.here import Here
from tests.support.waiting import patience

from .stranger import RAISES, STRANGERS, Stranger

MANY = 100_000
LIMIT_SECONDS = 20

SIZE = """
from accelerate import Accelerator
accelerator = Accelerator()
print(f"process {accelerator.process_index} of {accelerator.num_processes}", flush=True)
"""

DEAR = pytest.mark.full("the multinode tutorial shows it, and here are the others")
FAULT = pytest.mark.full("tests/training/faults has it of our own program, and here are the others")


def rows(dear: Any = DEAR, *, cheap: str = "", steps: bool = False) -> list[Any]:
    """All of them, of which one at most is cheap."""
    return [
        pytest.param(one, id=name, marks=[] if name == cheap else dear)
        for name, one in STRANGERS.items()
        if one.steps or not steps
    ]


@pytest.fixture
def env(request: pytest.FixtureRequest, stranger: Stranger) -> dict[str, str]:
    """What a script needs that is not in the environment."""
    if stranger.script != "fine_tune.py":
        return {}
    return {"PYTHONPATH": str(request.getfixturevalue("transformers"))}


@pytest.mark.parametrize("stranger", rows(cheap="multinode"))
def test_a_script_is_killed_and_stopped_and_goes_on_with_its_ranks_together(
    here: Here, stranger: Stranger, env: dict[str, str]
) -> None:
    stranger.write(here.directory)
    name, last = stranger.name, stranger.last
    run = here.start(*stranger.command(MANY), **env)
    here.wait("a save and two epochs more", lambda: stranger.epochs(here, last)[stranger.every + 1 :])

    stranger.trains(here).kill()
    before = began(here, stranger)
    here.wait("the restart", lambda: here.status(name)["restarts"] == 1)
    failure = here.status(name)["incidents"][0]
    assert "SIGKILL" in failure["message"] or failure.get("signal") == "SIGKILL", failure
    goes_on(here, stranger, before)

    code, output = here.ddpjob("stop", name)
    assert (code, output.splitlines()[-1]) == (0, f"Go on with: ddpjob run --resume {name}"), output
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 130, output
    assert here.processes(name) == []

    before = began(here, stranger)
    here.start("run", "--resume", name, **env)
    goes_on(here, stranger, before)
    if stranger.steps:
        here.wait("its progress", lambda: here.status(name).get("display", {}).get("progress"))
    if stranger.saves:
        said = {one["type"]: one["status"] for one in here.status(name)["conditions"]}
        assert said.get("StartedOver", "False") == "False", here.evidence()


@pytest.mark.full("tests/unit/rank/test_heartbeats has what is told when, and here is who is told")
def test_a_script_for_one_node_is_told_on_two_that_its_nodes_train_apart(here: Here) -> None:
    stranger = STRANGERS["parallel"]
    stranger.write(here.directory)
    here.start(*stranger.command(MANY), "--nodes", "2")
    here.wait("the warning", lambda: "they train apart" in here.log(stranger.name, 0))


@pytest.mark.full("tests/unit/engine/test_pods.py has what they are told, and here they are")
@pytest.mark.parametrize("launcher", ["accelerate launch", "torchrun", "python -m torch.distributed.run"])
def test_a_bare_launcher_in_a_file_starts_all_processes_together(here: Here, launcher: str) -> None:
    (here.directory / "size.py").write_text(SIZE)
    code, output = here.ddpjob("run", here.job("any", *launcher.split(), "size.py", nodes=2, procsPerNode=2))
    assert code == 0, output
    assert {f"process {number} of 4" for number in range(4)} <= set(re.findall(r"process \d of \d", output)), output


def began(here: Here, stranger: Stranger) -> list[int]:
    """How many epochs each node has begun."""
    return [len(stranger.epochs(here, node)) for node in range(stranger.nodes)]


def goes_on(here: Here, stranger: Stranger, before: list[int]) -> None:
    """It goes on from what each node had begun before."""
    stranger.goes_on(
        here.wait, lambda: [stranger.epochs(here, node)[seen:] for node, seen in enumerate(before)], here.evidence
    )


@pytest.mark.parametrize("stranger", rows(FAULT))
def test_the_cause_of_an_error_is_named(here: Here, stranger: Stranger, env: dict[str, str]) -> None:
    stranger.write(here.directory, RAISES)
    code, output = here.ddpjob(*stranger.command(MANY, "--max-restarts", "0"), **env)
    failure = here.status(stranger.name)["incidents"][0]
    assert code == 1, output
    assert failure["node"] == stranger.last, json.dumps(failure)
    assert "ValueError: batch 30 is broken" in failure["message"], json.dumps(failure)
    assert "ValueError: batch 30 is broken" in output


@pytest.mark.parametrize("stranger", rows(FAULT, steps=True))
def test_a_rank_that_is_stopped_is_noticed_within_the_limit(
    here: Here, stranger: Stranger, env: dict[str, str]
) -> None:
    stranger.write(here.directory)
    _, text = here.says(*stranger.command(MANY, "--dry-run", "-o", "yaml"))
    document = yaml.safe_load(text)
    document["spec"]["stallTimeoutSeconds"] = LIMIT_SECONDS
    (here.directory / "job.yaml").write_text(yaml.safe_dump(document))
    here.start("run", "job.yaml", **env)
    here.wait("a save and two epochs more", lambda: stranger.epochs(here, stranger.last)[stranger.every + 1 :])

    stranger.trains(here).send_signal(signal.SIGSTOP)
    before = began(here, stranger)
    here.wait("the restart", lambda: here.status(stranger.name)["restarts"] == 1)
    failure = here.status(stranger.name)["incidents"][0]
    assert failure["cause"] == Cause.STALLED, json.dumps(failure)
    goes_on(here, stranger, before)
