"""How ranks agree over real connections: ranks are threads here, or processes where one ends."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import count, product
from typing import Any, TypeVar
from unittest.mock import DEFAULT, Mock, patch

import pytest
from ddpjob_rank.reporting import agreement, agreement_rules, agreement_server, agreement_wire
from ddpjob_rank.reporting.agreement import Agreement, Wish
from ddpjob_rank.reporting.agreement_leader import Leader

from tests.support.waiting import patience, wait_for

T = TypeVar("T")
SOON = 20.0
STRANGERS = {
    "silent": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: rank-0\r\n\r\n",
    "binary": bytes(range(256)) * 40,
    "a guess": f"{'0' * 32} 1".encode().ljust(agreement_wire.GREETING_BYTES) + b"wish 2\n",
    "a guess of another length": b"x 1".ljust(agreement_wire.GREETING_BYTES),
}


NONSENSE = [b"wish x\n", b"\xff\n", b"w" * 10_000, b"\n", b"wish 9\nanswer 1\nacted 1 9\nwish\nanswer\n"]


class Store:
    """One of torch.distributed's, as far as it is used."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class Gang:
    """Ranks, each of which takes a step when it is told to."""

    def __init__(self, size: int, *, present: int | None = None) -> None:
        self.store, self.warnings, self.size = Store(), list[str](), size
        self.ranks = [self.rank(rank) for rank in range(size if present is None else present)]
        self.position = 0

    def rank(self, rank: int) -> Agreement:
        return Agreement(
            self.store,
            "key",
            hosts=["localhost"],
            rank=rank,
            size=self.size,
            warn=self.warnings.append,
            function="f()",
        )

    def step(self) -> set[Wish]:
        """What the ranks do at the next position, which they reach beside each other."""
        self.position += 1
        return set(beside([lambda rank=rank: rank.reached(self.position) for rank in self.ranks]))

    def until_all(self, wish: Wish) -> None:
        """Steps are taken until all ranks act together."""

        def acted() -> bool:
            acts = self.step()
            assert len(acts) == 1, acts
            return acts == {wish}

        wait_for(f"{wish.name}", acted, SOON, story=lambda: self.warnings)

    def until_connected(self) -> None:
        wait_for("connections", lambda: all(rank._tell for rank in self.ranks), SOON)

    def until_ordered(self) -> None:
        """Until all ranks have an order that counts."""

        def ordered() -> bool:
            return all(any(order.counts for order in rank._orders.values()) for rank in self.ranks)

        wait_for("the order", ordered, SOON)

    def until_warned(self, words: str) -> None:
        wait_for(
            f"a warning: {words}",
            lambda: any(words in warning for warning in self.warnings),
            SOON,
            story=self.warnings.copy,
        )

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()


def beside(calls: list[Callable[[], T]]) -> list[T]:
    """Calls all functions at once, and returns their results."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(patience(SOON)) for future in [pool.submit(call) for call in calls]]


@pytest.fixture
def gang() -> Iterator[Callable[..., Gang]]:
    """Makes gangs, which take no part any more after the test."""
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(closing(Gang(*args, **options)))
    assert [thread for thread in threading.enumerate() if thread.name == "agreement"] == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a minute takes less than a second."""
    for name, seconds in {"MISMATCH_SECONDS": 0.5, "ORDER_SECONDS": 0.2, "SILENT_LEADER_SECONDS": 0.5}.items():
        monkeypatch.setattr(agreement_rules, name, seconds)
    for wish in agreement_rules.PATIENCE_SECONDS:
        monkeypatch.setitem(agreement_rules.PATIENCE_SECONDS, wish, 0.5)


