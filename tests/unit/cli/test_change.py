"""What is changed on the cluster alone, and is undone by the tool that keeps the job as its repository has it."""

from collections.abc import Callable
from typing import Any

import pytest
from ddpjob_operator.cli.cluster.change import cancel, resume, scale, suspend
from ddpjob_operator.client import Jobs

from tests.unit.client.api import jobs_of

KEPT = "digits: Argo CD resets this job to what its repository says; set {} there too\n"
CHANGES: dict[str, tuple[Callable[[Jobs, str], int], bool, str]] = {
    "suspend": (suspend, False, "spec.suspend"),
    "resume": (resume, True, "spec.suspend"),
    "scale": (lambda jobs, name: scale(jobs, name, 2), False, "spec.nodes"),
}


def a_job(*, suspend: bool = False, cancel: bool = False, **metadata: Any) -> dict[str, Any]:
    spec = {
        "suspend": suspend,
        "cancel": cancel,
        "template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}},
    }
    named = {"name": "digits", "namespace": "team", "uid": "u", **metadata}
    return {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "metadata": named, "spec": spec}


@pytest.mark.parametrize(("change", "suspended", "field"), CHANGES.values(), ids=CHANGES)
def test_a_change_that_a_tool_will_undo_is_told(
    change: Callable[[Jobs, str], int], field: str, capsys: pytest.CaptureFixture[str], *, suspended: bool
) -> None:
    for annotations, told in (({"argocd.argoproj.io/tracking-id": "a"}, True), ({"other": "a"}, False), ({}, False)):
        change(jobs_of(a_job(suspend=suspended, annotations=annotations), {})[0], "digits")
        assert (KEPT.format(field) in capsys.readouterr().out) is told


def test_a_job_is_cancelled_once(capsys: pytest.CaptureFixture[str]) -> None:
    jobs, asked = jobs_of(a_job(), {})
    assert cancel(jobs, "digits") == 0
    assert [method for method, *_ in asked] == ["GET", "PATCH"]
    jobs, asked = jobs_of(a_job(cancel=True))
    assert cancel(jobs, "digits") == 0
    assert [method for method, *_ in asked] == ["GET"]
    assert capsys.readouterr().out == (
        "digits: cancelled; its pods save and stop, and stay with their logs\ndigits: cancelled already\n"
    )
