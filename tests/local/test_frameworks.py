"""Scripts with several frameworks, killed at random moments, and stopped: the weights are as in an undisturbed run.

What holds for a script with `Training` alone, at each of its lines, is shown in tests/training.
"""

import json
from math import ceil
from pathlib import Path

import pytest

from tests.local.here import BIN, Here
from tests.support.frameworks import FRAMEWORKS, Framework, begins, weights
from tests.support.hugging_face import install_transformers
from tests.support.seed import SEED
from tests.support.waiting import patience

pytestmark = [
    pytest.mark.full("tests/training has the library's own promises; here are the frameworks, for minutes"),
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("procs", [1, 2]),
]

each_framework = pytest.mark.parametrize("name", FRAMEWORKS)

KILLS = 10
PAUSE, SLOWLY = 0.05, 0.5
"""Seconds that each step takes longer, so that saves keep up, and so that a run is stopped in its midst."""


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("transformers")
    install_transformers(directory)
    return directory


@pytest.fixture
def env(name: str, request: pytest.FixtureRequest) -> dict[str, str]:
    return {"PYTHONPATH": str(request.getfixturevalue("transformers"))} if "Hugging Face" in name else {}


@each_framework
def test_a_killed_training_has_the_weights_of_an_undisturbed_one(
    here: Here, name: str, procs: int, env: dict[str, str]
) -> None:
    whole = undisturbed(here, FRAMEWORKS[name], procs, env)
    code, output = here.ddpjob("run", job(here, FRAMEWORKS[name], "killed", procs, kills=KILLS, pause=PAUSE), **env)
    assert code == 0, f"seed {SEED}\n{output}"
    found = weights(here.directory, "killed-weights")
    assert max(begins(found, whole, SEED).values()) > 0, f"it was killed and resumed: seed {SEED}"


@each_framework
def test_a_stopped_training_goes_on_after_its_last_step(
    here: Here, name: str, procs: int, env: dict[str, str]
) -> None:
    whole = undisturbed(here, FRAMEWORKS[name], procs, env)
    stop(here, FRAMEWORKS[name], procs, env)
    job(here, FRAMEWORKS[name], "stopped", procs)  # It need not be slow any more.
    code, output = here.ddpjob("run", "--resume", "stopped", **env)
    assert code == 0, output
    found = weights(here.directory, "stopped-weights")
    assert max(begins(found, whole, SEED).values()) > 0
    for rank, seen in whole.items():
        assert sum(len(ranks[rank]) for ranks in found.values()) == len(seen), "no step is trained twice"


@pytest.mark.parametrize("name", [name for name, framework in FRAMEWORKS.items() if framework.resizes])
def test_another_number_of_processes_trains_on_what_is_left(
    here: Here, name: str, procs: int, env: dict[str, str]
) -> None:
    framework, others = FRAMEWORKS[name], 3 - procs
    stop(here, framework, procs, env)
    done = len(weights(here.directory, "stopped-weights")[1][0])
    job(here, framework, "stopped", others)
    stored = here.run("stopped") / "job.json"
    document = json.loads(stored.read_text())
    document["spec"]["procsPerNode"] = others
    stored.write_text(json.dumps(document))
    code, output = here.ddpjob("run", "--resume", "stopped", **env)
    assert code == 0, output
    left = (framework.steps[procs - 1] - done) * framework.steps[others - 1] / framework.steps[procs - 1]
    later = {len(seen) for seen in weights(here.directory, "stopped-weights")[2].values()}
    assert later == {ceil(left)}, f"{done} steps were done"


def stop(here: Here, framework: Framework, procs: int, env: dict[str, str]) -> None:
    """Stops a training in its midst."""
    run = here.start("run", job(here, framework, "stopped", procs, pause=SLOWLY), **env)
    here.wait("five steps", lambda: len(weights(here.directory, "stopped-weights")[1].get(0, ())) > 5)
    code, output = here.ddpjob("stop", "stopped")
    assert code == 0, output
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 130, output


def undisturbed(here: Here, framework: Framework, procs: int, env: dict[str, str]) -> dict[int, list[str]]:
    """The weights of a run that nobody disturbs, by rank."""
    code, output = here.ddpjob("run", job(here, framework, "undisturbed", procs), **env)
    assert code == 0, output
    (whole,) = weights(here.directory, "undisturbed-weights").values()
    assert {len(each) for each in whole.values()} == {framework.steps[procs - 1]}
    return whole


def job(
    here: Here,
    framework: Framework,
    name: str,
    procs: int,
    *,
    kills: int = 0,
    pause: float = 0.0,
) -> Path:
    """Writes a script and its job."""
    (here.directory / f"{name}.py").write_text(framework.text(name, SEED, kills, pause))
    return here.job(
        name,
        str(BIN / "ddpjob-supervise"),
        *framework.options,
        f"{name}.py",
        *framework.call,
        procsPerNode=procs,
        checkpoint={"path": "/checkpoints", "everySteps": 3},
        restart={"maxRestarts": 2 * KILLS, "inPlaceRestarts": 2 * KILLS, "backoffSeconds": 0},
    )