class Line:
    """A line to rank 0 that can be cut. It is a port that passes on what arrives there."""

    def __init__(self, made: Gang, messages: Callable[[], int]) -> None:
        """`messages` returns after how many messages, in both directions, a connection is cut."""
        self.whole, self._messages, self._connections = True, messages, set[socket.socket]()
        self._listener = socket.create_server(("localhost", 0))
        place = json.loads(made.store.values["key"])
        self._behind = place["port"]
        made.store.values["key"] = json.dumps({**place, "port": self._listener.getsockname()[1]})
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        for connection in self._connections.copy():
            agreement_wire.end(connection)

    def close(self) -> None:
        agreement_wire.end(self._listener)
        self.cut()

    def _serve(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("localhost", self._behind))
                left = iter(range(self._messages() if self.whole else 0))
                for ends in ((near, far), (far, near)):
                    self._connections.add(ends[0])
                    threading.Thread(target=self._pass_on, args=(*ends, left), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, left: Iterator[int]) -> None:
        with source, suppress(OSError):
            while (part := source.recv(agreement_wire.GREETING_BYTES)) and next(left, None) is not None:
                sink.sendall(part)
            agreement_wire.end(sink)
            agreement_wire.end(source)
        self._connections.discard(source)


def free_running(rank: Agreement, seconds: Callable[[], float]) -> tuple[int, Wish]:
    """The position at which a rank acts that takes steps at its own pace, and how."""
    for position in count(1):
        time.sleep(seconds())
        if acts := rank.reached(position):
            return position, acts
    raise AssertionError


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("step_seconds", [0.0, 0.003], ids=["busy", "steps of 3 ms"])
def test_all_ranks_act_at_the_same_position_at_any_pace(
    size: int, step_seconds: float, gang: Callable[..., Gang]
) -> None:
    made = gang(size)
    made.until_connected()
    wisher, wish = random.choice(made.ranks), random.choice([Wish.SAVE, Wish.STOP])
    threading.Timer(random.random() / 20, wisher.wish, [wish]).start()
    acts = beside([partial(free_running, rank, lambda: step_seconds * random.random()) for rank in made.ranks])
    assert len(set(acts)) == 1
    assert acts[0][1] == wish


def test_ranks_with_long_steps_act_at_the_next_one(gang: Callable[..., Gang]) -> None:
    made = gang(3)
    made.until_connected()
    assert made.step() == {Wish.NOTHING}
    made.ranks[2].wish(Wish.SAVE)
    made.until_ordered()
    assert made.step() == {Wish.SAVE}
    assert made.step() == {Wish.NOTHING}


@pytest.mark.parametrize("size", [1, 3])
def test_rank_0_knows_the_last_number_that_each_rank_has_noted(size: int, gang: Callable[..., Gang]) -> None:
    made = gang(size)
    if size > 1:
        made.until_connected()
    numbers = [[random.randrange(1, 2**53) for _ in range(2)] for _ in made.ranks]
    for rank, mine in zip(made.ranks, numbers, strict=True):
        for number in mine:
            rank.note(number)
    last = {rank: mine[-1] for rank, mine in enumerate(numbers)}
    wait_for("the numbers", lambda: made.ranks[0].noted == last, SOON, story=lambda: made.ranks[0].noted)
    assert made.step() == {Wish.NOTHING}


def test_a_wish_can_be_granted_again_and_the_greatest_counts(gang: Callable[..., Gang]) -> None:
    made = gang(3)
    for _ in range(3):
        made.ranks[1].wish(Wish.SAVE)
        made.until_all(Wish.SAVE)
    for rank, wish in zip(made.ranks, (Wish.SAVE, Wish.STOP, Wish.NOTHING), strict=True):
        rank.wish(wish)
    made.until_all(Wish.STOP)
    assert made.warnings == []


def test_a_signal_handler_may_wish_whatever_it_interrupts(gang: Callable[..., Gang]) -> None:
    made = gang(2)
    made.until_connected()
    acts: list[list[int]] = [[], []]
    positions = [0, 0]
    done = threading.Event()

    def steps(rank: int) -> Iterator[int]:
        for step in count(1):
            if made.ranks[rank].reached(step):
                acts[rank].append(step)
            positions[rank] = step
            while step > positions[1 - rank] + 100 and not done.is_set():
                time.sleep(0.0001)  # A thread that ran ahead would leave no turns to the others of this process.
            yield step

    def go_along() -> None:
        """As far as the other, at least."""
        for step in steps(1):
            if done.is_set() and step > acts[0][-1]:
                return

    former = signal.signal(signal.SIGALRM, lambda *_: made.ranks[0].wish(Wish.SAVE))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(go_along)
            next(step for step in steps(0) if len(acts[0]) == 20)
            done.set()
            other.result(patience(SOON))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert acts[1][:20] == acts[0]


