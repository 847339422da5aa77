"""Checkpoints on request: each request reaches rank 0's pod once, if at all, and gets one answer."""

from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.engine import CreatePod, Manifest
from ddpjob_operator.engine.checkpoint_requests import NO_SUPERVISOR, TOO_OLD

from tests.support.variables import variables_of

from .builders import START, Moment, a_job, plan


def by(command: str) -> dict[str, Any]:
    """A template whose trainer has this command."""
    return {"template": {"spec": {"containers": [{"name": "trainer", "image": "trainer:1", "command": [command]}]}}}


def answers(moment: Moment, request: str = "", **answer: Any) -> Moment:
    """Rank 0's supervisor says what has come of the last request."""
    return moment.hears(requestedCheckpoint={"request": request, **answer})


def saved(moment: Moment, seconds: float) -> Moment:
    """The gang's last report has a checkpoint that was saved so many seconds after the start."""
    return moment.hears(
        requestedCheckpoint={"request": "a", "state": "Requested"},
        checkpoint={"step": 120, "time": (START + timedelta(seconds=seconds)).isoformat()},
    )


gang = a_job(nodes=2, restart={"backoffSeconds": 10, "maxBackoffSeconds": 10}, **by("ddpjob-train"))
running = answers(gang.running()).settled()
asked = running.requests("a")
waiting = answers(asked.settled(), "a", state="Requested").settled()
done = answers(waiting, "a", state="Saved", step=120).settled()
failed = answers(waiting, "a", state="NotSaved", message="no step has finished").settled()
in_place = a_job(nodes=2, restart={"mode": "InPlace"}, **by("ddpjob-supervise")).running()
RESTART = {"attempt": 1, "node": 1, "rank": 1, "cause": "Application", "message": "killed"}

NONE, WAITS, SAVED = "", "a: Requested", "a: Saved 120"
NOT_RUNNING = "a: NotSaved: the job is not running, so there is nothing to save"
ENDED = "a: NotSaved: attempt 1 ended before a checkpoint was reported"

