"""Which rank failed first, and why: the rest are consequences."""

import json

import pytest
from ddpjob_operator.api import Cause, Failure
from ddpjob_operator.engine import Exit, Pod
from ddpjob_operator.engine.causes import failure_of
from hypothesis import given
from hypothesis import strategies as st

from .builders import START, Scene, a_job

PEER = "RuntimeError: [gloo] Connection closed by peer [10.0.0.7]:4711"

four = a_job(nodes=4).running()


def incident(scene: Scene) -> Failure:
    failure = scene.decided().status.last_failure
    assert failure is not None, "no incident was seen"
    return failure


# An exit of rank 0 -> cause, signal, message.
EXITS: dict[str, tuple[Exit, Cause, int | None, str]] = {
    "an exception": (
        Exit(1, "Error", "Traceback:\n  ...\nValueError: no\n\n"),
        Cause.APPLICATION,
        None,
        "ValueError: no",
    ),
    "an exit code without a word": (Exit(3, "Error"), Cause.APPLICATION, None, "exit code 3"),
    "argparse's 2 is nobody's bad input": (
        Exit(2, "Error", "usage: train.py"),
        Cause.APPLICATION,
        None,
        "usage: train.py",
    ),
    "a signal": (Exit(139, "Error", "the log's last line"), Cause.APPLICATION, 11, "killed by signal 11"),
    "the out-of-memory killer": (Exit(137, "OOMKilled"), Cause.OUT_OF_MEMORY, 9, "killed by signal 9"),
    "a kill that was not for memory": (Exit(137, "Error"), Cause.APPLICATION, 9, "killed by signal 9"),
    "a container that could not start": (
        Exit(128, "StartError", 'exec: "trian": not found in $PATH'),
        *(Cause.START_ERROR, None, 'exec: "trian": not found in $PATH'),
    ),
    "the same in another runtime's words": (
        Exit(127, "ContainerCannotRun"),
        Cause.START_ERROR,
        None,
        "exit code 127",
    ),
    "somebody's SIGTERM": (Exit(143, "Error"), Cause.STOPPED, 15, "killed by signal 15"),
    "saved and stopped on request": (Exit(205, "Error", "saved at step 40"), Cause.STOPPED, None, "saved at step 40"),
    "a lost peer, in gloo's words": (Exit(1, "Error", PEER), Cause.PEER_LOST, None, PEER),
    "an abort over a lost peer": (
        Exit(134, "Error", "Watchdog caught collective operation timeout"),
        *(Cause.PEER_LOST, 6, "killed by signal 6"),
    ),
    "no exit code at all": (Exit(None, "Evicted"), Cause.APPLICATION, None, "Evicted"),
    "no exit code and no reason": (Exit(None), Cause.APPLICATION, None, "ended without an exit code"),
    "128 is no signal": (Exit(128, "Error"), Cause.APPLICATION, None, "exit code 128"),
    "255 is no signal": (Exit(255, "Error"), Cause.APPLICATION, None, "exit code 255"),
}


@pytest.mark.parametrize(("ended", "cause", "signal", "message"), EXITS.values(), ids=EXITS)
def test_the_cause_of_an_exit(ended: Exit, cause: Cause, signal: int | None, message: str) -> None:
    failure = failure_of(Pod("digits-0-x", "uid", 0, 1, exit=ended), 1, START)
    assert (failure.cause, failure.signal, failure.message) == (cause, signal, message)
    assert failure.exit_code == ended.code


def test_a_failure_report_speaks_for_itself() -> None:
    scene = four.reports(2, cause="ConfigError", exception="FileNotFoundError", message="no data in /data", step=7)
    failure = incident(scene)
    assert (failure.rank, failure.attempt, failure.time) == (2, 1, START)
    assert failure.pod == next(pod.name for pod in scene.pods if pod.rank == 2)
    assert failure.cause is Cause.CONFIG_ERROR
    assert failure.message == "FileNotFoundError: no data in /data"
    assert failure.step == 7


@pytest.mark.parametrize(
    "report",
    [
        *("[1, 2]", "null", '"text"', "{", "[" * 4000, "9" * 5000),
        *('{"cause": "Magic"}', '{"cause": ["Stopped"]}', '{"step": true}', '{"step": "7"}', '{"step": NaN}'),
        *('{"step": -1}', f'{{"step": {2**63}}}'),
    ],
)
def test_a_report_that_is_none_is_an_application_error_without_a_step(report: str) -> None:
    failure = incident(a_job(nodes=1).running().fails(0, message=report))
    assert (failure.cause, failure.step) == (Cause.APPLICATION, None)


@given(words=st.text(), reported=st.booleans())
def test_whatever_a_program_leaves_behind_the_failure_is_valid(words: str, reported: bool) -> None:  # noqa: FBT001  given
    message = json.dumps({"message": words + "\udcff"}) if reported else words
    failure = failure_of(Pod("digits-0-x", "uid", 0, 1, exit=Exit(1, "Error", message)), 1, START)
    assert Failure.model_validate_json(failure.model_dump_json(by_alias=True)) == failure
    assert len(failure.message.encode()) <= 512