def test_a_rank_that_skips_positions_acts_at_the_first_after_the_order(gang: Callable[..., Gang]) -> None:
    made = gang(2)
    made.until_connected()
    assert [rank.reached(7) for rank in made.ranks] == [Wish.NOTHING] * 2
    made.ranks[0].wish(Wish.STOP)
    made.until_ordered()
    assert [made.ranks[0].reached(8), made.ranks[1].reached(1 << 40)] == [Wish.STOP] * 2


def test_a_wish_from_before_the_ranks_have_met_is_granted(gang: Callable[..., Gang]) -> None:
    made = gang(3, present=2)
    made.ranks[1].wish(Wish.STOP)
    made.ranks.append(made.rank(2))
    made.until_all(Wish.STOP)


def test_a_rank_that_has_ended_is_not_waited_for(gang: Callable[..., Gang]) -> None:
    made = gang(3)
    made.until_connected()
    made.ranks.pop(1).close()
    made.ranks[1].wish(Wish.STOP)
    made.until_all(Wish.STOP)
    assert made.warnings == []


@pytest.mark.usefixtures("quick")
def test_a_rank_that_never_calls_is_named_and_each_of_the_others_stops_by_itself(gang: Callable[..., Gang]) -> None:
    made = gang(4, present=2)
    made.until_warned("ranks 2, 3 have not called f() in the")
    made.ranks[1].wish(Wish.STOP)
    made.until_warned("ranks 2, 3 never called f(), so the ranks cannot stop")
    wait_for("the end of the wait", lambda: made.ranks[1].reached(1) is Wish.STOP)
    assert made.ranks[0].reached(1) is Wish.NOTHING
    late = made.rank(2)
    late.wish(Wish.STOP)
    wait_for("a rank that comes too late", lambda: late.reached(1) is Wish.STOP)
    late.close()


@pytest.mark.usefixtures("quick")
def test_if_rank_0_never_calls_the_others_say_so_and_stop_by_themselves(gang: Callable[..., Gang]) -> None:
    made = gang(2, present=0)
    made.ranks = [made.rank(1)]
    made.ranks[0].wish(Wish.STOP)
    wait_for("the end of the wait", lambda: made.ranks[0].reached(1) is Wish.STOP, SOON)
    made.until_warned("rank 0 has not called f() in")
    made.until_warned("rank 0 never called f(), so the ranks cannot stop")


