"""The two numbers of a GPU."""

import pytest
from ddpjob_rank.machine.devices import renumbering


@pytest.mark.parametrize(
    ("visible", "indices", "told"),
    [
        (
            "0,5",
            [0, 1],
            "device 0 here is GPU 0 of the machine, device 1 here is GPU 5 of the machine (CUDA_VISIBLE_DEVICES=0,5)",
        ),
        ("5", [0], "device 0 here is GPU 5 of the machine (CUDA_VISIBLE_DEVICES=5)"),
        ("GPU-8932, MIG-1c7", [1], "device 1 here is MIG-1c7 (CUDA_VISIBLE_DEVICES=GPU-8932, MIG-1c7)"),
        ("3", [0, 1], "device 0 here is GPU 3 of the machine (CUDA_VISIBLE_DEVICES=3)"),
    ],
)
def test_a_process_is_told_what_the_machine_calls_its_gpus(visible: str, indices: list[int], told: str) -> None:
    assert renumbering(indices, {"CUDA_VISIBLE_DEVICES": visible}) == told


def test_where_all_gpus_are_shown_nothing_is_renumbered() -> None:
    assert renumbering([0, 1], {}) is None
