"""How often to save if it is not set: so that the least time is lost.

Time is lost with each save, and with each failure: on average half an interval of training. The sum is least with an
interval of sqrt(2 * mean time to failure * cost of a save): J. W. Young, "A first order approximation to the optimum
checkpoint interval", CACM 17(9), 1974. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
restart dumps", FGCS 22(3), 2006, adds terms that matter if a save costs a good part of the time to failure; here it
never does.
"""

from math import sqrt

LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0
"""Bounds of the result."""

FIRST_SECONDS = 10.0
"""The first interval, since the cost of a save is not known yet."""

TIMES_WRITING = 2.0
"""So many times as long as it takes to write a save at least: for half of the time the steps have the disk and all
cores for themselves."""

HOUR = 3600.0
DISTURBANCE_HOURS = 24.0
"""Between two ends of a job that do not depend on its size: eviction, a drained node, a change."""

NODE_HOURS = 1000.0
"""Between two failures of one node of eight GPUs: jobs of 128 such nodes have 7.9 h (A. Kokolis et al., "Revisiting
Reliability in Large-Scale Machine Learning Research Clusters", 2024). Llama 3's had 6,300 h (2,048 nodes, 419
failures in 54 days, arXiv:2407.21783)."""


def expected_time_to_failure(nodes: int) -> float:
    """Mean seconds between failures of a job of this many nodes, as long as its own are not known."""
    return HOUR / (1 / DISTURBANCE_HOURS + nodes / NODE_HOURS)


def best_interval(time_to_failure: float, cost: float | None, writing: float) -> float:
    """Seconds of training between two saves.

    Args:
        time_to_failure: Mean seconds between failures.
        cost: Seconds that training loses by a save; None if there was none.
        writing: Seconds until a save is on the disk, while training goes on.
    """
    if cost is None:
        return FIRST_SECONDS
    best = sqrt(2 * time_to_failure * cost)
    return max(min(max(best, LEAST_SECONDS), MOST_SECONDS), TIMES_WRITING * writing)
