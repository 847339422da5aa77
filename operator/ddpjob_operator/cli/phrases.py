"""Texts and exit codes that several commands share."""

import os
import pwd
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ddpjob_operator.api import BadInputError, Cause, ConditionType, DDPJobStatus, Incident, State, words
from ddpjob_operator.api.reasons import DEADLINES, FROM_OUTSIDE, Reason
from ddpjob_operator.text import visible

Rest = Callable[[], int]
"""The second part of a command, called after the first part was done for every name; returns the exit code."""

INTERRUPTED = 128 + 2
"""The exit code that a shell reports after Ctrl-C. It is also that of a job that was cancelled."""
TIMED_OUT = 124
"""The exit code of timeout(1) at its limit."""

NEVER_RAN = frozenset({Cause.IMAGE_ERROR, Cause.START_ERROR})
"""Causes of failures that happen before a rank's program is started, and so leave no log."""

STYLES: dict[str, str] = {
    **dict.fromkeys((State.RUNNING, State.SUCCEEDED), "green"),
    **dict.fromkeys((State.PENDING, State.QUEUED, State.STARTING), "cyan"),
    **dict.fromkeys((State.RESTARTING, State.SUSPENDING, State.SUSPENDED), "yellow"),
    **dict.fromkeys((State.STALLED, State.FAILED), "red"),
}
"""Colours of states, on terminals that want colours."""


def say(text: str) -> None:
    """Tells the user something beside the output that was asked for: on standard error."""
    print(f"ddpjob: {visible(text)}", file=sys.stderr, flush=True)


def check_rank(flag: str, rank: int, name: str, ranks: int) -> None:
    """Checks that the job `name`, which has so many ranks, has the one that a flag names.

    Raises:
        BadInputError: there is no such rank.
    """
    if not 0 <= rank < ranks:
        named = "rank 0" if ranks == 1 else f"ranks 0 to {ranks - 1}"
        raise BadInputError(f"{flag} {rank}: {name} has {words.counted(ranks, 'rank')}: {named}")


def check_node(name: str, node: int | None, nodes: int) -> None:
    """Checks that the job `name`, which has so many nodes, has this one; None is none in particular.

    Raises:
        BadInputError: there is no such node.
    """
    if node is not None and not 0 <= node < nodes:
        raise BadInputError(f"{name} has no node {node}: its nodes are numbered 0 to {nodes - 1}")


def style_of(state: str) -> str:
    """The colour of a state; empty for a state that this version does not define."""
    return STYLES.get(state, "")


def exit_code(status: DDPJobStatus) -> int:
    """The exit code for a job that has ended: 0, INTERRUPTED, TIMED_OUT, or that of the rank that failed first."""
    if status.state is State.SUCCEEDED:
        return 0
    failed = status.condition(ConditionType.FAILED)
    if status.state is State.SUSPENDED or (failed is not None and failed.reason == Reason.CANCELLED):
        return INTERRUPTED
    if failed is not None and failed.reason in DEADLINES:
        return TIMED_OUT
    incident = status.last_incident
    return incident.exit_code if incident is not None and incident.exit_code else 1


def how_to_resume(command: str, status: DDPJobStatus) -> list[str]:
    """Lines that tell the user how to go on with a stopped run; the last line has the command."""
    if not status.attempt or status.checkpoint is not None:
        lost = []
    elif status.progress is None or status.progress.step is None:  # Perhaps it has not begun to train.
        lost = ["No step or checkpoint is known: if it has trained, it starts over, unless it finds what it saved."]
    else:
        lost = [
            "No checkpoint is known: the script starts over, unless the script itself finds what it has saved.",
            'The tutorial "Make your script resume" shows how to change that.',
        ]
    return [*lost, f"Go on with: {command}"]


def about_a_file(error: OSError) -> str:
    """The message for a system error about a file; a permission error also names the owner, if it is another user."""
    owner = _owner(Path(error.filename)) if isinstance(error, PermissionError) else ""
    return f"{error.strerror}: {error.filename}{owner and f'; it belongs to {owner}'}"


def _owner(path: Path) -> str:
    """The owner of a path, or of its closest parent that can be read; empty if that is this user."""
    for place in (path, *path.absolute().parents):
        with suppress(OSError):
            uid = place.stat().st_uid
            break
    else:
        return ""
    if uid == os.geteuid():
        return ""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


def writer(procs_per_node: int | None) -> str:
    """The noun for the writer of a log file: several ranks of a node share the node's log."""
    return "node" if procs_per_node and procs_per_node > 1 else "rank"


def restarts(status: DDPJobStatus) -> str:
    """The numbers of restarts and disruptions, and which rank failed first in the last incident."""
    incident, failed = status.last_incident, status.condition(ConditionType.FAILED)
    is_why_it_failed = failed is not None and failed.reason not in FROM_OUTSIDE
    last = (
        f" (last: {incident.who}, {incident.cause}: {incident.message})" if incident and not is_why_it_failed else ""
    )
    return f"{words.restarts(status.restarts, status.disruptions)}{last}"


def failed_first(status: DDPJobStatus, attempt: int) -> int | None:
    """The number of the node that failed first in an attempt; None if the status has no incident of the attempt."""
    incident = incident_of(status, attempt)
    return incident.node if incident else None


def incident_of(status: DDPJobStatus, attempt: int) -> Incident | None:
    """The incident that ended an attempt; None if the status does not contain it."""
    return next((incident for incident in status.incidents if incident.attempt == attempt), None)


def nothing_ran(status: DDPJobStatus) -> bool:
    """Whether no attempt got far enough to write a log, judging by the incidents that are still in the status."""
    causes = {incident.cause for incident in status.incidents}
    return status.first_run_time is None and causes <= NEVER_RAN


def span_of_attempts(first: int, last: int) -> str:
    """The attempts of one gang, whose ranks were restarted in place, as text: `2`, or `2 to 4`."""
    return str(first) if first == last else f"{first} to {last}"


def file_path(path: Path) -> str:
    """A path as a person in the current directory would write it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
