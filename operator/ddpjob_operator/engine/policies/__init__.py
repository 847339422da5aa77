"""The life of a job, one policy after another: the first that has something to say decides.

Read CHAIN as the table of contents. Each policy looks at the whole present state and returns a verdict or None, and
knows when time alone will have it say something else.
"""

from .end import deadlines_due, ending, finished, finished_due, past_deadlines, succeeded
from .in_place import restarted_in_place
from .incident import corrected, incident, incident_due
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

__all__ = ["CHAIN", "Policy", "Verdict"]

CHAIN: tuple[Policy, ...] = (
    Policy(finished, "What has ended stays ended, whatever is asked for or comes to light.", finished_due),
    Policy(ending, "What is decided to end ends, also where it is suspended or past its deadline by now.", ends_due),
    Policy(succeeded, "What was done in time has succeeded, however late somebody looks, and whatever he asks then."),
    Policy(suspended, "What ends because it was told to is no incident, and no clock runs meanwhile.", ends_due),
    Policy(past_deadlines, "A deadline holds for whatever a job does or waits for.", deadlines_due),
    Policy(obstructed, "What cannot begin is not counted as an attempt."),
    Policy(started, "Until a job starts, or starts again, its pods are of the past: no incident."),
    Policy(restarted_in_place, "What supervisors have answered is an incident already, before its pod tells of it."),
    Policy(incident, "A broken gang starts again for that; its size follows.", incident_due),
    Policy(resized, "Another size is another gang, of which nothing is to be learned yet.", resize_due),
    Policy(corrected, "What the ended pods say is heard before they are removed.", ends_due),
    Policy(between_attempts, "While pods of the last attempt run, nothing is made.", between_due),
    Policy(given_back, "What is given back is not made complete before.", give_back_due),
    Policy(children, "Only once all that belongs to an attempt exists is it under way.", children_due),
    Policy(under_way, "Nothing else is left to say."),
)