@pytest.mark.usefixtures("quick")
def test_a_rank_that_does_not_answer_is_named_and_a_save_is_tried_again(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = gang(3)
    made.until_connected()
    held, goes_on = threading.Event(), threading.Event()
    made.ranks[2]._post(lambda: (held.set(), goes_on.wait(patience(SOON))))
    held.wait(SOON)
    made.ranks[1].wish(Wish.SAVE)
    made.until_warned("rank 2 did not answer, so the ranks cannot save now")
    goes_on.set()
    monkeypatch.setitem(agreement_rules.PATIENCE_SECONDS, Wish.SAVE, SOON)
    made.step()
    made.ranks[1].wish(Wish.SAVE)
    made.until_all(Wish.SAVE)


@pytest.mark.usefixtures("quick")
def test_ranks_that_call_a_different_number_of_times_are_named(gang: Callable[..., Gang]) -> None:
    made = gang(3)
    made.until_connected()
    made.ranks[0].wish(Wish.STOP)
    made.until_ordered()
    assert [rank.reached(1) for rank in made.ranks[:2]] == [Wish.STOP] * 2
    made.until_warned("rank 2 has not come as far as the others, which stopped")
    assert made.ranks[2].reached(1) is Wish.STOP, "an order that counts is kept"


def test_a_forked_child_goes_on_though_the_thread_held_the_lock_when_it_was_forked() -> None:
    rank = Agreement(None, "", hosts=[], rank=0, size=1, warn=pytest.fail)
    rank._lock.acquire()
    threading.Thread(target=rank.forget, daemon=True).start()
    wait_for("its parting", lambda: rank._apart and not rank._lock.locked(), 5)
    rank.wish(Wish.STOP)
    assert rank.reached(1) is Wish.STOP


@pytest.mark.parametrize("ordered", [True, False])
def test_once_rank_0_has_ended_each_rank_follows_its_own_wish_and_what_counts(
    gang: Callable[..., Gang], *, ordered: bool
) -> None:
    made = gang(3)
    made.until_connected()
    if ordered:
        made.ranks[0].wish(Wish.SAVE)
        made.until_ordered()
    made.ranks.pop(0).close()
    wait_for("its end", lambda: all(rank._apart for rank in made.ranks))
    made.ranks[0].wish(Wish.STOP)
    assert made.ranks[0].reached(1) is Wish.STOP
    assert made.ranks[1].reached(1) is (Wish.SAVE if ordered else Wish.NOTHING)
    assert made.ranks[1].reached(2) is Wish.NOTHING


def test_a_rank_connects_again_and_either_all_ranks_act_or_none_wherever_a_connection_is_cut(
    gang: Callable[..., Gang],
) -> None:
    made = gang(4, present=1)
    with closing(Line(made, messages=lambda: random.randrange(2, 30))):
        made.ranks += [made.rank(rank) for rank in range(1, 4)]
        for _ in range(8):
            random.choice(made.ranks).wish(wish := random.choice([Wish.SAVE, Wish.STOP]))
            made.until_all(wish)
    assert made.warnings == []


@pytest.mark.usefixtures("quick")
def test_a_rank_that_cannot_reach_rank_0_for_long_stops_by_itself_until_it_is_connected_again(
    gang: Callable[..., Gang],
) -> None:
    made = gang(2, present=1)
    with closing(Line(made, messages=lambda: 1000)) as line:
        made.ranks.append(other := made.rank(1))
        made.until_connected()
        line.whole = False
        line.cut()
        other.wish(Wish.STOP)
        wait_for("the end of the wait", lambda: other.reached(1) is Wish.STOP, SOON)
        assert made.ranks[0].reached(1) is Wish.NOTHING
        made.until_warned("rank 0 did not answer, so the ranks cannot stop after the same step")
        made.until_warned("rank 1 cannot connect: ")
        line.whole = True
        made.until_connected()
        assert made.step() == {Wish.NOTHING}
        other.wish(Wish.SAVE)
        made.until_all(Wish.SAVE)


def test_contents_arrive_although_the_connection_is_cut(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "LONGEST_PAUSE_SECONDS", 0.05)
    made = gang(2, present=1)
    with closing(Line(made, messages=lambda: 1000)) as line:
        made.ranks.append(made.rank(1))
        made.until_connected()
        line.whole = False
        line.cut()
        for rank in made.ranks:
            rank.send("state", bytes(1 << 20))
        with pytest.raises(agreement_server.NotSentError, match="rank 1 has sent nothing") as told:
            made.ranks[0].gathered("state", 0.2)
        assert not told.value.final
        line.whole, line._messages = True, lambda: 1 << 20
        assert len(made.ranks[0].gathered("state", patience(SOON))) == 2


def test_a_rank_whose_connections_rank_0_refuses_follows_its_own_wishes(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the death of rank 0, which then cannot say that it ends."""
    monkeypatch.setattr(Leader, "end", lambda _: None)
    made = gang(2)
    made.until_connected()
    made.ranks.pop(0).close()
    made.ranks[0].wish(Wish.STOP)
    wait_for("its end", lambda: made.ranks[0].reached(1) is Wish.STOP, 5)


@pytest.mark.parametrize("size", [1, 3])
def test_rank_0_gathers_what_the_ranks_send(size: int, gang: Callable[..., Gang]) -> None:
    made = gang(size)
    contents = [random.randbytes(random.choice([0, 1, 1 << 22])) for _ in range(size)]
    for name in ("one", "another"):
        for rank, content in zip(made.ranks, contents, strict=True):
            rank.send(name, content)
    for name in ("one", "another"):
        assert made.ranks[0].gathered(name, patience(SOON)) == dict(enumerate(contents))


def test_a_rank_that_is_far_ahead_is_waited_for_with_what_it_has_sent(gang: Callable[..., Gang]) -> None:
    made = gang(2)
    names = [f"save-{number}" for number in range(120)]
    for name in names:
        made.ranks[1].send(name, name.encode())
    for name in sorted({*random.sample(names, 5), names[-1]}, key=names.index):
        made.ranks[0].send(name, b"own")
    for name in [name for name in names if name in made.ranks[0]._sent._contents[0]]:  # type: ignore[union-attr]
        assert made.ranks[0].gathered(name, patience(SOON)) == {0: b"own", 1: name.encode()}
    assert made.ranks[0]._sent._contents == [{}, {}], "what is older than a gathered content"  # type: ignore[union-attr]


def test_rank_0_finds_out_how_far_the_others_are(gang: Callable[..., Gang]) -> None:
    made = gang(3)
    made.until_connected()
    for number, rank in enumerate(made.ranks):
        rank.steps = 5 + number
        rank.reached(10 * number)
    assert made.ranks[0].survey(patience(SOON)) == {0: (0, 5), 1: (10, 6), 2: (20, 7)}
    made.ranks[1].wish(Wish.SAVE)
    made.ranks[2].close()
    wait_for("its end", lambda: made.ranks[0].survey(patience(SOON)).keys() == {0, 1})


def test_without_an_answer_nothing_is_known(gang: Callable[..., Gang]) -> None:
    made = gang(2)
    made.until_connected()
    made.ranks[1]._tell = lambda *_: None
    assert made.ranks[0].survey(patience(SOON)) == {0: (-1, 0)}
    made.ranks[0].close()
    assert made.ranks[0].survey(0.05) == {}


def test_nobody_waits_for_the_contents_of_a_rank_that_has_ended(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement_rules, "RETURN_SECONDS", 0.1)
    made = gang(3)
    made.until_connected()
    for rank in (0, 1):
        made.ranks[rank].send("state", b"content")
    made.ranks[1].close()
    wait_for("its content", lambda: "state" in made.ranks[0]._sent._contents[1])  # type: ignore[union-attr]
    with pytest.raises(TimeoutError, match=r"^rank 2 has sent nothing$"):
        made.ranks[0].gathered("state", 0.5)
    made.ranks[2].close()
    wait_for("its end", lambda: 2 in made.ranks[0]._sent._left)  # type: ignore[union-attr]
    with pytest.raises(agreement_server.NotSentError, match=r"^rank 2 has ended, and sent nothing$") as told:
        made.ranks[0].gathered("state", 0.5)
    assert told.value.final


def test_a_content_that_is_arriving_is_told_from_one_that_is_not(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, content = gang(2), random.randbytes(1000)
    made.until_connected()
    made.ranks[0].send("state", b"")
    sent, place = made.ranks[0]._sent, json.loads(next(iter(made.store.values.values())))
    assert sent
    with socket.create_connection(("127.0.0.1", place["port"])) as sender:
        sender.sendall(f"{place['token']} 1 state 1000".encode().ljust(agreement_wire.GREETING_BYTES) + content[:10])
        wait_for("its first bytes", lambda: 1 in sent._arriving)
        for seconds in (patience(SOON), 0.0):
            monkeypatch.setattr(agreement_rules, "ARRIVING_SECONDS", seconds)
            with pytest.raises(agreement_server.NotSentError, match=r"^rank 1 has sent nothing$") as told:
                made.ranks[0].gathered("state", 0.0)
            assert told.value.arriving == (seconds > 0)
        sender.sendall(content[10:])
        assert made.ranks[0].gathered("state", patience(SOON)) == {0: b"", 1: content}
    assert not sent._arriving


def test_bytes_that_do_not_arrive_are_sent_again(gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LONGEST_PAUSE_SECONDS", 0.05)
    made = gang(2)
    made.until_connected()
    losing = Mock(side_effect=[ConnectionError("lost")] * 2 + [DEFAULT] * 9, wraps=agreement_wire.connected)
    monkeypatch.setattr(agreement_wire, "connected", losing)
    for rank in made.ranks:
        rank.send("state", b"content")
    assert len(made.ranks[0].gathered("state", patience(SOON))) == 2


def test_who_has_sent_nothing_is_named_and_contents_that_nobody_gathers_are_dropped(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement_rules, "KEPT_BYTES", 0)
    made = gang(3)
    for rank, name in product(range(2), "abcde"):
        made.ranks[0]._sent.put(rank, [name], b"content " + name.encode())  # type: ignore[union-attr]
    with pytest.raises(TimeoutError, match=r"^rank 2 has sent nothing$"):
        made.ranks[0].gathered("e", 0.05)
    far = r"^ranks 0, 1 have come too far ahead of rank 0, which could not keep all states$"
    with pytest.raises(agreement_server.NotSentError, match=far) as told:
        made.ranks[0].gathered("a", 0.05)
    assert told.value.final


@pytest.mark.parametrize("size", [1, 2])
def test_a_content_with_two_names_is_sent_and_kept_once(
    size: int, gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = gang(size)
    sending = Mock(side_effect=agreement_wire.content)
    monkeypatch.setattr(agreement_wire, "content", sending)
    for rank in made.ranks:
        rank.send("agreed-1", b"content", "at-5")
    names = ["agreed-1", "at-5"]
    random.shuffle(names)
    name = names.pop()
    assert made.ranks[0].gathered(name, patience(SOON)) == dict.fromkeys(range(size), b"content")
    arrived = [args for args, _ in sending.call_args_list if args[1] == len(b"content")]
    assert len(arrived) == size - 1


def test_rank_0_keeps_as_many_bytes_as_it_may_and_the_content_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement_rules, "KEPT_BYTES", 20)
    sent = agreement_server.SentContents(2)

    def kept() -> list[str]:
        return [*sent._contents[1]]

    for number in range(5):
        sent.put(1, [f"small-{number}", f"also-{number}"], bytes([number] * 4))
    assert kept() == ["small-3", "also-3", "small-4", "also-4"], "10 bytes of each rank"
    sent.put(1, ["large-1"], bytes(30))
    assert kept() == ["large-1"]
    with pytest.raises(agreement_server.NotSentError, match="rank 0 has sent nothing"):
        sent.gathered("large-1", 0)
    for number in (2, 3):
        sent.put(1, [f"large-{number}"], bytes([number] * 30))
    assert kept() == ["large-1", "large-3"], "what is awaited, and the newest"
    sent.put(1, ["small-5"], b"5")
    with pytest.raises(agreement_server.NotSentError):
        sent.gathered("small-5", 0)
    assert kept() == ["small-5"], "nobody gathers what is older"


def test_a_rank_keeps_the_newest_content_that_it_could_not_send(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement_rules, "KEPT_BYTES", 20)
    made = gang(2, present=0)
    made.ranks = [made.rank(1)]
    for number in range(4):
        made.ranks[0].send(f"small-{number}", bytes(4))
    assert [names for names, _ in made.ranks[0]._unsent] == ["small-2", "small-3"]
    made.ranks[0].send("large", bytes(30))
    assert [names for names, _ in made.ranks[0]._unsent] == ["large"]
    made.ranks[0]._unsent.clear()


def test_what_cannot_be_sent_is_refused(gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch) -> None:
    made = gang(1)
    monkeypatch.setattr(agreement_rules, "CONTENT_BYTES", 3)
    wrong = [
        ("a b", b""),
        ("", b""),
        ("a" * 200, b""),
        ("a", b"four"),
        ("a", b"", "b c"),
        ("a" * 100, b"", "b" * 100),
    ]
    for name, content, *others in wrong:
        with pytest.raises(ValueError, match="cannot be sent"):
            made.ranks[0].send(name, content, *others)


def test_in_a_world_of_one_a_wish_is_granted_at_once(gang: Callable[..., Gang]) -> None:
    made = gang(1)
    assert made.step() == {Wish.NOTHING}
    made.ranks[0].wish(Wish.SAVE)
    assert [made.step(), made.step()] == [{Wish.SAVE}, {Wish.NOTHING}]


@pytest.mark.parametrize("words", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_at_the_port_harms_nothing(words: bytes, gang: Callable[..., Gang]) -> None:
    made = gang(2, present=1)
    port = json.loads(made.store.values["key"])["port"]
    with closing(socket.create_connection(("localhost", port))) as stranger:
        stranger.sendall(words)
        made.ranks.append(made.rank(1))
        made.ranks[0].wish(Wish.STOP)
        made.until_all(Wish.STOP)
        if len(words) >= agreement_wire.GREETING_BYTES:
            stranger.settimeout(patience(SOON))
            with suppress(ConnectionResetError):  # What was sent after the greeting is not read.
                assert stranger.recv(1) == b"", "it is dismissed without an answer"


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        (b"wish 1\nsave 2 3\n", [("wish", [1]), ("save", [2, 3])]),
        (b"end\nhalf", [("end", [])]),
        (b"a" * agreement_wire.LINE_BYTES, []),
        (b"a" * (agreement_wire.LINE_BYTES + 1), ValueError("a line without an end")),
        (b"wish one\n", ValueError("invalid literal for int")),
    ],
)
def test_messages_are_lines_of_a_word_and_numbers_and_have_an_end(sent: bytes, heard: Any) -> None:
    async def all_heard() -> list[Any]:
        mine, other = socket.socketpair()
        mine.setblocking(False)
        with mine, other:
            other.sendall(sent)
            other.shutdown(socket.SHUT_WR)
            return [message async for message in agreement_wire.messages(mine)]

    if isinstance(heard, ValueError):
        with pytest.raises(ValueError, match=str(heard)):
            asyncio.run(all_heard())
    else:
        assert asyncio.run(all_heard()) == heard


def test_who_does_not_read_loses_its_connection_and_keeps_nobody_waiting() -> None:
    mine, other = socket.socketpair()
    with mine, other:
        mine.setblocking(False)
        agreement_wire.tell(mine, "save", 7, 8)
        assert other.recv(100) == b"save 7 8\n"
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(10_000):
            agreement_wire.tell(mine, "save", 7, 8)
        with pytest.raises(BrokenPipeError):
            mine.send(b"x", socket.MSG_NOSIGNAL)
        agreement_wire.end(mine)
    agreement_wire.tell(mine, "save")  # It is closed.


def test_a_rank_that_says_nonsense_loses_its_connection_only(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement_rules, "RETURN_SECONDS", 0.1)
    made = gang(3, present=2)
    place = json.loads(made.store.values["key"])
    with closing(socket.create_connection(("localhost", place["port"]))) as broken:
        greeting = f"{place['token']} 2".encode().ljust(agreement_wire.GREETING_BYTES)
        broken.sendall(greeting + random.choice(NONSENSE))
        broken.shutdown(socket.SHUT_WR)
        made.ranks[1].wish(Wish.STOP)
        made.until_all(Wish.STOP)


def test_hosts_that_lead_elsewhere_are_passed_over(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such name; nobody listens; another program does; nor is this machine reached by its IPv6 address."""
    monkeypatch.setattr(agreement_wire, "CONNECT_SECONDS", 0.2)
    made = gang(2, present=0)
    zero = Agreement(made.store, "key", hosts=["127.0.0.1"], rank=0, size=2, warn=print, address="127.0.0.1")
    port = json.loads(made.store.values["key"])["port"]
    with closing(socket.create_server(("127.0.0.2", port))):
        hosts = ["no.such.name.invalid", "127.0.0.3", "127.0.0.2", "::1"]
        made.ranks = [zero, Agreement(made.store, "key", hosts=hosts, rank=1, size=2, warn=print)]
        made.until_connected()


@pytest.mark.usefixtures("quick")
def test_a_rank_that_cannot_reach_rank_0_says_where_it_tried(gang: Callable[..., Gang]) -> None:
    made = gang(2, present=0)
    with closing(socket.create_server(("localhost", 0))) as taken:
        port = taken.getsockname()[1]
    made.store.set("key", json.dumps({"port": port, "hosts": ["127.0.0.1", "::1"], "token": "any"}))
    made.ranks = [made.rank(1)]
    made.until_warned(f"rank 0 answers at none of localhost, 127.0.0.1, ::1, port {port}")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_rank_0_is_reached_by_ipv6_and_by_ipv4(gang: Callable[..., Gang]) -> None:
    made = gang(3, present=1)
    for rank, host in enumerate(["127.0.0.1", "::1"], 1):
        made.ranks.append(Agreement(made.store, "key", hosts=[host], rank=rank, size=3, warn=print))
    made.ranks[2].wish(Wish.STOP)
    made.until_all(Wish.STOP)


IN_A_CHILD = "if not os.fork(): part.wish(Wish.STOP), sys.exit(part.reached(1) - Wish.STOP)\nassert os.wait()[1] == 0"
ENDS = {
    "before rank 0 has called": ("{}", "part.wish(Wish.STOP)"),
    "while connected": (None, "connected()"),
    "in a forked child too": (None, f"connected()\n{IN_A_CHILD}"),
    "with bytes to send": (None, "part.send('state', bytes(1 << 26))"),
    "after rank 0": (
        None,
        (
            "connected()\nprint('up', flush=True)\nsys.stdin.read()\nwhile not part._apart: time.sleep(0.01)\n"
            "part.wish(Wish.SAVE)\nassert part.reached(1)"
        ),
    ),
}
PROCESS = """
import json, os, sys, time
from types import SimpleNamespace
from ddpjob_rank.reporting.agreement import Agreement, Wish
values = json.loads(sys.argv[1])
store = SimpleNamespace(check=lambda keys: keys[0] in values, get=lambda key: values[key].encode())
part = Agreement(store, "key", hosts=["localhost"], rank=1, size=2, warn=print)
def connected():
    while not part._tell: time.sleep(0.01)
"""


def process(made: Gang, end: str) -> subprocess.Popen[str]:
    """Rank 1 of two."""
    values, code = ENDS[end]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROCESS + code, values or json.dumps(made.store.values)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_without_a_word_or_a_wait(end: str, gang: Callable[..., Gang]) -> None:
    made = gang(2, present=1)
    with process(made, end) as rank:
        if end == "after rank 0":
            assert rank.stdout is not None
            assert rank.stdout.readline() == "up\n"
            made.ranks.pop().close()
        assert (rank.communicate(timeout=patience(SOON))[0], rank.returncode) == ("", 0)
    if end == "with bytes to send":
        made.ranks[0].send("state", b"own")
        assert [len(content) for content in made.ranks[0].gathered("state", patience(SOON)).values()] == [3, 1 << 26]


def test_a_rank_that_is_killed_has_ended_although_its_forked_child_lives_on(
    gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement_rules, "RETURN_SECONDS", 0.1)
    made = gang(2, present=1)
    code = "connected()\nif os.fork() == 0: print(os.getpid(), flush=True)\ntime.sleep(100)"
    with patch.dict(ENDS, {"killed": (None, code)}), process(made, "killed") as rank:
        assert rank.stdout is not None
        child = int(rank.stdout.readline())
        made.ranks[0].reached(1)
        rank.kill()
        rank.wait(SOON)
        made.ranks[0].wish(Wish.STOP)
        made.until_all(Wish.STOP)
        os.kill(child, signal.SIGKILL)
    assert made.warnings == []
