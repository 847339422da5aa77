"""Detects crash loops, in which another restart would not help.

In a crash loop, training repeatedly gets no further, or a rank raises the same error: twice before its first step, or
repeatedly after the same number of steps.
"""

import re
from datetime import datetime, timedelta

from ddpjob_operator.api import Cause, ConditionType, DDPJobStatus, Incident, Progress, RestartAction
from ddpjob_operator.engine.manifests.names import pod_name
from ddpjob_operator.engine.supervision import is_silent, progress_of
from ddpjob_operator.engine.view import View

from .facts import OF_SUPERVISOR, RESOLUTION, Facts
from .judgement import BY_DEFAULT, Judgement

LOOP = 3
"""This many counted incidents in a row are a crash loop if training got no further than at the first of them."""

START_SECONDS = 60
"""A program that reports no steps is assumed to have made none if it fails this soon after all ranks began to run."""

USAGE_ERROR = 2
"""The exit code for wrong arguments, from argparse and by convention from other libraries."""

IMPORT_SECONDS = 600
"""A usage error occurs within this time, even if the imports before it are slow."""

NEVER_PASSES = re.compile(
    r"(Import|ModuleNotFound|Syntax|Indentation|Tab|Name|UnboundLocal|Attribute|Type)Error\b"
    r"|EOFError: EOF when reading a line"
)
"""Errors in a program's source, and errors of `input()`, because ranks have no terminal. Trying again never helps,
whatever words the message contains."""

MAY_PASS = re.compile(
    r"connect|network|socket|ssl|http|url|host|address|resol|unreachable|time[d ]*-?out|tempor|busy|again|"
    r"unavailable|memory|eof|space left|stale|input/output|cuda error|cudnn|nccl error|nccl\w{1,32}error|ecc |"
    r"rendezvous|childfailed",
    re.IGNORECASE,
)
"""Words in errors that might not recur later or on another machine: errors of networks, memory, disks, devices and
busy ports. Also words in torchrun's own errors, which do not show the cause."""


def is_crash_loop(status: DDPJobStatus, incident: Facts, progress: Progress | None = None) -> bool:
    """Whether this is the last of LOOP counted incidents, and training has got no further than at the first of them.

    Incidents without a step do not count. Counting begins anew after a suspension, because the cause may have been
    fixed. Incidents may be reported late, so if training has got further since, there is no crash loop.
    """
    since = status.start_time
    before = (older for older in status.incidents[: LOOP - 1] if older.action is RestartAction.RESTART)
    row = [(incident.time, incident.step), *((older.time, older.step) for older in before)]
    steps = [step for time, step in row if step is not None and (since is None or time > since - RESOLUTION)]
    return len(steps) == LOOP and max(steps) == steps[-1] and not went_further(progress, steps[-1], incident.time)


def is_alike_again(status: DDPJobStatus, incident: Facts, judgement: Judgement) -> bool:
    """Whether a rank has raised the same error after the same number of steps in each of the last LOOP attempts.

    This is for programs whose steps are only counted, so that it is unknown whether they got any further. As in
    `is_crash_loop`, counting begins anew after a suspension. False if a rule of the user says to try again.
    """
    since, before = status.start_time, status.incidents[: LOOP - 1]
    row = [(incident, judgement), *((Facts.of(older), Judgement.of(older)) for older in before)]
    same = {(facts.steps_since_restart, facts.cause, facts.message) for facts, _ in row}
    own = all(_is_raised(*one) and (since is None or one[0].time > since - RESOLUTION) for one in row)
    return len(row) == LOOP and len(same) == 1 and own and incident.steps_since_restart is not None


def got_further(last: Incident, incident: Facts, progress: Progress | None = None) -> bool:
    """Whether training has got further since the previous incident, `last`: before the present incident or after it.

    False if that is unknown.
    """
    if last.step is None:
        return False
    by_then = incident.step is not None and incident.step > last.step
    return by_then or went_further(progress, last.step, last.time)


