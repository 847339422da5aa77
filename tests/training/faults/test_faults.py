"""Every kind of fault at every stage of training, with real supervisors and ranks; the operator's part is played."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.faults import holds
from tests.training.faults.scene import PATIENCE, Results, Scene, a_scene, inject
from tests.training.faults.table import AT_NODE_0, FRUITLESS, ROWS, STAGES, Cell, Program, Result, When, Who, expected

RECORD = os.environ.get("FAULT_TABLE")
"""Where to record the whole table; without it only some of its rows are run."""

ALWAYS = {Program.TRAINER: (Who.RAISES, Who.LEADER, Who.LINK), Program.TRAINING: (Who.RANK_0,)}

PARAMS = [
    pytest.param(program, who, id=f"{program}-{who.name}")
    for program, rows in (ROWS if RECORD else ALWAYS).items()
    for who in rows
]

BEFORE_ALL_HAVE_COME = (
    Who.ZYGOTE,
    Who.LINK,
    Who.POD,
    Who.POD_0,
    Who.SUPERVISOR_FROZEN,
    Who.SUPERVISOR,
    Who.LEADER,
    Who.NODE,
)

ENV = {Who.FROZEN: {"DDPJOB_STALL_TIMEOUT_SECONDS": "5", PATIENCE: "20"}}

STEPS_UNTIL_EVALUATION = 2 * 10
"""Of both ranks, from the very beginning."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def results(request: pytest.FixtureRequest) -> Results:
    return Results(Path(RECORD) / f"{request.node.name.encode().hex()}.json" if RECORD else None)


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    who: Who = request.getfixturevalue("who")
    program: Program = request.getfixturevalue("program")
    with a_scene(tmp_path, 2, program, **ENV.get(who, {})) as scene:
        yield scene


@pytest.mark.parametrize(("program", "who"), PARAMS)
def test_whenever_it_happens_training_goes_on_to_its_end(
    program: Program, who: Who, scene: Scene, results: Results
) -> None:
    stages = STAGES[program]
    scene.plan(who, stages[0], after=0)
    scene.start_all(1)
    for when, following in zip(stages, (*stages[1:], None), strict=True):
        cell = expected(who, when, program)
        print(f"{who}: {when}")
        seconds = _happens(scene, who, when, following, cell)
        results.record(program, who, when, cell.result, seconds)
    assert scene.ends() == [0, 0]
    made = scene.attempts_of_steps()
    assert made == sorted(made), f"a rank of a former attempt made a step: {made}"


def _happens(scene: Scene, who: Who, when: When, following: When | None, cell: Cell) -> float | None:
    """One cell. Gives the seconds from the fault until all ranks run again, where they do."""
    held = scene.await_held()
    attempt = max(one.attempt for one in held.values())
    if when not in {*FRUITLESS, When.PREFLIGHT, When.TEARDOWN, When.END}:
        scene.wait("a step is known", lambda: bool(scene.status()["firstStepSeen"]))
    if when is When.EVALUATION:  # In the attempt after the one that ended in a save, the first that there was.
        made = scene.attempts_of_steps().count(attempt)
        assert made >= STEPS_UNTIL_EVALUATION, f"it went on from a save that was never finished: {scene.story()}"
    if when is When.END:
        other = 1 if who in AT_NODE_0 else 0
        assert scene.end_of(other) == 0, scene.story()
    before = [] if when is When.END else scene.incidents()
    if following is None:
        holds.plan(scene.directory, {}, after=attempt)
    else:
        scene.plan(who, following, after=attempt)
    began = time.time()
    inject(scene, who, held, attempt + 1)
    match cell.result:
        case Result.IN_PLACE | Result.REPLACED:
            seconds = scene.await_start(attempt) - began
            _check_incident(scene, cell, before, attempt)
            return seconds
        case Result.RECREATED:
            assert tuple(scene.ends()) == cell.codes, scene.story()
            scene.start_all(attempt + 1, **({"DDPJOB_PREFLIGHT": "Disabled"} if when is When.END else {}))
            return scene.await_start(attempt) - began
        case _:
            if cell.result is Result.WAITS:
                time.sleep(3)  # Nothing happens, which cannot be awaited.
                assert scene.supervisors[1].poll() is None, scene.story()
                os.kill(held[1].pid, signal.SIGCONT)
            holds.tell(scene.directory, held[1], holds.GO)
            return None


def _check_incident(scene: Scene, cell: Cell, before: list[dict[str, object]], attempt: int) -> None:
    now = scene.incidents()
    if cell.incident is None:
        assert now == before, scene.story()
        return
    assert now[:-1] == before[-15:], scene.story()
    last, wanted = now[-1], cell.incident
    assert (last["node"], last["cause"], last["attempt"]) == (wanted.node, wanted.cause, attempt), scene.story()
    assert str(last["message"]).startswith(wanted.message), scene.story()


def test_whoever_goes_before_all_have_come_is_replaced_or_comes_again_and_then_all_begin(
    tmp_path: Path, results: Results
) -> None:
    with a_scene(tmp_path, 3) as scene:
        holds.plan(scene.directory, {}, after=0)
        for node in (0, 1):
            scene.start_node(node, *scene.words)
        for who in BEFORE_ALL_HAVE_COME if RECORD else BEFORE_ALL_HAVE_COME[:4]:
            scene.wait(f"node 2 alone is missing before {who}", lambda: scene.is_missing([2]))
            print(who)
            began = time.time()
            inject(scene, who, {}, 1)
            scene.wait(f"node 2 alone is missing after {who}", lambda: scene.is_missing([2]))
            assert (scene.status()["phase"], scene.incidents()) == ("Gathering", [])
            assert not scene.starts(), "a rank ran before all had come"
            result = expected(who, When.GATHERING).result
            results.record(Program.TRAINER, who, When.GATHERING, result, time.time() - began)
        scene.start_node(2, *scene.words)
        assert scene.ends() == [0, 0, 0], scene.story()
        assert {start.rank for start in scene.starts()} == {0, 1, 2}