TABLE: dict[str, tuple[Moment, str, str]] = {
    "without a request nothing is said": (running, "", NONE),
    "a request is passed on to rank 0's pod": (asked, "1.0?a", WAITS),
    "and only once": (asked.settled(), "", WAITS),
    "even if the supervisor has not read it yet": (answers(asked.settled()), "", WAITS),
    "or does not answer at all": (asked.settled().hears_nothing("timed out"), "", WAITS),
    "another operator does not repeat it": (waiting.awaits_report(), "", WAITS),
    "a supervisor that was never heard is asked, too": (gang.running().requests("a"), "1.0?a", WAITS),
    "what cannot be written now": (
        asked.settled().unrequested(),
        "1.0?a",
        WAITS,
    ),
    "waits, if that is refused": (
        asked.settled().unrequested().refused("Forbidden", "no"),
        "",
        WAITS,
    ),
    "a checkpoint answers it": (answers(waiting, "a", state="Saved", step=120), "", SAVED),
    "a refusal does, too": (
        answers(waiting, "a", state="NotSaved", message="no step has finished"),
        "",
        "a: NotSaved: no step has finished",
    ),
    "the answer to another request does not": (answers(waiting, "b", state="Saved", step=120), "", WAITS),
    "a checkpoint without a step is none": (answers(waiting, "a", state="Saved"), "", WAITS),
    "an answered request is over": (done.after(60), "", SAVED),
    "whatever is reported later": (answers(done, "a", state="NotSaved", message="no"), "", SAVED),
    "also if it failed": (answers(failed, "a", state="Saved", step=3), "", "a: NotSaved: no step has finished"),
    "a request that is taken back is still answered": (
        answers(waiting.requests(""), "a", state="Saved", step=120),
        "",
        SAVED,
    ),
    "the next request is another": (done.requests("b"), "1.0?b", "b: Requested"),
    "even before the first is answered": (waiting.requests("b"), "1.0?b", "b: Requested"),
    "a job that has not started saves nothing": (gang.requests("a"), "", NOT_RUNNING),
    "nor does one that comes up": (gang.created().runs(0).requests("a"), "", NOT_RUNNING),
    "one that has just come up does": (gang.created().runs(0, 1).requests("a"), "1.0?a", WAITS),
    "one that is told to stop saves by itself": (running.asks(suspend=True).requests("a"), "", NOT_RUNNING),
    "also while it does": (running.asks(suspend=True).decided().requests("a"), "", NOT_RUNNING),
    "a request does not outlive its attempt": (waiting.fails(1).decided(), "", ENDED),
    "and is not repeated in the next": (waiting.fails(1).restarted(), "", ENDED),
    "also where only processes start again": (
        answers(in_place)
        .settled()
        .requests("a")
        .settled()
        .hears(attempt=2, incidents=[RESTART], requestedCheckpoint={"request": "a", "state": "Requested"}),
        "",
        ENDED,
    ),
    "a gang that is told to stop meanwhile has saved": (
        saved(waiting.after(5), 4).settled().asks(suspend=True).settled().gone(),
        "",
        SAVED,
    ),
    "unless that was before": (saved(waiting.after(5), -4).settled().asks(suspend=True).settled().gone(), "", ENDED),
    "a job that ends meanwhile has saved, too": (saved(waiting.after(5), 4).settled().succeeds(0, 1), "", SAVED),
    "or has not": (waiting.succeeds(0, 1), "", ENDED),
    "a finished job is left as it is": (running.succeeds(0, 1).settled().requests("a"), "", NONE),
    "without a supervisor nobody can be asked": (
        a_job(nodes=2, **by("python")).running().requests("a"),
        "",
        f"a: NotSaved: {NO_SUPERVISOR}",
    ),
    "an older supervisor passes nothing on": (
        gang.running().hears().requests("a"),
        "",
        f"a: NotSaved: {TOO_OLD}",
    ),
}


@pytest.mark.parametrize(("moment", "acts", "outcome"), TABLE.values(), ids=TABLE)
def test_a_request(moment: Moment, acts: str, outcome: str) -> None:
    asked = (moment.decision.status or moment.status).requested_checkpoint
    words = "" if asked is None else f"{asked.request}: {asked.state} {asked.step or ''}".strip()
    assert words + (f": {asked.message}" if asked and asked.message else "") == outcome
    assert acts in plan(moment)
    assert ("?" in plan(moment)) == ("?" in acts)


def test_an_answer_is_written_at_once() -> None:
    for moment in (asked, answers(waiting, "a", state="Saved", step=120)):
        assert not moment.decision.can_wait


def test_a_refusal_to_write_it_is_tried_again_when_its_time_has_come() -> None:
    refused, _, _ = TABLE["waits, if that is refused"]
    assert refused.decision.wake_at == refused.snapshot.refusal.retry_at  # type: ignore[union-attr]


def built(moment: Moment) -> list[Manifest]:
    return [action.build()["spec"] for action in moment.decision.actions if isinstance(action, CreatePod)]


@pytest.mark.parametrize(("command", "shown"), [("ddpjob-train", [True, False]), ("python", [False, False])])
def test_only_rank_0s_supervisor_sees_the_request_in_a_file(command: str, shown: list[bool]) -> None:
    pods = built(a_job(nodes=2, **by(command)))
    file = "/var/run/ddpjob.dev/checkpoint-request"
    trainers = [pod["containers"][0] for pod in pods]
    assert [variables_of(trainer).get("DDPJOB_CHECKPOINT_REQUEST_FILE") == file for trainer in trainers] == shown
    path = "metadata.annotations['ddpjob.dev/checkpoint-request']"
    volume = {"items": [{"path": "checkpoint-request", "fieldRef": {"fieldPath": path}}]}
    assert [{"name": "ddpjob-annotations", "downwardAPI": volume} in pod["volumes"] for pod in pods] == shown
