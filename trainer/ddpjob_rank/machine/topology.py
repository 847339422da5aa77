"""Reads from /sys which cores of a machine are near each other, and divides the cores among ranks.

PyTorch's own binding (torch.numa.binding) needs a CUDA context in the calling process, and needs numactl to bind
another process. A supervisor has neither, and also divides cores among ranks without GPUs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SYSTEM = Path("sys/devices/system")

Cpus = frozenset[int]


@dataclass(frozen=True, slots=True, order=True)
class Core:
    """A physical core. It consists of several CPUs if it has hyper-threads."""

    socket: int
    node: int
    """The NUMA node whose memory is nearest to this core."""
    first: int
    cpus: Cpus


def read(usable: set[int], root: Path = Path("/")) -> list[Core]:
    """The cores to which the `usable` CPUs belong, each with only these CPUs.

    A number that /sys lacks counts as 0.
    """
    nodes = dict(_nodes(root / SYSTEM / "node"))
    cores: dict[Cpus, Core] = {}
    for cpu in sorted(usable):
        topology = root / SYSTEM / "cpu" / f"cpu{cpu}" / "topology"
        siblings = frozenset(parse_cpu_list(_text(topology / "thread_siblings_list")) or {cpu}) & usable
        socket = _text(topology / "physical_package_id")
        socket_number = int(socket) if socket.isdecimal() else 0
        cores.setdefault(siblings, Core(socket_number, nodes.get(cpu, 0), cpu, siblings))
    return sorted(cores.values())


def parse_cpu_list(text: str) -> set[int]:
    """Parses a list of numbers in the kernel's form: `0-3,8`."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _nodes(directory: Path) -> Iterator[tuple[int, int]]:
    """Each CPU with the number of its NUMA node."""
    for node in directory.glob("node[0-9]*"):
        number = int(node.name.removeprefix("node"))
        yield from ((cpu, number) for cpu in parse_cpu_list(_text(node / "cpulist")))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def divide(cores: Sequence[Core], ranks: int, near: Sequence[int | None] = ()) -> list[Cpus] | None:
    """Divides whole cores among ranks, if possible so that each rank has cores of one NUMA node.

    All ranks on a NUMA node get the same number of cores. `near` is the NUMA node of each rank's GPU. Ranks get cores
    of these nodes if the node is known for all ranks, and each node has at least one core for each of its ranks. None
    if there are too few cores.
    """
    if len(cores) < ranks:
        return None
    by_node = {node[0].node: node for node in _by_node(cores)}
    wanted = [node for node in near if node is not None]
    if len(wanted) == ranks and all(len(by_node.get(node, ())) >= wanted.count(node) for node in wanted):
        shares = {node: iter(_equal(by_node[node], wanted.count(node))) for node in {*wanted}}
        return [next(shares[node]) for node in wanted]
    numbers = sorted({core.socket for core in cores})
    return _divided([_by_node([core for core in cores if core.socket == number]) for number in numbers], ranks)


def nodes_of_each(cores: Sequence[Core], near: Sequence[int | None]) -> list[Cpus] | None:
    """The cores of each rank: all of its GPU's NUMA node, or all of `cores` if that node is unknown or has no cores.

    None if every rank would get all of `cores`.
    """
    shares = [_all([core for core in cores if core.node == node] or cores) for node in near]
    return shares if any(share != _all(cores) for share in shares) else None


def _by_node(cores: Sequence[Core]) -> list[list[Core]]:
    return [[core for core in cores if core.node == node] for node in sorted({core.node for core in cores})]


def _divided(sockets: list[list[list[Core]]], ranks: int) -> list[Cpus]:
    """Assigns ranks to sockets, then to NUMA nodes of the socket.

    If there are fewer ranks than sockets or nodes, a rank gets several of them.
    """
    wholes = [[core for node in socket for core in node] for socket in sockets]
    if ranks < len(sockets):
        return [_all(group) for group in _grouped(wholes, ranks)]
    shares: list[Cpus] = []
    for socket, of_socket in zip(sockets, _placed(wholes, ranks), strict=True):
        if of_socket < len(socket):
            shares += [_all(group) for group in _grouped(socket, of_socket)]
            continue
        for node, of_node in zip(socket, _placed(socket, of_socket), strict=True):
            shares += _equal(node, of_node)
    return shares


def _placed(places: Sequence[Sequence[Core]], ranks: int) -> list[int]:
    """How many ranks each place (socket or NUMA node) gets, so that each rank has as many cores as possible."""
    counts = [0] * len(places)
    for _ in range(ranks):
        best = max(range(len(places)), key=lambda place: (len(places[place]) / (counts[place] + 1), -place))
        counts[best] += 1
    return counts


def _grouped(places: Sequence[list[Core]], ranks: int) -> list[list[Core]]:
    """The cores of neighbouring places for each rank. All ranks get about the same number of places."""
    edges = [rank * len(places) // max(ranks, 1) for rank in range(ranks + 1)]
    return [[core for place in places[first:last] for core in place] for first, last in pairwise(edges)]


def _equal(cores: Sequence[Core], ranks: int) -> list[Cpus]:
    share = len(cores) // ranks if ranks else 0
    return [_all(cores[rank * share : (rank + 1) * share]) for rank in range(ranks)]


def _all(cores: Sequence[Core]) -> Cpus:
    return frozenset(cpu for core in cores for cpu in core.cpus)
