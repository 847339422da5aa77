"""The size of a job that is submitted, as far as it is known here."""

from typing import Any

import pytest
from ddpjob_operator.api import DDPJobSpec
from ddpjob_operator.cli.cluster.submit import size_of

SIZES: dict[str, tuple[dict[str, Any], str]] = {
    "without GPUs": ({"cpu": 4}, "2 nodes x 1 process"),
    "with GPUs": ({"nvidia.com/gpu": 4}, "2 nodes x 4 processes"),
    "with what may count as GPUs on the cluster": ({"nvidia.com/gpu.shared": 2}, "2 nodes"),
}


@pytest.mark.parametrize(("limits", "size"), SIZES.values(), ids=SIZES)
def test_a_size_that_the_operator_decides_about_is_not_claimed(limits: dict[str, Any], size: str) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": limits}}]}}
    assert size_of(DDPJobSpec(nodes=2, template=template)) == size
    numbered = DDPJobSpec(nodes=2, procs_per_node=1, template=template)
    assert size_of(numbered) == "2 nodes x 1 process"
