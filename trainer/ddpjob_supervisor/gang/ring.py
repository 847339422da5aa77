"""Which ranks the processes of each node get in an attempt, so that nodes close to each other are neighbours. Pure.

A node keeps its number, which pods and messages use. Only the ranks of its processes change: with 8 processes per
node, the third node in the order has ranks 16 to 23.
"""

from collections.abc import Mapping, Sequence


class Ring:
    """The nodes of an attempt in the order of their ranks. Each node sends to the next, and the last to the first.

    Node 0 is always the first, because it must have rank 0, to which the others connect.
    """

    def __init__(self, order: Sequence[int], processes: int) -> None:
        """`processes` is the number of processes per node."""
        self.order = tuple(order)
        self._processes = processes
        self._places = {node: index for index, node in enumerate(self.order)}

    @property
    def is_plain(self) -> bool:
        """Whether the nodes are in numerical order, as they are unless ranks follow placement."""
        return all(node == index for node, index in self._places.items())

    def first_rank(self, node: int) -> int:
        """The rank of a node's first process."""
        return self._places[node] * self._processes

    def node_of(self, rank: int) -> int:
        """The number of the node that a rank runs on."""
        return self.order[rank // self._processes]

    def in_words(self, rank: int) -> str:
        """A rank as text. Includes the node if the rank's number does not determine the node."""
        return rank_in_words(rank, self.node_of(rank), self._processes)


def rank_in_words(rank: int, node: int, processes: int) -> str:
    """A rank as text. Includes the node if the rank's number does not determine the node."""
    return f"rank {rank}" if rank // processes == node else f"rank {rank} (node {node})"


def order_of(domains: Mapping[int, str | None]) -> tuple[int, ...] | None:
    """The numbers of the nodes in the order of their ranks.

    Nodes of one topology domain are neighbours in this order.

    Node 0's domain comes first. The other domains are ordered by the lowest number of their nodes, so the order stays
    numerical where neighbours by number already share a domain. Nodes with an unknown domain (the empty string) come
    last.

    None if the order has to be numerical, because a supervisor supports no other order (its domain is None).
    """
    if None in domains.values():
        return None
    first: dict[str | None, int] = {"": len(domains)}
    for node in sorted(domains):
        first.setdefault(domains[node], node)
    return (0, *sorted((node for node in domains if node), key=lambda node: (first[domains[node]], node)))
