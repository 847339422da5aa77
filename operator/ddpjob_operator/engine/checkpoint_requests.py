"""A checkpoint on request: the request goes from the job's annotation to rank 0's pod, and its outcome to the status.

A request is answered once, and belongs to the attempt during which it is noticed. The status remembers it, so that
neither another operator nor another pod repeats it. A request that cannot be fulfilled is refused with the reason.
"""

from dataclasses import replace

from ddpjob_operator.api import ConditionType, DDPJobStatus, RequestedCheckpoint, RequestState

from .changes import changed
from .decision import RequestCheckpoint
from .policies.verdict import Times, Verdict
from .view import View

NOT_RUNNING = "the job is not running, so there is nothing to save"
ENDED = "attempt {} ended before a checkpoint was reported"
NO_SUPERVISOR = (
    "no supervisor passes the request on: the command of the trainer container has to start ddpjob-supervise or"
    " ddpjob-train"
)
TOO_OLD = (
    "the pods are from an older release, which does not pass requests on; pods that are created from now on do so"
)


def requested(view: View, verdict: Verdict) -> Verdict:
    """Passes a request for a checkpoint on to rank 0's pod, and adds its outcome to the status."""
    status = verdict.status
    if view.status.finished:
        return verdict
    asked = _asked(view, status)
    if asked is None or asked.state != RequestState.REQUESTED:
        return verdict
    answered = _answered(view, status, asked)
    if answered != status.requested_checkpoint:
        verdict = replace(verdict, status=changed(status, requested_checkpoint=answered))
    first = view.current.get(0)
    if answered is not asked or first is None or first.checkpoint_request == asked.request or view.refused:
        return verdict
    return replace(
        verdict, actions=(*verdict.actions, RequestCheckpoint(first.name, first.uid, request=asked.request))
    )


def requested_due(view: View) -> Times:
    """When to retry writing a request into rank 0's pod, after a refusal."""
    last, refusal = view.status.requested_checkpoint, view.snapshot.refusal
    if refusal is not None and last is not None and last.state == RequestState.REQUESTED:
        yield refusal.retry_at


def _asked(view: View, status: DDPJobStatus) -> RequestedCheckpoint | None:
    """Returns the last request, which may be a new one."""
    request, known = view.snapshot.checkpoint_request, status.requested_checkpoint
    if not request or (known is not None and known.request == request):
        return known
    return RequestedCheckpoint(request=request, state=RequestState.REQUESTED, time=view.now, attempt=status.attempt)


def _answered(view: View, status: DDPJobStatus, asked: RequestedCheckpoint) -> RequestedCheckpoint:
    """Returns the request with its outcome, or `asked` itself while there is none."""
    report = view.report
    said = None if report is None else report.requested
    if said is not None and said.request == asked.request and said.state is not None:
        return asked.model_copy(update={"state": said.state, "step": said.step, "message": said.message})
    known, first = status.requested_checkpoint, view.current.get(0)
    if known is None or known.request != asked.request:
        if not status.is_true(ConditionType.RUNNING):
            return _refused(asked, NOT_RUNNING)
    elif status.attempt != asked.attempt:
        return _at_the_end(status, asked)
    if first is None or not first.running:
        return _at_the_end(status, asked)
    if view.spec.supervisor is None:
        return _refused(asked, NO_SUPERVISOR)
    return _refused(asked, TOO_OLD) if report is not None and said is None else asked


def _at_the_end(status: DDPJobStatus, asked: RequestedCheckpoint) -> RequestedCheckpoint:
    """Returns the outcome of a request that no supervisor will answer any more.

    A gang that is told to stop saves anyway. That checkpoint fulfils the request, even if no supervisor said so.
    """
    saved = status.checkpoint
    if saved is not None and saved.time is not None and saved.time > asked.time:
        return asked.model_copy(update={"state": RequestState.SAVED, "step": saved.step})
    return _refused(asked, ENDED.format(asked.attempt))


def _refused(asked: RequestedCheckpoint, message: str) -> RequestedCheckpoint:
    return asked.model_copy(update={"state": RequestState.NOT_SAVED, "message": message})
