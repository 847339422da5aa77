"""In which order nodes get their ranks, so that those of one topology domain are neighbours."""

from itertools import pairwise

import pytest
from ddpjob_supervisor.gang.ring import Ring, order_of
from hypothesis import given
from hypothesis import strategies as st

ORDERS: dict[str, tuple[list[str | None], tuple[int, ...] | None]] = {
    "one alone": (["a"], (0,)),
    "all in one": (["a", "a", "a"], (0, 1, 2)),
    "those that already stand together stay where they are": (["a", "a", "b", "b"], (0, 1, 2, 3)),
    "neighbours by number in different ones": (["a", "b", "a", "b"], (0, 2, 1, 3)),
    "node 0's own comes first, whatever its name": (["z", "a", "z", "a"], (0, 2, 1, 3)),
    "the others by their lowest numbers": (["a", "c", "b", "c", "b", "a"], (0, 5, 1, 3, 2, 4)),
    "one of which it is unknown comes last": (["a", "", "b", "a"], (0, 3, 2, 1)),
    "node 0 is the first even so": (["", "a", "b", "a"], (0, 1, 3, 2)),
    "nothing is known": (["", "", ""], (0, 1, 2)),
    "the supervisor of one knows of no order": (["a", None, "a", "b"], None),
    "nor does any": ([None, None], None),
}


@pytest.mark.parametrize("name", ORDERS)
def test_nodes_of_a_domain_stand_together(name: str) -> None:
    domains, order = ORDERS[name]
    assert order_of(dict(enumerate(domains))) == order


@given(st.lists(st.sampled_from(["a", "b", "c", "d", ""]), min_size=1, max_size=24))
def test_each_node_stands_in_it_once_node_0_first_and_the_ring_crosses_as_rarely_as_it_can(
    domains: list[str],
) -> None:
    order = order_of(dict(enumerate(domains)))
    assert order is not None
    assert sorted(order) == list(range(len(domains)))
    assert order[0] == 0
    if "" not in domains:
        ring = [domains[node] for node in (*order, order[0])]
        crossings = sum(one != other for one, other in pairwise(ring))
        assert crossings == (len(set(domains)) if len(set(domains)) > 1 else 0)


def test_the_ranks_of_a_node_are_those_of_its_place() -> None:
    ring = Ring((0, 2, 1), 2)
    assert not ring.is_plain
    assert [ring.first_rank(node) for node in range(3)] == [0, 4, 2]
    assert [ring.node_of(process) for process in range(6)] == [0, 0, 2, 2, 1, 1]
    assert [ring.in_words(process) for process in (1, 3, 4)] == ["rank 1", "rank 3 (node 2)", "rank 4 (node 1)"]


def test_where_nodes_stand_by_number_a_rank_needs_no_other_name() -> None:
    ring = Ring(range(3), 2)
    assert ring.is_plain
    assert [ring.in_words(process) for process in (0, 3, 4)] == ["rank 0", "rank 3", "rank 4"]
