"""A script that trains with `ddpjob.Training` is killed at random lines, with real processes, and started again.

Whatever happens, it goes on from a state that is whole and not older than promised, and comes to the numbers of an
undisturbed run, to the bit; no batch is lost, or seen twice in the history that counts.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import ddpjob
import pytest

from tests.support.killed_scripts import Attempts, draw_features, script_of
from tests.training.killing import Script, draw_kill

KILLS = 4
"""Of each script in the full tests."""

SAVED, RESUMED = (re.compile(rf"^{word} step=(\d+) ", re.MULTILINE) for word in ("saved", "resumed"))


@pytest.fixture
def scripts() -> Iterator[list[Script]]:
    """The scripts of a test, which end with it."""
    scripts: list[Script] = []
    yield scripts
    for script in scripts:
        script.end()


def kill_again_and_again(directory: Path, size: int, scripts: list[Script], kills: int = KILLS) -> None:
    features = draw_features() | ({"ranks"} if size > 1 else set())
    print(sorted(features))
    calm = Script(directory / "calm", script_of(features), size)
    scripts.append(calm)
    lines = calm.run_and_count()
    killed = Script(directory / "killed", calm.source, size)
    scripts.append(killed)
    for _ in range(kills):
        kill = draw_kill(size, lines)
        print(kill)
        codes = killed.run(kill)
        if not any(codes):
            break
        assert codes[kill.rank] == -signal.SIGKILL, killed.story()
    else:
        assert killed.run() == [0] * size, killed.story()
    try:
        for rank in range(size):
            Attempts(killed.directory, rank).check(Attempts(calm.directory, rank))
        _check_promises(killed)
    except AssertionError as error:
        error.add_note(killed.story())
        raise


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
    kill_again_and_again(tmp_path, size, scripts, kills=2)


@pytest.mark.full("200 kills; test_killed_scripts makes two for each size")
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("number", range(17))
def test_many_scripts_come_to_the_same_numbers(size: int, number: int, tmp_path: Path, scripts: list[Script]) -> None:
    print("script", number)
    kill_again_and_again(tmp_path, size, scripts)


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
def gathered(name, seconds):
    time.sleep(0.1)
    raise TimeoutError("rank 1 has not sent its state")
saver.RANKS_SECONDS = 1000.0
"""


def test_a_process_that_ends_does_not_wait_for_ranks_that_are_gone(tmp_path: Path, scripts: list[Script]) -> None:
    source = SILENT + MISTAKE.replace("for _ in", "training._saver._agreement.gathered = gathered\nfor _ in")
    scripts.append(script := Script(tmp_path / "script", source, 1))
    assert script.run() == [1]
    assert "a mistake of the script" in script.story()
