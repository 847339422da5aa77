"""The traceback in a log."""

import random
import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import ddpjob
import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import as_job
from ddpjob_operator.sdk.failures import failure
from ddpjob_operator.sdk.functions import packed_function
from ddpjob_operator.sdk.handle import Job
from ddpjob_operator.sdk.tracebacks import last_traceback

from tests.unit.client.api import a_job, jobs_with

SPEC = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
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


def test_in_a_notebook_the_frames_of_ddpjob_are_left_out_and_its_notes_are_shown_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an older IPython shows has no notes."""
    with_notes = random.choice([True, False])

    def structured(kind: type[BaseException], error: BaseException, trace: Any) -> list[str]:
        frames = traceback.format_tb(trace)
        return [*frames, *(traceback.format_exception_only(error) if with_notes else [f"{kind.__name__}: {error}"])]

    shell = SimpleNamespace(InteractiveTB=SimpleNamespace(structured_traceback=structured))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with pytest.raises(BadInputError) as raised:
        packed_function(lambda: 1, None)
    error = failure(as_job(a_job() | {"spec": SPEC}), "Look at its log", lambda _: []).with_traceback(raised.tb)
    shown = "\n".join(error._render_traceback_())
    assert "packed_function(lambda: 1, None)" in shown
    assert "ddpjob_operator/sdk" not in shown
    assert shown.count("Look at its log") == 1
    mistake: Any = raised.value
    assert "ddpjob_operator/sdk" not in "\n".join(mistake._render_traceback_())
    document = a_job() | {"spec": SPEC, "status": {"state": "Running", "message": "-"}}
    jobs = jobs_with(find=lambda _: document, watch=lambda _: iter([document]))
    with pytest.raises(TimeoutError) as in_vain:
        Job(jobs, document).wait(0.01, quiet=True)
    late: Any = in_vain.value
    assert "Job(jobs, document).wait(0.01, quiet=True)" in (shown := "\n".join(late._render_traceback_()))
    assert "ddpjob_operator/sdk" not in shown


def test_a_traceback_shows_the_names_by_which_errors_can_be_caught() -> None:
    program = "import ddpjob\nddpjob.run(lambda: 1)"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ddpjob.BadInputError: ")
    assert {"run", "submit", "RankFailed"} <= {*dir(ddpjob)}
