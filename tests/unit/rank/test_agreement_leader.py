"""Where ranks act that have agreed on it, whatever the order of their messages: without sockets and threads."""

import asyncio
import threading
from collections import deque
from typing import Any

import pytest
from ddpjob_rank.reporting import agreement_rules as rules
from ddpjob_rank.reporting.agreement import Agreement, Wish
from ddpjob_rank.reporting.agreement_leader import Leader, _Counting
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.seed import examples

MESSAGES = ["deliver_up", "deliver_down", "all_up", "all_down"]
CUTS = ["cut", "notice", "connect"]
"""A rank's connection ends with all that is under way; the leader notices; the rank connects again. The leader may
notice only then."""
LONG = ["miss", "doubt"]
"""The leader waits no longer for a lost rank; a rank waits no longer for a decision."""

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([*MESSAGES * 3, *["step"] * 3, "save", "stop", "kill", *CUTS, *LONG]),
        st.integers(0, 11),
    ),
    min_size=30,
    max_size=120,
)
"""What happens, and to which rank. After low numbers, something else happens before the leader has noticed."""


class Gang:
    """Ranks and their leader. What each sends to the other arrives in order, at any later time, unless it is cut."""

    def __init__(self, size: int) -> None:
        self.warnings: list[str] = []
        self.leader = Leader(size, "step()", self.warnings.append, noted={})
        self.ranks = {rank: part(rank, self.warnings) for rank in range(size)}
        self.positions = dict.fromkeys(self.ranks, 0)
        self.acts: dict[int, list[tuple[int, Wish]]] = {rank: [] for rank in self.ranks}
        self.down: dict[int, deque[Any]] = {}
        self.up: dict[int, deque[Any]] = {}
        self.cuts: dict[int, Any] = {}
        """For each rank whose connection is cut, what the leader tells it by."""
        self.left_behind = set[int]()
        """The ranks that others have not waited for, or that have not waited for a decision."""
        for rank in self.ranks:
            self._meet(rank)

    def _meet(self, rank: int) -> None:
        up, down = deque[Any](), deque[Any]()
        self.up[rank], self.down[rank] = up, down
        self.ranks[rank]._connected(lambda word, *numbers: up.append((word, [*numbers])))
        self.leader.join(rank, lambda *message: down.append(message))

    def all_up(self, _: int) -> None:
        for rank in self.ranks:
            self.deliver_up(rank)

    def all_down(self, _: int) -> None:
        for rank in self.ranks:
            self.deliver_down(rank)

    def cut(self, rank: int) -> None:
        if rank not in self.cuts | {0: None}:
            self.cuts[rank] = self.leader._ranks[rank]
            self.up[rank].clear()
            self.down[rank].clear()
            self.ranks[rank]._disconnected()

    def notice(self, rank: int) -> None:
        if rank in self.cuts:
            self.leader.leave(rank, self.cuts[rank], ended=False)

    def connect(self, rank: int) -> None:
        if self.cuts.pop(rank, None):
            self._meet(rank)

    def miss(self, rank: int) -> None:
        if timer := self.leader._lost.get(rank):
            timer.cancel()
            self.leader._miss(rank)
            self.left_behind.add(rank)

    def doubt(self, rank: int) -> None:
        its, position = self.ranks[rank], self.positions[rank] + 1
        for order in [*its._orders.values()]:
            if order.position <= position and not order.decided.is_set():
                its._doubt(order)
                self.left_behind.add(rank)

    def deliver_up(self, rank: int) -> None:
        if self.up[rank] and rank not in self.cuts:
            self.leader.hear(rank, *self.up[rank].popleft())

    def deliver_down(self, rank: int) -> None:
        if self.down[rank] and rank not in self.cuts:
            self.ranks[rank]._hear(*self.down[rank].popleft())

    def save(self, rank: int) -> None:
        self.ranks[rank].wish(Wish.SAVE)

    def stop(self, rank: int) -> None:
        self.ranks[rank].wish(Wish.STOP)

    def step(self, rank: int) -> None:
        """Unless the rank would wait for a decision."""
        its, position = self.ranks[rank], self.positions[rank] + 1
        if all(order.decided.is_set() for order in its._orders.values() if order.position <= position):
            self.positions[rank] = position
            if acts := its.reached(position):
                self.acts[rank].append((position, acts))

    def kill(self, rank: int) -> None:
        if rank and rank not in self.cuts and len(self.ranks) > 2:
            self.leader.leave(rank, self.leader._ranks[rank], ended=True)
            del self.ranks[rank]


def part(rank: int, warnings: list[str]) -> Agreement:
    """A rank's part, as one has it that has connected."""
    agreement = Agreement(None, "", hosts=[], rank=0, size=1, warn=warnings.append)
    agreement._rank, agreement._apart = rank, False
    agreement._post = lambda callback: callback()  # type: ignore[method-assign,assignment,return-value]
    return agreement


async def play(gang: Gang, actions: list[tuple[str, int]]) -> None:
    leading = asyncio.ensure_future(gang.leader.lead())
    for action, number in actions:
        rank = number % len(gang.acts)
        if rank in gang.ranks:
            getattr(gang, action)(rank)
            if number > max(gang.acts):
                await settled()
    for rank in gang.ranks:
        gang.connect(rank)
    while any(gang.up[rank] or gang.down[rank] or its._orders or its._own() for rank, its in gang.ranks.items()):
        for rank in gang.ranks:
            gang.deliver_up(rank)
            await settled()
            gang.deliver_down(rank)
            gang.step(rank)
    last = max(gang.positions[rank] for rank in gang.ranks)
    for rank in gang.ranks:
        while gang.positions[rank] < last:
            gang.step(rank)
    leading.cancel()


