"""The plan of the full preflight: what the ranks try step by step, and which nodes are at fault. Pure functions.

`plan` is a generator: it yields a step for all ranks, is sent their results, and in the end returns its findings. A
rank that gives no result is called silent. A silent rank ends the plan, because nothing more can be tried with it.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from ddpjob_rank.failure.device_words import broken_device
from ddpjob_supervisor.preflight.findings import Finding, Level

from .pairing import Pair, rounds

SICK_AFTER = 3
"""A node that has failed with this many other nodes is not tried any further."""

SLOW = 0.5
"""The slowest pair is reported if its bandwidth is below this fraction of the median of all pairs."""

PAIRS_FOR_A_MEDIAN = 3

NETWORK_TODO = (
    "all ports must be open between the job's pods (NetworkPolicy, firewall), and NCCL_SOCKET_IFNAME or"
    " GLOO_SOCKET_IFNAME must name the right interface where there are several"
)
MACHINE_TODO = "have the machine looked at"
NODE_TODO = "its network differs from that of the other nodes, or a NetworkPolicy or firewall blocks its traffic"
WRONG = "the sum of a known tensor is wrong"
"""How a problem's text begins if the cause is a machine, not the network."""
WRONGLY = "computes wrongly"
"""How a problem's text begins if the cause is a GPU."""

NAMED = 8


NO_END = "no end within"
IN_VAIN = (NO_END, "imed out", "onnection closed", "onnection reset")
"""Parts of the messages of ranks that only waited in vain for another rank. The cause lies with that rank."""


class Kind(StrEnum):
    """What a step of the plan tries."""

    ARRIVE = "arrive"
    """Whether the rank has reached the store."""
    DEVICE = "device"
    """A computation on the rank's own GPU."""
    ALL = "all"
    """A sum over all ranks."""
    PAIRS = "pairs"
    """A sum over two nodes, by the first rank of each."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """What all ranks do next."""

    kind: Kind
    pairs: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rank's result of a step."""

    trouble: str = ""
    """The problem; empty if there was none."""
    seconds: float = 0.0
    """Seconds that a sum took, in the fastest of several tries."""
    size: int = 0
    """Bytes that each rank contributed to the sum."""


Outcomes = Mapping[int, Outcome]
"""Results by rank."""

