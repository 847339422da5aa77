"""The traceback in a log."""

import pytest
from ddpjob_operator.sdk.tracebacks import last_traceback

BEGIN = "Traceback (most recent call last):"
FRAMES = [BEGIN, '  File "train.py", line 3, in <module>', "    net.load_state_dict(state)"]
ERROR = ["RuntimeError: Error(s) in loading state_dict for Net:", '\tMissing key(s) in state_dict: "a.weight". ']
OUT_OF_MEMORY = [
    "RuntimeError: CUDA error: device-side assert triggered",
    "CUDA kernel errors might come later",
]


def of_rank(rank: int, lines: list[str]) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in lines]


@pytest.mark.parametrize(
    ("log", "found"),
    [
        pytest.param([], [], id="an empty log"),
        pytest.param(["epoch 1", "epoch 2"], [], id="no traceback"),
        pytest.param(["epoch 1", *FRAMES, *ERROR, "bye"], [*FRAMES, *ERROR], id="a message of two lines"),
        pytest.param([*FRAMES, *ERROR, *FRAMES, "KeyError: 1"], [*FRAMES, "KeyError: 1"], id="the last of two"),
        pytest.param(FRAMES, FRAMES, id="cut off"),
        pytest.param(of_rank(1, [*FRAMES, *OUT_OF_MEMORY]), [*FRAMES, *OUT_OF_MEMORY], id="torch's prefix"),
        pytest.param(
            [
                line
                for pair in zip(of_rank(0, [*FRAMES, *ERROR]), of_rank(1, [*FRAMES, *ERROR]), strict=True)
                for line in pair
            ],
            [*FRAMES, *ERROR],
            id="two ranks at once",
        ),
    ],
)
def test_the_last_traceback_is_found_with_its_message(log: list[str], found: list[str]) -> None:
    assert last_traceback(log) == "\n".join(found)


def test_a_message_without_end_is_bounded() -> None:
    log = of_rank(0, [*FRAMES, "ValueError: all", *["x"] * 10_000])
    assert len(last_traceback(log).splitlines()) < 60
