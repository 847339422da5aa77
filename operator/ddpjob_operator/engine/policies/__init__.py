"""The chain of policies that handles a job's whole life. The first policy that returns a verdict decides.

CHAIN is the table of contents. Each policy looks at the whole present state and returns a verdict or None. It also
reports the times at which its answer may change merely because time has passed.
"""

from .avoidance import returned_due
from .end import cancelled, deadlines_due, ending, finished, finished_due, past_deadlines, succeeded
from .in_place import restarted_in_place
from .incident import corrected, incident, incident_due
from .lifting import lifted, lifting_due
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
    Policy(finished, "A finished job stays finished, whatever is requested or reported later.", finished_due),
    Policy(
        ending,
        "Once a job's outcome is decided, the job ends, even if it is suspended or past its deadline.",
        ends_due,
    ),
    Policy(succeeded, "A job that finished in time has succeeded, even if it is suspended or past its deadline now."),
    Policy(
        cancelled, "A job that is suspended or waits in its queue can be cancelled too, and fails for that reason."
    ),
    Policy(
        suspended,
        "A pod that ends because it was told to stop is not an incident, and no deadline counts down.",
        ends_due,
    ),
    Policy(past_deadlines, "A deadline applies whatever the job is doing or waiting for.", deadlines_due),
    Policy(queued, "A job that waits in its queue stays there, even if something else would keep it from starting."),
    Policy(obstructed, "A start that is not possible does not count as an attempt."),
    Policy(started, "Until a job starts or resumes, failures of its old pods are not incidents."),
    Policy(overwriting, "If a rule forbids starting over, the job ends before there is another attempt."),
    Policy(restarted_in_place, "An incident that supervisors have answered is counted before a pod reports it."),
    Policy(
        incident, "A broken gang starts again before the last attempt's late reports are considered.", incident_due
    ),
    Policy(corrected, "Late reports are considered before the size changes; afterwards they are ignored.", ends_due),
    Policy(resized, "A new size applies immediately, even while pods of the last attempt still run.", resize_due),
    Policy(between_attempts, "While pods of the last attempt run, nothing is created.", between_due),
    Policy(
        lifted,
        "A gang that is incomplete only because it avoids broken nodes may use them before it gives back the others.",
        lifting_due,
    ),
    Policy(
        given_back,
        "A gang that cannot start gives its nodes back, even if no other gang waits for them.",
        give_back_due,
    ),
    Policy(yields_to_gang_ahead, "A gang that has to give way does not create its missing pods first.", yielding_due),
    Policy(children, "An attempt is under way only once everything that belongs to it exists.", children_due),
    Policy(under_way, "Nothing else is left to decide.", returned_due),
)
