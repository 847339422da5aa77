"""Goes back to the former code with new pods, if pods fail with new code before its first step.

Usually the supervisors go back in place, and report it. They cannot if pods are lost, for example because the new
code needs too much memory.
"""

from datetime import timedelta

from ddpjob_operator.api import Cause, FailedCode, RestartAction, RunningCode
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.code_in_place import failure_message
from ddpjob_operator.engine.foreign import text_of
from ddpjob_operator.engine.incidents.facts import Facts, incident_sentence
from ddpjob_operator.engine.incidents.judgement import DEFAULTS
from ddpjob_operator.engine.incidents.ledger import Entry
from ddpjob_operator.engine.manifests.volumes import failure_of, has_former
from ddpjob_operator.engine.view import View

from .steps import attempt_after, restarting, short_grace, start_again
from .verdict import Verdict

NOT_OF_THE_CODE = frozenset(
    {
        *(cause for cause, action in DEFAULTS.items() if action is RestartAction.RESTART_FREE),
        *(Cause.PREFLIGHT_FAILED, Cause.IMAGE_ERROR),
    }
)
"""Causes that say nothing about the code, even if one of the user's rules lets them count."""


def gone_back(view: View, entry: Entry) -> Verdict | None:
    """Starts the gang again with its former code, at no cost, after an incident that would count, of untried code."""
    code, runs = view.spec.code, view.status.code
    if code is None or runs is None or not runs.untried or runs.revision != code.revision:
        return None
    if not has_former(view.spec):
        return None
    excused = entry.judgement.action is RestartAction.RESTART_FREE or entry.facts.cause in NOT_OF_THE_CODE
    of_former = entry.facts.attempt < (runs.attempt or 0)  # The former code failed while it was being replaced.
    if failure_of(code, runs) or excused or of_former:
        return None
    failed = _failed(view, runs, entry.facts)
    again = RunningCode(revision=code.revision, failed=failed)
    message, attempt = failure_message(failed, again), attempt_after(view, entry.facts.attempt)
    says = restarting(Reason.CODE_FAILED, message)
    return start_again(view, says, message, grace=short_grace(view), wait=timedelta(0), code=again, attempt=attempt)


def _failed(view: View, runs: RunningCode, facts: Facts) -> FailedCode:
    sentence = incident_sentence(facts, view.called)
    return FailedCode(
        revision=runs.revision,
        digest=runs.digest,
        by=runs.by,
        time=facts.time,
        attempt=facts.attempt,
        rank=facts.rank,
        message=text_of(f"failed in attempt {facts.attempt} before its first step: {sentence}"),
    )
