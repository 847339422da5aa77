"""The ranks of a job, each in one line, as the status page of rank 0's supervisor has them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.engine import count_of, text_of
from ddpjob_operator.text import one_line

from .pods_seen import PodSeen

MOST_RANKS = 1 << 16
PARTS = 16
LARGEST = 1e9


@dataclass(frozen=True, slots=True)
class RankRow:
    """What a table shows of a rank, or of all ranks of a node if single ranks are not known. Texts are one line."""

    ranks: str
    """The rank's number, or a range of numbers: `24-31`."""
    node: int
    """The node's number."""
    node_name: str = ""
    """The Kubernetes node; empty if it is unknown."""
    state: str = ""
    """What its pod does, in one word."""
    step: int | None = None
    activity: str = ""
    step_seconds: float | None = None
    """Seconds that a step takes."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean seconds of the parts of a step, by their names."""
    slowdown: float | None = None
    """How many times as long as usual its own part of a step takes, if it holds up the others."""
    slowed: str = ""
    """Why the clocks of its GPU are held down."""
    memory_bytes: int | None = None
    transport: str = ""
    """How NCCL transfers data."""
    of_node: bool = False
    """Whether the row stands for all ranks of the node."""

    @property
    def own_seconds(self) -> float | None:
        """Mean seconds of a step without the time that the rank waits for others; None if they are unknown."""
        own = [seconds for part, seconds in self.parts.items() if part != "communication"]
        return sum(own) if own else None


def rank_rows(job: DDPJob, page: Any, pods: Iterable[PodSeen] = ()) -> tuple[RankRow, ...]:
    """The ranks of a job in their order. `page` is the status page; anybody may have written it, and None is none.

    In a world of more than 64 ranks, which the status page does not list, there is a row for each node.
    """
    placed = {pod.node: pod for pod in pods}
    document = page if isinstance(page, Mapping) else {}
    found = document.get("ranks")
    rows = [row for one in found[:MOST_RANKS] if (row := _rank(one))] if isinstance(found, list) else []
    known = rows or [*_of_nodes(job)]
    slow = _slowdowns(job, document)
    return tuple(_joined(row, placed.get(row.node), slow.get(row.node, {})) for row in known)


def slowest(rows: Sequence[RankRow]) -> RankRow | None:
    """The rank that the others wait for: a straggler or, without any, the one with the longest own part of a step.

    None if that is unknown, or there is only one rank.
    """
    known = [row for row in rows if row.slowdown is not None or row.own_seconds is not None]
    if len(known) < 2:  # noqa: PLR2004  Somebody has to wait for it.
        return None
    return max(known, key=lambda row: (row.slowdown or 0.0, row.own_seconds or 0.0))


def _of_nodes(job: DDPJob) -> Iterator[RankRow]:
    status = job.status
    each = status.procs_per_node or 1
    for node in range(status.nodes or 0):
        first = node * each
        yield RankRow(str(first) if each == 1 else f"{first}-{first + each - 1}", node, of_node=True)


def _slowdowns(job: DDPJob, document: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """The slowdown of stragglers by node, and by rank; where the rank is unknown, it is empty."""
    slow = {one.node: {"": one.slowdown} for one in job.status.stragglers}
    found = document.get("stragglers")
    for one in found[:MOST_RANKS] if isinstance(found, list) else ():
        if not isinstance(one, Mapping):
            continue
        node, rank, factor = count_of(one.get("node")), count_of(one.get("rank")), _number(one.get("slowdown"))
        if node is not None and rank is not None and factor is not None:
            slow.setdefault(node, {})[str(rank)] = factor
    return slow


def _joined(row: RankRow, pod: PodSeen | None, slow: Mapping[str, float]) -> RankRow:
    """The row with what is known of its pod and of the stragglers of its node, by rank."""
    if row.of_node:
        factor = max(slow.values(), default=None)
    else:  # The job's status names only the node of a straggler, so the page is more precise.
        factor = slow.get(row.ranks) if slow.keys() - {""} else slow.get("")
    name, state = (one_line(pod.node_name), one_line(pod.state)) if pod else ("", "")
    return replace(row, slowdown=factor, node_name=name, state=state)


def _rank(value: Any) -> RankRow | None:
    if not isinstance(value, Mapping):
        return None
    rank, node = count_of(value.get("rank"), MOST_RANKS), count_of(value.get("node"), MOST_RANKS)
    if rank is None or node is None:
        return None
    found = value.get("seconds")
    seconds = found.items() if isinstance(found, Mapping) else ()
    parts = [(_word(name), _number(number)) for name, number in [*seconds][:PARTS]]
    return RankRow(
        ranks=str(rank),
        node=node,
        step=count_of(value.get("step")),
        activity=_word(value.get("activity")),
        step_seconds=_number(value.get("stepSeconds")),
        parts={name: number for name, number in parts if number is not None},
        slowed=_word(value.get("slowed")),
        memory_bytes=count_of(value.get("memoryBytes")),
        transport=_word(value.get("transport")),
    )


def _word(value: Any) -> str:
    return one_line(text_of(value))


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= LARGEST else None
