"""Who is named for a stall, by a table of what the processes were found doing."""

from typing import Any

import pytest
from ddpjob_supervisor.watch.blame import Observation, blame, whereabouts

WAITS: dict[str, Any] = {
    "state": "S",
    "where": "train (train.py:9), in all_reduce (distributed_c10d.py:3300)",
    "communicates": True,
    "collective": "gloo:all_reduce",
    "sequences": {"0 gloo": 17},
    "step": 5,
    "activity": "training",
}
LOADS = {**WAITS, "where": "load_batch (train.py:42)", "communicates": False, "collective": None}
OVER = {"state": "X"}
NOT_FOUND = "the cause was not found: "
NOBODY = (
    f"{NOT_FOUND}no rank makes progress; rank 0: it is in load_batch (train.py:42); rank 1: it has ended;"
    " rank 2: it is in load_batch (train.py:42)"
)
APART = (
    f"{NOT_FOUND}the ranks wait in different collectives; rank 0: it waits in gloo:all_reduce at train (train.py:9);"
    " rank 1: it waits in gloo:broadcast"
)
STUCK = (
    "rank 0 is stopped (state T), rank 1 does not answer (state D: waits for a disk or a device),"
    " rank 2 cannot be asked"
)
SAME = f"{NOT_FOUND}all ranks wait in the same collective"
OTHERWISE = "rank 1 did not enter the collective: "


@pytest.mark.parametrize(
    ("gang", "rank", "sentence"),
    [
        ([WAITS, {**WAITS, "state": "T"}], 1, f"{OTHERWISE}it is stopped (state T)"),
        ([WAITS, {**WAITS, "state": "Z"}], 1, f"{OTHERWISE}it has ended"),
        ([WAITS, None], 1, f"{OTHERWISE}its supervisor does not answer"),
        ([None, {**WAITS, "state": "T"}], 1, f"{OTHERWISE}it is stopped (state T)"),
        ([None, {**WAITS, "state": "T"}, WAITS], 1, f"{OTHERWISE}it is stopped (state T)"),
        ([None, LOADS, WAITS], 1, f"{OTHERWISE}it is in load_batch (train.py:42)"),
        ([WAITS, OVER, WAITS], 1, f"{OTHERWISE}it has ended"),
        ([None, OVER, WAITS], 1, f"{OTHERWISE}it has ended"),
        ([LOADS, OVER], 0, "rank 0 makes no progress: it is in load_batch (train.py:42)"),
        (
            [WAITS, OVER, LOADS],
            2,
            "rank 2 did not enter the collective: it is in load_batch (train.py:42)",
        ),
        ([LOADS, OVER, LOADS], None, NOBODY),
        ([None, OVER], 0, "rank 0 makes no progress: its supervisor does not answer"),
        ([{**WAITS, "step": 4}, {**WAITS, "state": "T"}], 1, f"{OTHERWISE}it is stopped (state T)"),
        (
            [WAITS, {"state": "D", "silent": True}],
            1,
            f"{OTHERWISE}it does not answer (state D: waits for a disk or a device)",
        ),
        ([WAITS, LOADS], 1, f"{OTHERWISE}it is in load_batch (train.py:42)"),
        ([WAITS, {**LOADS, "activity": "saving"}], 1, f"{OTHERWISE}it is in load_batch (train.py:42), saving"),
        (
            [{**WAITS, "activity": "evaluation"}, {**LOADS, "activity": "evaluation"}],
            1,
            f"{OTHERWISE}it is evaluating in load_batch (train.py:42)",
        ),
        (
            [WAITS, {**LOADS, "state": "D"}],
            1,
            f"{OTHERWISE}it is in load_batch (train.py:42) (state D: waits for a disk or a device)",
        ),
        (
            [WAITS, {**LOADS, "step": 4}],
            1,
            f"{OTHERWISE}it has finished step 4, others step 5, and is in load_batch (train.py:42)",
        ),
        (
            [{**WAITS, "step": 5000}, {**WAITS, "step": 20, "counted": True}],
            None,
            f"{SAME} (gloo:all_reduce) at train (train.py:9): check the network",
        ),
        (
            [{**WAITS, "counted": True}, {**LOADS, "step": 4, "counted": True}],
            1,
            f"{OTHERWISE}it has finished step 4, others step 5, and is in load_batch (train.py:42)",
        ),
        ([WAITS, {**LOADS, "step": None}], 1, f"{OTHERWISE}it is in load_batch (train.py:42)"),
        (
            [WAITS, {**WAITS, "sequences": {"0 gloo": 16}, "collective": None}],
            1,
            f"{OTHERWISE}it is in train (train.py:9), in all_reduce (distributed_c10d.py:3300)",
        ),
        ([WAITS, {"state": "R"}], 1, f"{OTHERWISE}what it is doing is unknown (state R: runs)"),
        (
            [WAITS, LOADS, WAITS, LOADS],
            1,
            "2 ranks did not enter the collective; rank 1: it is in load_batch (train.py:42)",
        ),
        (
            [WAITS, {**WAITS, "collective": "gloo:broadcast"}, WAITS],
            1,
            f"{OTHERWISE}it waits in gloo:broadcast at train (train.py:9), others in gloo:all_reduce",
        ),
        (
            [WAITS, {**WAITS, "collective": "gloo:broadcast", "where": None}],
            None,
            APART,
        ),
        (
            [WAITS, {**WAITS, "collective": "gloo:barrier", "raised": "ValueError: no (a.py:7)"}, WAITS],
            1,
            f"{OTHERWISE}it waits in gloo:barrier at train (train.py:9), while it handles ValueError: no (a.py:7)",
        ),
        (
            [{**WAITS, "raised": "KeyError: 1"}, {**LOADS, "step": 4}],
            1,
            f"{OTHERWISE}it has finished step 4, others step 5, and is in load_batch (train.py:42)",
        ),
        (
            [{**WAITS, "raised": "KeyError: 1"}, {**LOADS, "sequences": {"0 gloo": 16}}],
            1,
            f"{OTHERWISE}it is in load_batch (train.py:42)",
        ),
        (
            [{**WAITS, "raised": "KeyError: 1"}, {**LOADS, "raised": "KeyError: 1"}],
            1,
            f"{OTHERWISE}it is in load_batch (train.py:42), while it handles KeyError: 1",
        ),
        (
            [
                {**WAITS, "fallen": "its thread log has ended with OSError: no"},
                {**LOADS, "fallen": "its thread feed …"},
            ],
            1,
            f"{OTHERWISE}it is in load_batch (train.py:42); its thread feed …",
        ),
        ([WAITS, WAITS], None, f"{SAME} (gloo:all_reduce) at train (train.py:9): check the network"),
        (
            [WAITS, {**WAITS, "where": "evaluate (train.py:30), in all_reduce (distributed_c10d.py:3300)"}],
            None,
            f"{SAME} (gloo:all_reduce) at train (train.py:9), evaluate (train.py:30): check the network",
        ),
        ([{**WAITS, "collective": None, "where": None}] * 2, None, f"{SAME}: check the network"),
        (
            [LOADS, LOADS],
            None,
            f"{NOT_FOUND}no rank makes progress; for every rank: it is in load_batch (train.py:42)",
        ),
        (
            [{**WAITS, "state": "T"}] * 2,
            None,
            f"{NOT_FOUND}no rank makes progress; for every rank: it is stopped (state T)",
        ),
        ([LOADS], 0, "rank 0 makes no progress: it is in load_batch (train.py:42)"),
    ],
    ids=[
        "stopped",
        "ended",
        "its supervisor is silent",
        "stopped, and another supervisor is silent",
        "stopped, of three",
        "elsewhere, and another supervisor is silent",
        "ended, and all others wait",
        "ended, of the others one is silent",
        "ended, and the only other one is still at it",
        "ended, and one of the others is still at it",
        "ended, and all others are still at it",
        "ended, and nothing is known of the only other one",
        "stopped counts more than behind",
        "does not answer",
        "elsewhere",
        "elsewhere, saving",
        "elsewhere, evaluating",
        "stuck in the kernel",
        "a step behind",
        "its steps are counted for it",
        "a counted step behind",
        "does not report steps",
        "a collective behind",
        "nothing is known of it",
        "two of four",
        "in another collective",
        "in different collectives",
        "it handles an exception",
        "another trains while it handles an exception",
        "a collective behind one that trains while it handles an exception",
        "all handle one",
        "a thread has ended",
        "all in one",
        "all in one, at two places",
        "all in one whose name is not known",
        "all elsewhere",
        "all stopped",
        "alone",
    ],
)
def test_the_strongest_evidence_that_tells_ranks_apart_names_one(
    gang: list[dict[str, Any] | None], rank: int | None, sentence: str
) -> None:
    observations = {process: Observation(process, **found) for process, found in enumerate(gang) if found is not None}
    assert blame(observations, len(gang)) == (rank, sentence)