# Ends of ranks of a gang of four -> the rank that was first, its cause, its consequences.
ORDER: dict[str, tuple[Scene, int, Cause, tuple[int, ...]]] = {
    "one alone": (four.fails(2), 2, Cause.APPLICATION, ()),
    "the earlier of two exceptions": (four.fails(1, at=-1).fails(3, at=-2), 3, Cause.APPLICATION, (1,)),
    "out of memory before a signal, whatever the times say": (
        four.fails(0, code=139, at=-9).fails(3, code=137, reason="OOMKilled"),
        *(3, Cause.OUT_OF_MEMORY, (0,)),
    ),
    "a signal before an exception": (four.fails(0, at=-9).fails(3, code=139), 3, Cause.APPLICATION, (0,)),
    "an exception before a lost peer": (
        four.fails(0, 1, 2, message=PEER, at=-9).fails(3, message="ValueError: no"),
        *(3, Cause.APPLICATION, (0, 1, 2)),
    ),
    "a pod that was stopped before those that lost it": (
        four.fails(0, 1, message=PEER, at=-9).deleted_by_hand(3).fails(3, code=143),
        *(3, Cause.STOPPED, (0, 1)),
    ),
    "a pod that vanished before those that lost it": (
        four.fails(0, 1, message=PEER, at=-9).vanishes(3),
        *(3, Cause.POD_DELETED, (0, 1)),
    ),
    "a pod that is being deleted before those that lost it": (
        four.fails(0, message=PEER, at=-9).deleted_by_hand(3),
        *(3, Cause.POD_DELETED, (0,)),
    ),
    "a lost peer, if nothing else is known": (four.fails(2, message=PEER), 2, Cause.PEER_LOST, ()),
    "out of memory, also in a pod that is being deleted": (
        four.fails(0, message=PEER).deleted_by_hand(3).fails(3, code=137, reason="OOMKilled"),
        *(3, Cause.OUT_OF_MEMORY, (0,)),
    ),
    "ranks that are done are no consequence": (four.succeeds(0, 1).fails(2), 2, Cause.APPLICATION, ()),
}


@pytest.mark.parametrize(("scene", "rank", "cause", "consequences"), ORDER.values(), ids=ORDER)
def test_first_is(scene: Scene, rank: int, cause: Cause, consequences: tuple[int, ...]) -> None:
    failure = incident(scene)
    assert (failure.rank, failure.cause, failure.consequence_ranks) == (rank, cause, consequences)
    assert failure.consequences == len(consequences)
    assert not failure.tied


def test_equal_moments_of_one_kind_are_called_a_tie() -> None:
    scene = four.fails(1, 2, at=-1).decided()
    assert incident(scene).tied
    assert incident(scene).rank == 1
    assert scene.status.message.startswith("Rank 1 failed, one of several at the same moment: ")


def test_equal_moments_of_two_kinds_are_no_tie() -> None:
    assert not incident(four.fails(1).fails(2, code=139)).tied


def test_eight_consequences_are_named_and_all_are_counted() -> None:
    failure = incident(a_job(nodes=12).running().fails(11, message="ValueError: no").fails(*range(11), message=PEER))
    assert (failure.rank, failure.consequences, failure.consequence_ranks) == (11, 11, tuple(range(8)))


# What becomes known while the next attempt waits.
seen = four.fails(0, 1, message=PEER).said()
"""Two ranks lost a peer, and it is not known yet whom."""

AMENDED: dict[str, tuple[Scene, int, int, tuple[int, ...]]] = {
    "nothing new": (seen, 0, 1, (1,)),
    "one more consequence": (seen.former_fails(2, message=PEER, at=1), 0, 2, (1, 2)),
    "the rank that was first after all": (seen.former_fails(3, message="ValueError: no", at=5), 3, 2, (0, 1)),
    "the first, after the pods of the others are gone": (
        seen.vanishes(0, 1).former_fails(3, message="ValueError: no", at=5),
        *(3, 2, (0, 1)),
    ),
    "a rank that we killed": (seen.decided().former_fails(2, code=137), 0, 1, (1,)),
    "a rank that saved and stopped since we asked": (seen.decided().former_fails(2, code=205), 0, 1, (1,)),
    "a rank that ended well in spite of all": (seen.decided().former_fails(2, code=0), 0, 1, (1,)),
    "a rank that ran out of memory before we killed it": (
        seen.decided().former_fails(3, code=137, reason="OOMKilled", at=5),
        *(3, 2, (0, 1)),
    ),
}


@pytest.mark.parametrize(("scene", "rank", "consequences", "named"), AMENDED.values(), ids=AMENDED)
def test_later_words_of_the_same_attempt(scene: Scene, rank: int, consequences: int, named: tuple[int, ...]) -> None:
    once = scene.decided()
    failure = incident(once)
    assert (failure.rank, failure.consequences, failure.consequence_ranks) == (rank, consequences, named)
    assert incident(once.decided()) == failure, "saying it once is enough"
    assert once.status.restarts == 1, "an incident is charged once, whatever becomes known of it"
