"""Which of several operators runs a job: by its class and, from its start on, by the operator that its status names.

Operators never talk to each other. A job's status holds everything that they have to know, and because a status is
written only if the job has not changed since it was read, only one of them can become a job's operator.
"""

from enum import Enum, auto
from typing import NamedTuple


class Holder(NamedTuple):
    """An operator, as the jobs that it runs name it. All replicas of an operator are the same holder."""

    name: str = ""
    """Namespace and name of its Lease, such as `ddpjob-system/ddpjob-operator`; empty if nobody is named."""
    class_name: str = ""
    """The class of jobs that it runs; empty: the jobs without a class."""


NOBODY = Holder()


class Claim(Enum):
    """Whether an operator runs a job."""

    OURS = auto()
    """It runs the job."""
    OTHERS = auto()
    """The job is of another class, or another operator runs it, although its label says our class now."""
    CONTESTED = auto()
    """The job is of its class, but another operator holds it. It runs the job only if that operator is gone."""


def claim(me: Holder, label: str, holder: Holder, *, active: bool) -> Claim:
    """Returns whether the operator `me` runs a job.

    `label` is the value of the job's label CLASS, and `holder` the operator that its status names. `active` is
    whether the job has started, and was not suspended since: then the label does not count for its holder.

    Example:
        A job without a class that was started by an operator whose release had no classes, and names no holder:

        >>> claim(Holder("a/b"), "", Holder(), active=True)
        <Claim.OURS: 1>
    """
    if active and holder.name == me.name:
        return Claim.OURS
    # A release without classes runs all jobs, whatever their label, and names no holder.
    class_name = label if holder.name or not active else ""
    if class_name != me.class_name:
        return Claim.OTHERS
    if holder.name in {"", me.name}:
        return Claim.OURS
    released = not active and holder.class_name != label
    return Claim.OURS if released else Claim.CONTESTED
