"""Chooses the pairs of nodes to try, many at the same time. Pure functions."""

from collections.abc import Iterator

Pair = tuple[int, int]
"""Two nodes, the lower number first."""

ALL_PAIRS_UP_TO = 16
"""Up to this number of nodes, all pairs are tried. With more nodes, trying all would take too long."""


def rounds(nodes: int) -> Iterator[tuple[Pair, ...]]:
    """The pairs to try, in rounds: all pairs of a round are tried at the same time, and no node is in two of them.

    With up to 16 nodes, all pairs are tried: in n - 1 rounds, or n if n is odd. With more nodes, each node is paired
    with the nodes at a distance of 1, 2, 4, … on a ring, in at most three rounds per distance. This finds a bad node
    just as surely, but a bad link only if it is between two nodes that are paired.
    """
    yield from _tournament(nodes) if nodes <= ALL_PAIRS_UP_TO else _distances(nodes)


def _tournament(nodes: int) -> Iterator[tuple[Pair, ...]]:
    """Yields all pairs, by the circle method: one node stays in its place, and the others rotate around it.

    (https://en.wikipedia.org/wiki/Round-robin_tournament)
    """
    even = nodes + nodes % 2
    for number in range(even - 1):
        circle = [0, *((number + step) % (even - 1) + 1 for step in range(even - 1))]
        met = zip(circle[: even // 2], reversed(circle[even // 2 :]), strict=True)
        yield tuple(sorted(_pair(left, right) for left, right in met if max(left, right) < nodes))


def _distances(nodes: int) -> Iterator[tuple[Pair, ...]]:
    distance = 1
    while distance <= nodes // 2:
        yield from _at(distance, nodes)
        distance *= 2


def _at(distance: int, nodes: int) -> Iterator[tuple[Pair, ...]]:
    """Yields all pairs at one distance, each in the first round in which both nodes are free."""
    left = sorted({_pair(node, (node + distance) % nodes) for node in range(nodes)})
    while left:
        busy: set[int] = set()
        now: list[Pair] = []
        for pair in left:
            if busy.isdisjoint(pair):
                busy.update(pair)
                now.append(pair)
        yield tuple(now)
        left = [pair for pair in left if pair not in now]


def _pair(one: int, other: int) -> Pair:
    return (min(one, other), max(one, other))
