"""A script that trains with `ddpjob.Training` is killed at random lines, with real processes, and started again.

Whatever happens, it goes on from a state that is whole and not older than promised, and comes to the numbers of an
undisturbed run, to the bit; no batch is lost, or seen twice in the history that counts.
"""

import itertools
import json
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import ddpjob
import pytest

from tests.support import s3_server
from tests.support.frameworks import FRAMEWORKS, Weights, begins
from tests.support.hugging_face import install_transformers
from tests.support.killed_scripts import Attempts, draw_features, script_of
from tests.support.seed import SEED
from tests.training.killing import HERE, Kill, Place, Script, draw_kill
from tests.training.strangers import Stranger

KILLS = 25
"""For each number of ranks, each place and each kind of script in the full tests: 200 in all."""
MOST_OF_A_SCRIPT = 5

RECORD = os.environ.get("KILL_TABLE")
"""Where to record how many ranks were killed; see killing_page.py."""

Recorder = Callable[[Mapping[str, int]], None]

SAVED, RESUMED = (re.compile(rf"^{word} step=(\d+) ", re.MULTILINE) for word in ("saved", "resumed"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An S3 server."""
    directory = tmp_path_factory.mktemp("s3-server")
    s3_server.install(directory)
    with s3_server.serving(directory, directory / "log") as port:
        s3_server.make_bucket(port, "checkpoints")
        yield Place("s3://checkpoints", s3_server.environment(port))


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("transformers")
    install_transformers(directory)
    return directory


@pytest.fixture(params=["directory", "object store"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = HERE if request.param == "directory" else request.getfixturevalue("store")
    return found


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Recorder:
    """Records the kills of a test."""

    def keep(kills: Mapping[str, int]) -> None:
        print(kills)
        if RECORD:
            values = request.node.callspec.params
            own = "others" not in request.node.name
            cell = {"own": own, "size": values["size"], "place": values["place"], "kills": kills, "seed": SEED}
            (Path(RECORD) / f"{request.node.name.encode().hex()}.json").write_text(json.dumps(cell))

    return keep


@pytest.fixture
def scripts() -> Iterator[list[Script]]:
    """The scripts of a test, which end with it."""
    scripts: list[Script] = []
    yield scripts
    for script in scripts:
        script.end()


def kill_again_and_again(
    directory: Path, size: int, scripts: list[Script], most: int, place: Place = HERE
) -> list[Kill]:
    """Draws a script, and kills it at most so many times; returns the kills."""
    features = draw_features() | ({"ranks"} if size > 1 else set())
    print(sorted(features))
    calm = Script(directory / "calm", script_of(features), size, place)
    scripts.append(calm)
    lines = calm.run_and_count()
    killed = Script(directory / "killed", calm.source, size, place)
    scripts.append(killed)
    kills = list[Kill]()
    for _ in range(most):
        kill = draw_kill(size, lines)
        print(kill)
        codes = killed.run(kill)
        if not any(codes):
            break
        assert codes[kill.rank] == -signal.SIGKILL, killed.story()
        kills.append(kill)
    else:
        assert killed.run() == [0] * size, killed.story()
    try:
        for rank in range(size):
            Attempts(killed.directory, rank).check(Attempts(calm.directory, rank))
        _check_promises(killed)
    except AssertionError as error:
        error.add_note(killed.story())
        raise
    return kills


def _check_promises(script: Script) -> None:
    """Compares where each attempt went on with what the ones before had said was saved."""
    promised = 0
    for output in script.outputs[:: script.size]:
        said = output.read_text()
        resumed, saved = RESUMED.search(said), [int(step) for step in SAVED.findall(said)]
        if resumed or saved:
            assert int(resumed[1] if resumed else 0) >= promised, output
            promised = max(promised, *saved, 0)


@pytest.mark.parametrize("size", [1, 2])
def test_a_script_that_is_killed_at_random_lines_comes_to_the_same_numbers(
    size: int, tmp_path: Path, scripts: list[Script]
) -> None:
    kill_again_and_again(tmp_path, size, scripts, most=2)


@pytest.mark.full("200 kills in all; the test above makes two for each size")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 4])
def test_many_scripts_come_to_the_same_numbers(
    size: int, place: Place, tmp_path: Path, scripts: list[Script], record: Recorder
) -> None:
    kills = list[Kill]()
    while len(kills) < KILLS:
        directory = tmp_path / str(len(scripts))
        kills += kill_again_and_again(directory, size, scripts, min(MOST_OF_A_SCRIPT, KILLS - len(kills)), place)
    of_library = sum(kill.of_library for kill in kills)
    record({"script": len(kills) - of_library, "library": of_library})


@pytest.mark.full("200 kills in all; tests/local/test_frameworks.py has one and two ranks, and stops them, too")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 4])
def test_many_scripts_of_others_come_to_the_same_weights(
    size: int, place: Place, transformers: Path, tmp_path: Path, record: Recorder
) -> None:
    names = [name for name in FRAMEWORKS if not (place.url and "Hugging Face" in name)]  # It saves into directories.
    random.shuffle(names)
    env = {**place.env, "PYTHONPATH": str(transformers)}
    calm, kills = dict[str, Weights](), Counter[str]()
    for number, name in enumerate(itertools.cycle(names)):
        if name not in calm:
            calm[name] = Stranger(name, tmp_path / f"calm-{number}", size, place, env).run("", 0)
        killed = Stranger(name, tmp_path / f"killed-{number}", size, place, env)
        print(name)
        found = killed.run(seed := f"{SEED} {number}", min(MOST_OF_A_SCRIPT, KILLS - kills.total()))
        print(*killed.kills(), sep="\n")
        (whole,) = calm[name].values()
        killed.check_promises(begins(found, whole, seed))
        kills.update(killed.kinds())
        if kills.total() == KILLS:
            break
    record(kills)


STOPPED = """
import os, signal, torch, ddpjob
training = ddpjob.Training(model=torch.nn.Linear(1, 1), loader=range(4), directory=os.environ["DIRECTORY"] or None)
try:
    for _ in training.epochs(2):
        for number in training.batches():
            if number == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            training.step(0.5)
        print("an epoch", flush=True)
finally:
    print("cleaned up", flush=True)
"""


def test_sigterm_saves_says_so_and_exits_with_205_through_finally(tmp_path: Path, scripts: list[Script]) -> None:
    scripts.append(script := Script(tmp_path / "script", STOPPED, 1))
    assert script.run() == [205], script.story()
    checkpoints = script.directory / "checkpoints"
    assert script.outputs[0].read_text() == (
        f"saved step=3 epoch=1 checkpoint={checkpoints}/step-00000003\n"
        f"stopped on request after step 3, which is saved in {checkpoints}\ncleaned up\n"
    )


def test_without_a_directory_sigterm_ends_the_process_as_before(tmp_path: Path, scripts: list[Script]) -> None:
    scripts.append(script := Script(tmp_path / "script", STOPPED.replace('os.environ["DIRECTORY"]', "''"), 1))
    assert script.run() == [-signal.SIGTERM], script.story()
    assert "cleaned up" not in script.story()


MISTAKE = """
import os, torch, ddpjob
training = ddpjob.Training(
    model=torch.nn.Linear(1, 1), loader=range(4), directory=os.environ["DIRECTORY"], every_steps=2
)
for _ in training.epochs(2):
    for number in training.batches():
        training.step(0.5)
        assert number < 2, "a mistake of the script"
"""


def test_a_save_under_way_is_finished_when_the_body_raises(tmp_path: Path, scripts: list[Script]) -> None:
    scripts.append(script := Script(tmp_path / "script", MISTAKE, 1))
    assert script.run() == [1]
    assert "a mistake of the script" in script.story()
    assert ddpjob.newest(script.directory / "checkpoints") == script.directory / "checkpoints/step-00000002"


SILENT = """
import time
from ddpjob.training import saver
from ddpjob_rank.reporting.agreement_server import NotSentError
def gathered(name, seconds):
    time.sleep(0.1)
    raise NotSentError([1], "sent nothing")
saver.RANKS_SECONDS = 1000.0
"""


def test_a_process_that_ends_does_not_wait_for_ranks_that_are_gone(tmp_path: Path, scripts: list[Script]) -> None:
    source = SILENT + MISTAKE.replace("for _ in", "training._saver._agreement.gathered = gathered\nfor _ in")
    scripts.append(script := Script(tmp_path / "script", source, 1))
    assert script.run() == [1]
    assert "a mistake of the script" in script.story()
