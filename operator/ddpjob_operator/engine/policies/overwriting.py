"""Ends a job whose attempt started over although a restart rule forbids that."""

from ddpjob_operator.api import Cause
from ddpjob_operator.engine.foreign import text_of
from ddpjob_operator.engine.incidents.facts import Facts
from ddpjob_operator.engine.incidents.judgement import BY_DEFAULT, judge
from ddpjob_operator.engine.incidents.ledger import noted
from ddpjob_operator.engine.manifests.names import present_pod_name
from ddpjob_operator.engine.supervision import new_start_over_message, progress_of
from ddpjob_operator.engine.view import View

from .end import fail
from .verdict import Verdict


def overwriting(view: View) -> Verdict | None:
    """If an attempt starts over and a rule forbids that, the job fails before its checkpoints are overwritten."""
    progress, said = progress_of(view), new_start_over_message(view)
    if not said or progress is None or progress.attempt != view.status.attempt:
        return None
    first = view.current.get(0)
    facts = Facts(
        time=view.now,
        attempt=view.status.attempt,
        node=0,
        cause=Cause.STARTED_OVER,
        pod=present_pod_name(view.snapshot.job, 0),
        node_name=first.node_name if first else None,
        message=text_of(said),
        rank=0,
        step=progress.step,
    )
    judgement = judge(view.spec.restart, facts, has_run=view.has_run)
    if judgement.rule == BY_DEFAULT:
        return None
    return fail(view, facts.cause, f"{said} ({judgement.rule} says Fail)", **noted(view, facts, judgement))
