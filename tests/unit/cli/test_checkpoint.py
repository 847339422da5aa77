"""`ddpjob checkpoint`: the request that it makes, here and on a cluster, and how it reports the outcome."""

import json
import threading
from typing import Any

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.checkpoint import checkpoint as checkpoint_here
from ddpjob_operator.cli.cluster.job_checkpoint import checkpoint
from ddpjob_operator.cli.commands import call
from ddpjob_operator.client import ClusterError
from ddpjob_operator.local import REQUEST_SIGNAL, Lock, RunDirectory, Runs

from tests.support.waiting import patience, wait_for
from tests.unit.client.api import JOBS, a_list, jobs_of, refused
from tests.unit.engine.builders import a_job as a_moment

DEADLINE_SECONDS = 20.0
SAVED = {"state": "Saved", "step": 120}
NOT_SAVED = {"state": "NotSaved", "message": "no step has finished yet, so there is nothing to save"}


def a_job(request: str = "", **outcome: Any) -> dict[str, Any]:
    """A job whose status has the outcome of a request; empty: none was made."""
    asked = {"request": request, "time": "2026-01-01T12:00:00Z", "attempt": 1, **outcome}
    return {
        "apiVersion": "ddpjob.dev/v1alpha2",
        "kind": "DDPJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}},
        "status": {"requestedCheckpoint": asked} if request else {},
    }


def seen(*jobs: dict[str, Any]) -> list[Any]:
    """The answers of a watch that shows the job like this, one after the other."""
    first, *later = jobs
    return [a_list(first), [json.dumps({"type": "MODIFIED", "object": job}).encode() for job in later]]


def outcome_of(*jobs: dict[str, Any], before: dict[str, Any] | None = None) -> int:
    there, _ = jobs_of(before or a_job(), {}, *seen(*jobs))
    wait = checkpoint(there, "digits", wait=True)
    assert callable(wait)
    return wait()


def test_on_a_cluster_it_patches_an_annotation_of_exactly_this_job(capsys: pytest.CaptureFixture[str]) -> None:
    requests = set()
    for _ in range(2):
        jobs, asked = jobs_of(a_job(), {})
        assert checkpoint(jobs, "digits", wait=False) == 0
        method, path, body, _ = asked[-1]
        requests.add(body["metadata"]["annotations"].pop("ddpjob.dev/checkpoint-request"))
        assert (method, path, body) == ("PATCH", f"{JOBS}/digits", {"metadata": {"uid": "u", "annotations": {}}})
    assert len(requests) == 2
    assert all(0 < len(request) < 64 for request in requests)
    look = "see the outcome with: ddpjob status digits -n team"
    assert capsys.readouterr().out.splitlines() == [f"digits: requested a checkpoint; {look}"] * 2


def test_it_waits_until_the_checkpoint_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome_of(a_job(), a_job("a", state="Requested"), a_job("a", **SAVED)) == 0
    assert capsys.readouterr().out == "digits: the checkpoint of step 120 is complete\n"


def test_it_tells_why_nothing_was_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome_of(a_job("a", **NOT_SAVED)) == 1
    assert capsys.readouterr().err == f"error: digits: not saved: {NOT_SAVED['message']}\n"


def test_the_outcome_of_an_earlier_request_is_not_taken_for_its_own() -> None:
    former = a_job("z", **NOT_SAVED)
    assert outcome_of(former, a_job("a", **SAVED), before=former) == 0


def test_a_job_that_is_deleted_or_finishes_meanwhile_is_not_waited_for() -> None:
    finished = a_job("a", state="Requested")
    done = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "observedGeneration": 1}
    finished["status"] |= {
        "state": "Succeeded",
        "conditions": [{**done, "lastTransitionTime": "2026-01-01T12:00:00Z"}],
    }
    with pytest.raises(ClusterError, match="digits has succeeded"):
        outcome_of(finished)
    jobs, _ = jobs_of(a_job(), {}, a_list())
    wait = checkpoint(jobs, "digits", wait=True)
    assert callable(wait)
    with pytest.raises(ClusterError, match="digits was deleted"):
        wait()


def test_without_the_right_to_change_the_job_it_says_so() -> None:
    jobs, _ = jobs_of(a_job(), refused(403, "Forbidden"))
    with pytest.raises(ClusterError):
        checkpoint(jobs, "digits", wait=True)


def test_a_run_that_no_ddpjob_run_is_in_charge_of_is_refused(
    digits: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(parse(["checkpoint", "digits"])) == 2
    assert "no ddpjob run is in charge of digits" in capsys.readouterr().err
    assert digits.checkpoint_request == ""


def test_a_run_that_has_finished_is_refused(digits: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    digits.save(a_moment(nodes=1).running().succeeds(0).settled().snapshot.job)
    assert call(parse(["checkpoint", "digits"])) == 2
    assert "digits has succeeded, so there is nothing to save" in capsys.readouterr().err


def test_a_ddpjob_run_that_ends_first_is_not_waited_for(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = digits.lock
    assert lock.acquire()
    monkeypatch.setattr(Lock, "signal", lambda *_: lock.release())
    assert call(parse(["checkpoint", "digits"])) == 2
    assert "ddpjob run ended before digits had saved" in capsys.readouterr().err


def test_here_it_waits_for_the_outcome_in_the_runs_status(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signals: list[Any] = []
    monkeypatch.setattr(Lock, "signal", lambda _, number: signals.append(number))
    lock = digits.lock
    assert lock.acquire()
    try:
        codes: list[int] = []
        runs = Runs(digits.root.parent)
        waiting = threading.Thread(
            target=lambda: codes.append(checkpoint_here(runs, "digits", wait=True)), daemon=True
        )
        waiting.start()
        wait_for("a request", lambda: digits.checkpoint_request, DEADLINE_SECONDS)
        job = digits.load()
        assert job is not None
        asked = a_job(digits.checkpoint_request, **SAVED)["status"]
        digits.save(job.from_dict({**job.to_document(), "status": asked}))
        waiting.join(patience(DEADLINE_SECONDS))
    finally:
        lock.release()
    assert (codes, signals) == ([0], [REQUEST_SIGNAL])
    assert capsys.readouterr().out == "digits: the checkpoint of step 120 is complete\n"
