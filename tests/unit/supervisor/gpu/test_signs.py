"""What has happened to GPUs, and what of it means that one is broken."""

from dataclasses import replace

import pytest
from ddpjob_supervisor.gpu.health import Gpu
from ddpjob_supervisor.gpu.signs import SIGNS, Meaning, happened

WELL = Gpu(0, "GPU-a", "0000:17:00.0")
OTHER = Gpu(1, "GPU-b", "0000:98:00.0")
LOST = Gpu(0, lost="GPU is lost")
APPLICATION, CONTAINED, BROKEN = Meaning


@pytest.mark.parametrize(
    ("before", "now", "xids", "facts"),
    [
        ([WELL, OTHER], [WELL, OTHER], [], []),
        (
            [WELL],
            [replace(WELL, uncorrected=1)],
            [],
            [(0, CONTAINED, "GPU 0 has had an ECC error that could not be corrected")],
        ),
        (
            [WELL],
            [replace(WELL, uncorrected=1)],
            [(0, 94)],
            [
                (0, CONTAINED, "GPU 0: Xid 94, contained memory error"),
                (0, CONTAINED, "GPU 0 has had an ECC error that could not be corrected"),
            ],
        ),
        ([replace(WELL, uncorrected=1)], [replace(WELL, uncorrected=1)], [], []),
        ([WELL, OTHER], [LOST, OTHER], [], [(0, BROKEN, "GPU 0 does not answer: GPU is lost")]),
        ([LOST, OTHER], [LOST, OTHER], [], []),
        ([WELL, OTHER], [replace(OTHER, index=0)], [], [(0, BROKEN, "GPU 0 is gone")]),
        ([WELL, OTHER], [Gpu(0), OTHER], [], []),
        (
            [WELL],
            [replace(WELL, worn_out=True)],
            [],
            [(0, BROKEN, "GPU 0 has broken memory that can no longer be replaced")],
        ),
        ([replace(WELL, worn_out=True)], [replace(WELL, worn_out=True)], [], []),
        (
            [WELL],
            [WELL],
            [(0, 31), (1, 79)],
            [
                (1, BROKEN, "GPU 1: Xid 79, GPU has fallen off the bus"),
                (0, APPLICATION, "GPU 0: Xid 31, memory page fault"),
            ],
        ),
        ([WELL], [WELL], [(None, 79)], [(None, BROKEN, "a GPU: Xid 79, GPU has fallen off the bus")]),
        ([WELL], [WELL], [(0, 63), (0, 149)], []),
        (
            [WELL],
            [replace(WELL, slowed=("it is too hot",))],
            [],
            [(0, APPLICATION, "GPU 0 is slowed down: it is too hot")],
        ),
    ],
    ids=[
        "all is well",
        "an ECC error more than before may be contained",
        "and with Xid 94 it is",
        "an error from before",
        "it does not answer any more",
        "it did not answer before",
        "it is gone",
        "nothing is known of it at the moment",
        "a row could not be remapped",
        "nor before",
        "the gravest comes first",
        "an Xid of a GPU that cannot be asked for its index",
        "Xids that say nothing here",
        "heat breaks nothing",
    ],
)
def test_what_has_happened_since_then_is_told_with_its_meaning(
    before: list[Gpu],
    now: list[Gpu],
    xids: list[tuple[int | None, int]],
    facts: list[tuple[int | None, Meaning, str]],
) -> None:
    assert [(fact.gpu, fact.meaning, fact.message) for fact in happened(before, now, xids)] == facts


@pytest.mark.parametrize(
    ("meaning", "xids"),
    [
        (APPLICATION, {11, 13, 25, 31, 32, 43, 45, 69, 137}),
        (CONTAINED, {94}),
        (BROKEN, {46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158}),
    ],
)
def test_only_what_needs_a_reset_breaks_a_gpu(meaning: Meaning, xids: set[int]) -> None:
    """By what NVIDIA's catalog asks for at once; see there."""
    assert {xid for xid, (means, _) in SIGNS.items() if means is meaning and isinstance(xid, int)} == xids
