"""Which ranks the processes of each node get in an attempt, so that nodes close to each other are neighbours. Pure.

A node keeps its number, by which pods and messages go. Only the numbers of its processes change: those of the node
that comes third in the order are the third ones.
"""

from collections.abc import Mapping, Sequence


class Ring:
    """The nodes of an attempt in the order of their ranks: each sends to the next, and the last to the first.

    Node 0 is always the first, since the others meet where rank 0 is.
    """

    def __init__(self, order: Sequence[int], processes: int) -> None:
        """`processes` is how many each node has."""
        self.order = tuple(order)
        self._processes = processes
        self._places = {node: place for place, node in enumerate(self.order)}

    @property
    def is_plain(self) -> bool:
        """Whether the nodes stand in it by number, as they do unless placement says something else."""
        return all(node == place for node, place in self._places.items())

    def first_rank(self, node: int) -> int:
        """The rank of a node's first process."""
        return self._places[node] * self._processes

    def node_of(self, rank: int) -> int:
        """The node on which a rank is."""
        return self.order[rank // self._processes]

    def in_words(self, rank: int) -> str:
        """A rank, with its node where that is not plain from it."""
        return rank_in_words(rank, self.node_of(rank), self._processes)


def rank_in_words(rank: int, node: int, processes: int) -> str:
    """A rank, with its node unless the nodes stand by number."""
    return f"rank {rank}" if rank // processes == node else f"rank {rank} (node {node})"


def order_of(domains: Mapping[int, str | None]) -> tuple[int, ...] | None:
    """The nodes, numbered from 0, in the order of their ranks: those of a topology domain stand beside each other.

    Node 0's domain comes first, and then each that a node of a lower number is in. So where the nodes already stand
    together by number, nobody moves. Those of which it is unknown (the empty string) come last.

    None: the nodes have to stand by number, since the supervisor of one (None) knows of no order.
    """
    if None in domains.values():
        return None
    first: dict[str | None, int] = {"": len(domains)}
    for node in sorted(domains):
        first.setdefault(domains[node], node)
    return (0, *sorted((node for node in domains if node), key=lambda node: (first[domains[node]], node)))