def test_a_rank_is_named_as_its_gang_names_it() -> None:
    observations = {0: Observation(0, **WAITS), 1: Observation(1, **LOADS), 2: Observation(2, **WAITS)}
    _, sentence = blame(observations, 3, lambda rank: f"rank {rank} (node {9 - rank})")
    assert sentence == "rank 1 (node 8) did not enter the collective: it is in load_batch (train.py:42)"
    observations[2] = Observation(2, "X")
    observations[0] = Observation(0, **LOADS)
    _, sentence = blame(observations, 3, lambda rank: f"rank {rank} (node {9 - rank})")
    assert sentence.startswith(
        "the cause was not found: no rank makes progress; rank 0 (node 9): it is in load_batch (train.py:42); "
        "rank 1 (node 8)"
    )


@pytest.mark.parametrize(
    ("gang", "sentence"),
    [
        (
            [WAITS, LOADS],
            "rank 0 waits in gloo:all_reduce at train (train.py:9), rank 1 is at load_batch (train.py:42)",
        ),
        ([WAITS] * 3, "rank 0 waits in gloo:all_reduce at train (train.py:9) (and 2 more)"),
        ([{**WAITS, "collective": None}], "rank 0 waits for other ranks at train (train.py:9)"),
        (
            [{**WAITS, "collective": None, "expects": "world_size is 4"}] * 2,
            "rank 0 waits for other ranks at train (train.py:9): world_size is 4 (and 1 more)",
        ),
        ([LOADS, None, OVER], "rank 0 is at load_batch (train.py:42), rank 1 is out of reach, rank 2 has ended"),
        (
            [{**LOADS, "activity": "evaluation"}, WAITS],
            "rank 0 is evaluating at load_batch (train.py:42), rank 1 waits in gloo:all_reduce at train (train.py:9)",
        ),
        ([{**WAITS, "state": "T"}, {"state": "D", "silent": True}, {"state": "S"}], STUCK),
        (
            [LOADS, None, OVER, WAITS],
            "rank 0 is at load_batch (train.py:42), rank 1 is out of reach, rank 2 has ended, …",
        ),
    ],
)
def test_where_ranks_are_is_said_of_all_that_are_at_the_same_place_at_once(
    gang: list[dict[str, Any] | None], sentence: str
) -> None:
    found = {rank: Observation(rank, **process) for rank, process in enumerate(gang) if process is not None}
    assert whereabouts(found, len(gang)) == sentence
