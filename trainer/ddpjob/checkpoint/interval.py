"""Computes the interval between saves if it is `auto`: the interval that costs the least time.

Each save costs time, and each failure costs half an interval of training, on average. The total is lowest with an
interval of sqrt(2 * mean time to failure * cost of a save): J. W. Young, "A first order approximation to the optimum
checkpoint interval", CACM 17(9), 1974. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
restart dumps", FGCS 22(3), 2006, adds terms that matter only if a save takes a large part of the time to failure,
which never happens here.
"""

from math import sqrt

LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0
"""The shortest and the longest interval."""

FIRST_SECONDS = 10.0
"""The first interval, which is used while the cost of a save is unknown."""

TIMES_WRITING = 2.0
"""The interval is at least this many times as long as writing a save takes. Thus, for at least half of the time,
nothing is being written, and training has the disk and all cores to itself."""

HOUR = 3600.0
DISTURBANCE_HOURS = 24.0
"""Assumed mean time between restarts that do not depend on the size of a job: evictions, drains, resizes."""

NODE_HOURS = 1000.0
"""Assumed mean time between two failures of one node with eight GPUs. Jobs of 128 such nodes fail every 7.9 h (A.
Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2024). In the
training of Llama 3 it was 6,300 h per node (2,048 nodes, 419 failures in 54 days, arXiv:2407.21783)."""


def expected_time_to_failure(nodes: int) -> float:
    """Assumed mean seconds between failures of a job with this many nodes, used until the job's own mean is known."""
    return HOUR / (1 / DISTURBANCE_HOURS + nodes / NODE_HOURS)


def best_interval(time_to_failure: float, cost: float | None, writing: float) -> float:
    """Seconds of training between two saves.

    Args:
        time_to_failure: Mean seconds between failures.
        cost: Seconds of training that a save costs; None if there was no save yet.
        writing: Seconds that it takes to write a save to the disk while training goes on.
    """
    if cost is None:
        return FIRST_SECONDS
    best = sqrt(2 * time_to_failure * cost)
    return max(min(max(best, LEAST_SECONDS), MOST_SECONDS), TIMES_WRITING * writing)