Plan = Generator[PlanStep, Outcomes, list[Finding]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a gang."""

    ranks: int
    per_node: int

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.ranks // self.per_node


def plan(shape: Shape, *, devices: bool) -> Plan:
    """The plan for a gang. `devices` is true if its ranks have GPUs."""
    findings: list[Finding] = []
    outcomes: Outcomes = {}
    for kind in (Kind.ARRIVE, *([Kind.DEVICE] if devices else []), *([Kind.ALL] if shape.ranks > 1 else [])):
        outcomes = yield PlanStep(kind)
        findings += [*_silent(shape, outcomes, kind), *(_devices(shape, outcomes) if kind is Kind.DEVICE else ())]
        if any(finding.level is Level.FAIL for finding in findings):
            return findings
    if shape.ranks == 1:
        return findings
    trouble = _trouble(*outcomes.values())
    if not trouble:
        findings.append(_bandwidth(shape, outcomes))
    if shape.nodes == 1 or (shape.nodes == 2 and not trouble):  # noqa: PLR2004  (the only pair has been tried by the sum over all)
        return findings + _blame(shape, {}, trouble)
    tried, silent = yield from _try_pairs(shape)
    return findings + (silent or [*_blame(shape, tried, trouble), *_slow(tried)])


def _try_pairs(shape: Shape) -> Generator[PlanStep, Outcomes, tuple[dict[Pair, Outcome], list[Finding]]]:
    """Tries pairs of nodes; returns each pair's result. If ranks fall silent, stops, and returns findings as well."""
    tried: dict[Pair, Outcome] = {}
    for pairs in rounds(shape.nodes):
        sick = {node for node in range(shape.nodes) if _failures(node, tried) >= SICK_AFTER}
        left = tuple(pair for pair in pairs if sick.isdisjoint(pair))
        if not left:
            continue
        outcomes = yield PlanStep(Kind.PAIRS, left)
        silent = list(_silent(shape, outcomes, Kind.PAIRS))
        if silent:
            return tried, silent
        tried |= {pair: _joint(*(outcomes[node * shape.per_node] for node in pair)) for pair in left}
    return tried, []


def _failures(node: int, tried: Mapping[Pair, Outcome]) -> int:
    return sum(bool(outcome.trouble) for pair, outcome in tried.items() if node in pair)


def _joint(one: Outcome, other: Outcome) -> Outcome:
    return Outcome(_trouble(one, other), max(one.seconds, other.seconds), one.size)


def _trouble(*outcomes: Outcome) -> str:
    """The problem closest to the cause. The problem of a rank that waited in vain is the last choice."""
    found = (outcome.trouble for outcome in outcomes if outcome.trouble)
    return min(found, key=lambda text: any(words in text for words in IN_VAIN), default="")


def _silent(shape: Shape, outcomes: Outcomes, kind: Kind) -> Iterator[Finding]:
    ranks = [rank for rank in range(shape.ranks) if rank not in outcomes]
    if not ranks:
        return
    nodes = _nodes_of(shape, ranks)
    if kind is Kind.ARRIVE:
        problem = "did not reach rank 0 in time: not started, or something blocks rank 0's port"
    else:
        problem = "stopped answering: the process hangs, or the network is cut"
    yield Finding("ranks", Level.FAIL, f"{_ranks(ranks)} on {_named(nodes)} {problem}; {MACHINE_TODO}", nodes=nodes)


def _devices(shape: Shape, outcomes: Outcomes) -> Iterator[Finding]:
    for rank, outcome in outcomes.items():
        nodes = (rank // shape.per_node,)
        gpu = f"the GPU of rank {rank} on {_named(nodes)}"
        if outcome.trouble:
            broken = outcome.trouble.startswith(WRONGLY) or broken_device(outcome.trouble) is not None
            message = f"{gpu} {outcome.trouble}; {MACHINE_TODO}"
            yield Finding("gpus", Level.FAIL, message, nodes=nodes, device=broken)


def _bandwidth(shape: Shape, outcomes: Outcomes) -> Finding:
    """The bandwidth of the sum over all n ranks, for S bytes in t seconds.

    Algorithm bandwidth is S/t; bus bandwidth, the load of each link, is S/t * 2(n-1)/n, as in nccl-tests:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
    """
    seconds = max(outcome.seconds for outcome in outcomes.values())
    size = outcomes[0].size
    algorithm = size / seconds
    bus = algorithm * 2 * (shape.ranks - 1) / shape.ranks
    message = (
        f"all_reduce of {size >> 20} MiB over {shape.ranks} ranks: the sum is right; algorithm bandwidth"
        f" {_rate(algorithm)}, bus bandwidth {_rate(bus)}"
    )
    return Finding("allReduce", Level.OK, message)


def _blame(shape: Shape, tried: Mapping[Pair, Outcome], trouble: str) -> list[Finding]:
    """Findings that name the cause of failed sums: nodes that failed with all others, then single pairs.

    If no pair has failed but the sum over all ranks has, the only finding is about that sum.
    """
    bad = {pair: outcome.trouble for pair, outcome in tried.items() if outcome.trouble}
    if not bad:
        return [_all_failed(shape, trouble)] if trouble else []
    well = {node for pair in tried if pair not in bad for node in pair}
    if not well and shape.nodes > 2:  # noqa: PLR2004  (with two nodes, the finding below names the only pair)
        return [_failed((), "no two nodes can exchange data", next(iter(bad.values())), NETWORK_TODO)]
    findings = []
    sick = tuple(node for node in range(shape.nodes) if node not in well and _failures(node, tried) > 1)
    if sick:
        why = next(why for pair, why in bad.items() if not set(sick).isdisjoint(pair))
        problem = f"{_named(sick)} failed the all_reduce with every other node that was tried"
        findings.append(_failed(sick, problem, why, NODE_TODO))
    links = [(pair, why) for pair, why in bad.items() if set(sick).isdisjoint(pair)]
    for pair, why in links[:NAMED]:
        findings.append(_failed(pair, f"{_named(pair)} failed the all_reduce with each other", why, NETWORK_TODO))
    return findings


def _all_failed(shape: Shape, trouble: str) -> Finding:
    problem = f"the all_reduce over all {shape.ranks} ranks failed"
    if shape.nodes == 1:
        return _failed(
            (0,), problem, trouble, "processes of the node cannot exchange data: check its /dev/shm and its GPUs"
        )
    return _failed((), f"{problem}, although each pair of nodes that was tried works", trouble, NETWORK_TODO)


def _failed(nodes: tuple[int, ...], what: str, why: str, network_todo: str) -> Finding:
    todo = MACHINE_TODO if why.startswith(WRONG) else network_todo
    return Finding("allReduce", Level.FAIL, f"{what}: {why}; {todo}", nodes=nodes)


def _slow(tried: Mapping[Pair, Outcome]) -> list[Finding]:
    rates = {pair: outcome.size / outcome.seconds for pair, outcome in tried.items() if not outcome.trouble}
    if len(rates) < PAIRS_FOR_A_MEDIAN:
        return []
    slowest = min(rates, key=lambda pair: rates[pair])
    middle = median(rates.values())
    if rates[slowest] >= SLOW * middle:
        return []
    message = (
        f"{_named(slowest)} exchange data at {_rate(rates[slowest])}; the median of all pairs is "
        f"{_rate(middle)}, and all ranks wait for the slowest: have their network looked at"
    )
    return [Finding("bandwidth", Level.WARN, message, nodes=slowest)]


def _nodes_of(shape: Shape, ranks: list[int]) -> tuple[int, ...]:
    return tuple(sorted({rank // shape.per_node for rank in ranks}))


def _named(nodes: tuple[int, ...]) -> str:
    return _several("node", list(nodes))


def _ranks(ranks: list[int]) -> str:
    return _several("rank", ranks)


def _several(word: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    if len(numbers) > NAMED:
        return f"{word}s {', '.join(map(str, numbers[:NAMED]))} and {len(numbers) - NAMED} more"
    return f"{word}s {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g} GB/s"