def went_further(progress: Progress | None, step: int, since: datetime) -> bool:
    """Whether a step later than `step` has finished after the moment `since`."""
    if progress is None or progress.step is None or progress.last_step_time is None:
        return False
    return progress.last_step_time > since and progress.step > step


def fails_at_start(view: View, incident: Facts) -> bool:
    """Whether the attempt made no step or, if the program reports no steps, ran for less than a minute.

    For errors about wrong arguments the limit is longer, because many programs parse their arguments only after their
    imports, which may take minutes.
    """
    if incident.step is not None:
        return False
    began, report = _began(view), None if is_silent(view) else view.report
    if report is None or report.progress is None:
        wrong_arguments = _is_usage_error(incident) and not _has_stepped(progress_of(view), began)
        seconds = IMPORT_SECONDS if wrong_arguments else START_SECONDS
        return began is None or incident.time - began < timedelta(seconds=seconds)
    return not _has_stepped(report.progress, began)


def _is_usage_error(incident: Facts) -> bool:
    """Whether a program reports wrong arguments. The exit code alone is not enough: there must be a message too."""
    code = incident.exit_code
    return code == USAGE_ERROR and not incident.message.endswith(f"exit code {code}")


def _has_stepped(progress: Progress | None, began: datetime | None) -> bool:
    """Whether a step has finished since the attempt began."""
    last = progress.last_step_time if progress else None
    return began is not None and last is not None and last >= began - RESOLUTION


def is_same_again(view: View, incident: Facts, judgement: Judgement) -> bool:
    """Whether the previous incident was the same error, on any rank, although all ranks have got new pods since.

    False if a restart rule of the user applies, or if the job was suspended in between, because the cause may have
    been fixed.
    """
    last, since = view.status.last_incident, view.status.start_time
    if last is None or (since is not None and last.time <= since - RESOLUTION):
        return False
    before = _is_raised_at_start(Facts.of(last), Judgement.of(last))
    both = before and _is_raised_at_start(incident, judgement)
    same = both and (last.cause, last.message) == (incident.cause, incident.message)
    return same and not _is_of_this_gang(view, last)


def _is_of_this_gang(view: View, last: Incident) -> bool:
    """Whether an incident happened in the present gang, even if some of its pods have been replaced since."""
    job, present = view.snapshot.job, view.status.bookkeeping.incarnations
    return any(last.pod == pod_name(job, last.node, number) for number in range(present.default, present.newest + 1))


def _is_raised_at_start(failure: Facts, judgement: Judgement) -> bool:
    """Whether a rank raised an error of its own before its first step, and no rule of the user judged it."""
    return _is_raised(failure, judgement) and failure.at_start and failure.step is None


def _is_raised(failure: Facts, judgement: Judgement) -> bool:
    """Whether a rank raised an error of its own that may recur, and no rule of the user judged it."""
    counted = judgement == Judgement(RestartAction.RESTART, BY_DEFAULT)
    own = failure.cause is Cause.APPLICATION and failure.exit_code is not None
    return counted and own and not _may_pass(failure)


def _may_pass(failure: Facts) -> bool:
    """Whether an error might not recur. True for errors without a message, because they cannot be compared."""
    if NEVER_PASSES.match(failure.message):
        return False
    unexplained = (f"exit code {failure.exit_code}", f"killed by {failure.signal}")
    return failure.message.removeprefix(OF_SUPERVISOR) in unexplained or MAY_PASS.search(failure.message) is not None


def _began(view: View) -> datetime | None:
    """Returns when all nodes of the attempt began to run; None if that was never observed.

    If supervisors started the attempt in place and it ended before the operator saw it run, returns the end of the
    previous attempt.
    """
    running, last = view.status.condition(ConditionType.RUNNING), view.status.last_incident
    if running is not None and running.status == "True":
        return running.last_transition_time
    return last.time if last is not None and view.status.bookkeeping.supervised else None
