"""Which pods of a job a screen shows, and when rank 0's supervisor is asked for its page."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ddpjob_operator.cli.cluster.pod_view import pod_seen, pods_and_page
from ddpjob_operator.client import ClusterError, JobPod, as_job
from ddpjob_operator.view_model import PodSeen

from tests.unit.client.api import A_POD, jobs_with
from tests.unit.sdk.test_sdk import FAILED, a_document_with

FORMER = replace(A_POD, incarnation=0)
SUPERVISED = {"bookkeeping": {"supervised": True, "incarnations": {"default": 1}}}


def asked(
    *conditions: Any, error: str = "", known: list[JobPod] | None = None, **status: Any
) -> tuple[Any, list[str]]:
    """The pods, the page and the problem of a job of this status, and what was asked. `error` fails that question."""
    questions, document = list[str](), a_document_with(*conditions, **status)

    def answer(question: str, said: Any) -> Any:
        questions.append(question)
        if question == error:
            raise ClusterError(f"no {question}")
        return said

    def status_page(found: Any, pods: list[JobPod]) -> Any:
        assert (found, pods) == (document, [A_POD])
        return answer("page", {"phase": "Running"})

    jobs = jobs_with(pods=lambda _: answer("pods", [FORMER, A_POD]), status_page=status_page)
    pods_of = None if known is None else lambda: known
    return pods_and_page(jobs, document, as_job(document), pods_of), questions


@pytest.mark.parametrize(
    ("case", "given", "found", "questions"),
    [
        ("it runs", SUPERVISED, ([A_POD], {"phase": "Running"}, ""), ["pods", "page"]),
        ("without a supervisor", {}, ([A_POD], None, ""), ["pods"]),
        ("pods that are known are not asked for", {"known": [A_POD, FORMER]}, ([A_POD], None, ""), []),
        ("there are none, as is known", {"known": []}, ([], None, ""), []),
        ("no pods may be seen", {**SUPERVISED, "error": "pods"}, ([], None, "no pods"), ["pods"]),
        ("no port may be forwarded", {**SUPERVISED, "error": "page"}, ([A_POD], None, "no page"), ["pods", "page"]),
    ],
)
def test_pods_and_the_page_of_a_job(case: str, given: dict[str, Any], found: Any, questions: list[str]) -> None:
    assert asked(**given) == (found, questions), case


def test_of_a_job_that_has_ended_nothing_is_asked() -> None:
    assert asked(FAILED, **SUPERVISED) == (([], None, ""), [])


def test_the_times_of_a_pod_are_in_utc() -> None:
    pod = replace(A_POD, node_name="gpu-4", does="Running", created="2026-01-01T12:00:00+01:00", begun="")
    noon = datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert pod_seen(pod) == PodSeen(0, "digits-0", "gpu-4", "Running", noon, None, None)
