"""A command does what its user's rights allow, and says what it leaves out."""

import pytest
from ddpjob_operator.cli.cluster.delete import delete
from ddpjob_operator.cli.cluster.job_status import status
from ddpjob_operator.client import ClusterError

from tests.unit.client.api import JOBS, a_job, jobs_of, refused

FORBIDDEN = refused(403, "Forbidden")
BROKEN = refused(500)
GONE = refused(404, name="digits")
DOCUMENT = {
    **a_job(),
    "spec": {"nodes": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}},
}


def test_a_job_is_deleted_by_whoever_may_delete_it_also_if_they_may_not_see_its_pods(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs, asked = jobs_of(a_job(), FORBIDDEN, {}, GONE)
    wait = delete(jobs, "digits", wait=True)
    assert callable(wait)
    assert wait() == 0
    assert ("DELETE", f"{JOBS}/digits") in [request[:2] for request in asked]
    assert capsys.readouterr().out.splitlines() == [
        "digits: deleting it; you are not allowed to list pods here, so ddpjob does not wait for them to end",
        "digits: deleted",
    ]


def test_a_job_is_not_deleted_while_its_cluster_does_not_answer() -> None:
    jobs, asked = jobs_of(a_job(), BROKEN)
    with pytest.raises(ClusterError):
        delete(jobs, "digits", wait=True)
    assert [method for method, *_ in asked] == ["GET", "GET"]


def test_a_status_is_shown_to_whoever_may_see_jobs_also_if_they_may_not_see_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs, _ = jobs_of(DOCUMENT, FORBIDDEN)
    assert status(jobs, "digits", everywhere=False) == 0
    said = capsys.readouterr().out
    assert said.startswith("Name:         digits\n")
    assert said.endswith("Events are not shown: the cluster of context here refuses: no\n")


def test_who_may_not_list_the_jobs_of_all_namespaces_is_told_what_that_takes_and_what_they_may_do() -> None:
    jobs, _ = jobs_of(FORBIDDEN)
    with pytest.raises(ClusterError) as refused:
        status(jobs, None, everywhere=True)
    assert str(refused.value) == (
        "the cluster of context here does not let you see the jobs of all namespaces: you need the right "
        "to list ddpjobs in the whole cluster (a ClusterRoleBinding to ddpjob-view). For one namespace: "
        "ddpjob status -n NAMESPACE"
    )