async def settled() -> None:
    """Until the leader has taken what it has heard."""
    for _ in range(4):
        await asyncio.sleep(0)


ANSWERED = [(what, 3) for what in ("all_down", "save", "all_up", "all_down", "all_up", "all_down")]
"""All of three ranks have answered an order; the answers are under way."""


@given(size=st.integers(2, 4), actions=ACTIONS)
@example(
    size=3, actions=[*ANSWERED, ("deliver_up", 3), ("deliver_up", 4), ("deliver_up", 2), ("cut", 1), ("connect", 4)]
)
@example(size=3, actions=[*ANSWERED, ("all_up", 3), ("cut", 4), ("notice", 4), ("connect", 4)])
@example(
    size=3,
    actions=[("cut", 5), ("notice", 5), ("miss", 5), ("save", 3), *[(way, 3) for way in ("all_up", "all_down") * 4]]
    + [("step", number) for number in (0, 1, 2, 0, 1, 2)],
)
@example(
    size=3,
    actions=[*ANSWERED, ("all_up", 3), ("cut", 4), ("doubt", 4), *[("step", number) for number in (0, 1, 2, 1)]],
)
@examples(0.5)
def test_either_all_ranks_act_at_a_position_or_none_or_a_rank_that_is_cut_off_for_long_says_so(
    size: int, actions: list[tuple[str, int]]
) -> None:
    gang = Gang(size)
    asyncio.run(play(gang, actions))
    expected = max((gang.acts[rank] for rank in gang.ranks.keys() - gang.left_behind), key=len, default=[])
    together = {rank for rank in gang.acts if gang.acts[rank] == expected}
    killed = {rank for rank in gang.acts.keys() - gang.ranks if gang.acts[rank] == expected[: len(gang.acts[rank])]}
    apart = gang.acts.keys() - together - killed
    assert apart <= gang.left_behind
    assert all(any(f"rank {rank} " in warning for warning in gang.warnings) for rank in apart), gang.warnings
    assert gang.left_behind or not gang.warnings


def test_a_stop_that_comes_while_a_save_waits_for_a_rank_has_its_whole_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(rules.PATIENCE_SECONDS, Wish.STOP, 0.2)

    async def stop_late() -> Gang:
        gang = Gang(2)
        leading = asyncio.ensure_future(gang.leader.lead())
        gang.save(0)
        gang.deliver_up(0)
        await asyncio.sleep(0.3)
        gang.stop(0)
        gang.deliver_up(0)
        await asyncio.sleep(0.05)
        while not all(gang.acts.values()) and not gang.warnings:
            for rank in gang.ranks:
                gang.deliver_up(rank)
                gang.deliver_down(rank)
                await settled()
                gang.step(rank)
        leading.cancel()
        return gang

    gang = asyncio.run(stop_late())
    assert (gang.warnings, [acts[0][1] for acts in gang.acts.values()]) == ([], [Wish.STOP, Wish.STOP])


def test_a_rank_that_is_cut_off_until_no_patience_is_left_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.PATIENCE_SECONDS, Wish.STOP, 0.05)

    async def cut_off() -> Gang:
        gang = Gang(3)
        gang.cut(2)
        gang.notice(2)
        gang.stop(0)
        gang.all_up(0)
        await asyncio.wait_for(gang.leader.lead(), 20)
        return gang

    (warning,) = asyncio.run(cut_off()).warnings
    assert warning.startswith("rank 2 did not answer")


@pytest.mark.parametrize(("heard", "acts"), [(True, Wish.SAVE), (False, Wish.NOTHING)])
def test_a_rank_waits_for_a_decision_until_its_patience_is_over_and_then_says_so(
    monkeypatch: pytest.MonkeyPatch, *, heard: bool, acts: Wish
) -> None:
    monkeypatch.setattr(rules, "COUNTS_SECONDS", 0.01)
    monkeypatch.setitem(rules.PATIENCE_SECONDS, Wish.SAVE, 20 if heard else 0.01)
    warnings: list[str] = []
    rank = part(2, warnings)
    rank._tell = lambda *_: None
    rank._hear("order", 1, 5, Wish.SAVE)
    decides = threading.Timer(0.2, rank._hear, ["counts", 1, 5, Wish.SAVE])
    if heard:
        decides.start()
    assert rank.reached(5) is acts
    assert [warning.partition(" to hear")[0] for warning in warnings] == ([] if heard else ["rank 2 has waited 0 s"])


def test_a_rank_that_acts_less_often_is_named_once_however_many_others_have_acted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "MISMATCH_SECONDS", 0.0)
    warnings, failures = list[str](), list[Any]()

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        leader = Leader(4, "step()", warnings.append, noted={})
        for rank in range(4):
            leader.join(rank, lambda *_: None)
        leader._counting[7] = _Counting(20, Wish.SAVE)
        for rank in (0, 3, 1):
            leader.hear(rank, "acted", [7])
        while not leader._heard.empty():
            await leader._take()
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(scene())
    assert failures == []
    assert len(warnings) == 1
    assert "rank 2" in warnings[0]
