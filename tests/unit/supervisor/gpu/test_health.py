"""What is wrong with a GPU before training begins."""

from dataclasses import replace

import pytest
from ddpjob_supervisor.gpu.health import Gpu, problem_now, warning_now

WELL = Gpu(0, "GPU-a", "0000:17:00.0")
LOST = Gpu(0, lost="GPU is lost")


@pytest.mark.parametrize(
    ("gpu", "problem", "warning"),
    [
        (WELL, None, None),
        (LOST, "GPU 0 does not answer: GPU is lost", None),
        (replace(WELL, worn_out=True), "GPU 0 has broken memory that can no longer be replaced", None),
        (
            replace(WELL, slowed=("it is too hot",)),
            None,
            "GPU 0 is slowed down: it is too hot: have the machine looked at",
        ),
        (
            replace(WELL, uncorrected=2, to_reset=True),
            *(
                None,
                "GPU 0 has had 2 ECC errors that could not be corrected and has broken memory that is replaced at ",
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_gpu_ends_a_job_or_is_a_warning(
    gpu: Gpu, problem: str | None, warning: str | None
) -> None:
    assert problem_now(gpu) == problem
    assert str(warning_now(gpu)).startswith(str(warning))
