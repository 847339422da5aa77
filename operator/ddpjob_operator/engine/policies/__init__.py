"""The life of a job, one policy after another: the first that has something to say decides.

Read POLICIES as the table of contents. Each policy looks at the whole present state and returns a verdict or None.
"""

from .ending import ending, finished, past_deadline, past_start_deadline, succeeded
from .failing import pods_failed, seen_clearer
from .in_place import restarted_in_place, waits_in_vain
from .sizing import gang_incomplete, grown, resized, shrunk
from .starting import (
    between_attempts,
    children_missing,
    first_start,
    image_missing,
    refused,
    service_taken,
    under_way,
)
from .suspending import resumed, suspended
from .verdict import Policy, Verdict

__all__ = ["POLICIES", "Policy", "Verdict"]

POLICIES: tuple[Policy, ...] = (
    finished,
    ending,
    suspended,
    succeeded,
    past_deadline,
    past_start_deadline,
    service_taken,
    image_missing,
    resumed,
    first_start,
    restarted_in_place,
    pods_failed,
    waits_in_vain,
    resized,
    seen_clearer,
    between_attempts,
    shrunk,
    gang_incomplete,
    refused,
    children_missing,
    grown,
    under_way,
)
