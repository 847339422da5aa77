"""Which nodes meet when pairs are tried, many at a time. Pure."""

from collections.abc import Iterator

Pair = tuple[int, int]
"""Two nodes, the lower number first."""

ALL_PAIRS_UP_TO = 16
"""The largest gang in which every node meets every other; in larger ones that would take too long."""


def rounds(nodes: int) -> Iterator[tuple[Pair, ...]]:
    """Rounds in which no node is in two pairs.

    With up to 16 nodes all meet all: n - 1 rounds, n if n is odd. Beyond that, each meets those at a distance of 1,
    2, 4, … on the ring, in at most three rounds for each distance: a bad node is found just as surely, a bad link
    only if it is one of these.
    """
    yield from _tournament(nodes) if nodes <= ALL_PAIRS_UP_TO else _distances(nodes)


def _tournament(nodes: int) -> Iterator[tuple[Pair, ...]]:
    """The circle method: one stays, the others go round it. (https://en.wikipedia.org/wiki/Round-robin_tournament)."""
    even = nodes + nodes % 2
    for number in range(even - 1):
        circle = [0, *((number + step) % (even - 1) + 1 for step in range(even - 1))]
        met = zip(circle[: even // 2], reversed(circle[even // 2 :]), strict=True)
        yield tuple(sorted(_pair(one, other) for one, other in met if max(one, other) < nodes))


def _distances(nodes: int) -> Iterator[tuple[Pair, ...]]:
    distance = 1
    while distance <= nodes // 2:
        yield from _at(distance, nodes)
        distance *= 2


def _at(distance: int, nodes: int) -> Iterator[tuple[Pair, ...]]:
    """All pairs at one distance, dealt out to rounds: each goes to the first in which both are free."""
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
