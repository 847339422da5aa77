"""The life of a job, one policy after another: the first that has a verdict decides.

Read CHAIN as the table of contents. Each policy looks at the whole present state and returns a verdict or None, and
knows when time alone will change its answer.
"""

from .end import deadlines_due, ending, finished, finished_due, past_deadlines, succeeded
from .in_place import restarted_in_place
from .incident import corrected, incident, incident_due
from .overwriting import overwriting
from .queue import queued
from .size import give_back_due, given_back, resize_due, resized
from .start import (
    between_attempts,
    between_due,
    children,
    children_due,
    obstructed,
    under_way,
)
from .steps import ends_due
from .suspension import started, suspended
from .verdict import Policy, Verdict
from .way import yielding_due, yields_to_gang_ahead

__all__ = ["CHAIN", "Policy", "Verdict"]

CHAIN: tuple[Policy, ...] = (
    Policy(finished, "What has ended stays ended, whatever is asked for or comes to light.", finished_due),
    Policy(ending, "Once its end is decided, a job ends, even if suspended or past its deadline by now.", ends_due),
    Policy(succeeded, "A job that finished in time has succeeded, even if suspended or past its deadline when seen."),
    Policy(suspended, "A pod that ends because it was told to stop is no incident; no deadline runs.", ends_due),
    Policy(past_deadlines, "A deadline applies whatever the job is doing or waiting for.", deadlines_due),
    Policy(queued, "A job that waits for its queue stays there whatever is in the way of a start."),
    Policy(obstructed, "A start that is not possible does not count as an attempt."),
    Policy(started, "Until a job starts or resumes, its pods belong to the past: they are no incident."),
    Policy(overwriting, "A start at the beginning that a rule forbids ends the job before there is another attempt."),
    Policy(restarted_in_place, "What supervisors have answered counts as an incident before a pod reports it."),
    Policy(incident, "A broken gang starts again before more is learned about the last attempt.", incident_due),
    Policy(
        corrected, "What ended pods report is read first: once the size changes, nobody listens to them.", ends_due
    ),
    Policy(resized, "A new size is taken at once, even while pods of the last attempt still run.", resize_due),
    Policy(between_attempts, "While pods of the last attempt run, nothing is created.", between_due),
    Policy(given_back, "What was held in vain for too long is given back, whoever wants it.", give_back_due),
    Policy(yields_to_gang_ahead, "A gang that gives way to another one is not completed first.", yielding_due),
    Policy(children, "An attempt is under way only once everything that belongs to it exists.", children_due),
    Policy(under_way, "Nothing else is left to decide."),
)
