"""The code that ranks run, as their supervisors report it, and code that has failed before its first step."""

from ddpjob_operator.api import ConditionType, DDPJobStatus, FailedCode, RunningCode
from ddpjob_operator.api.reasons import Reason

from .conditions import Say
from .manifests.volumes import failure_of
from .reports import SupervisorReport
from .view import View

DIGITS = 12
"""How many digits of a digest are shown."""


def reported_code(view: View, status: DDPJobStatus, report: SupervisorReport | None) -> RunningCode | None:
    """Returns the code that ranks run, by their supervisors' report or, without one, by the status.

    What the status remembers of it is kept, because new supervisors know neither of a former failure nor of a step.
    """
    known, said = status.code, report.code if report else status.code
    if said is None or known is None:
        return said
    failed = said.failed or failure_of(view.spec.code, known)
    untried = said.untried and (known.untried or known.digest != said.digest)
    return said.model_copy(update={"failed": failed, "untried": untried})


def failure_message(failed: FailedCode, runs: RunningCode) -> str:
    """Says which code failed, why, and which code runs now."""
    by = f", sent by {failed.by}" if failed.by else ""
    digest = f" {runs.digest[:DIGITS]}" if runs.digest else ""
    return (
        f"New code {failed.digest[:DIGITS]} (revision {failed.revision}{by}) {failed.message}; the job goes on with"
        f" its former code{digest}"
    )


def new_code_failed(view: View, code: RunningCode | None) -> tuple[Say, ...]:
    """Returns the condition NewCodeFailed, if there is something new to say about it."""
    kind, failed = ConditionType.NEW_CODE_FAILED, failure_of(view.spec.code, code)
    if failed and code:
        return (Say(kind, value=True, reason=Reason.CODE_FAILED, message=failure_message(failed, code)),)
    if view.status.is_true(kind):
        return (Say(kind, value=False, reason=Reason.CODE_REPLACED, message="Other code has been sent since then"),)
    return ()
