"""Lets all ranks of a process group act after the same step, such as stop or save, without a collective.

    rank --wish--> leader --ask--> ranks --answer--> leader --order--> ranks --answer--> leader --decide--> ranks

In each step, each rank notes which position it has reached. A rank that wishes all ranks to act tells the leader,
which runs in a thread of rank 0. The leader asks all ranks for their positions, and orders them to act at a position
that none of them has reached. A rank confirms the order, unless it has reached that position meanwhile. If all ranks
confirm, the order counts. Otherwise the leader orders a later position. A rank that reaches the position before the
leader has decided waits for the decision, so that either all ranks act or none does.

A rank that loses its connection connects again. What it had not confirmed by then does not count. If it has missed a
decision, the leader repeats which orders count. Neither waits forever: if the connection is lost for too long, the
rank may act later than the others, and says so.

A thread of each rank answers over TCP. So a step costs the thread that trains almost nothing, and this thread waits
only at the position where all ranks act, if at all. The store with which the ranks formed their group tells them only
the leader's address.
"""

import asyncio
import atexit
import json
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

from ddpjob_rank.pauses import longer_pauses

from . import agreement_rules as rules
from . import agreement_wire as wire
from .agreement_leader import Leader, Survey, Tell
from .agreement_rules import Wish
from .agreement_server import SentContents, new_token, serve
from .agreement_warnings import called_less_often, given_up, in_doubt, left_behind, not_called

__all__ = ["Agreement", "Store", "Wish"]

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 2.0
"""How often a rank looks for the leader's address until rank 0 has published it, and how often it tries to connect:
less and less often."""

UNSENT_SECONDS = 30.0
"""How long `close` waits for contents that have not been sent."""

ACTED_KEPT = 100
"""How many orders a rank remembers, so that it does not follow one of them twice if the leader repeats them. The
leader repeats only orders that it does not know to be followed, hardly ever more than two."""

END_SECONDS = 2.0
"""How long `close` waits for the thread. It takes longer only if it is in a call of the store."""


class Store(Protocol):
    """The part of torch.distributed.Store that is used here. All methods raise RuntimeError if the store is gone."""

    def set(self, key: str, value: str, /) -> None:
        """Sets a value."""

    def get(self, key: str, /) -> bytes:
        """Waits for a value, and returns it."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys have values."""


@dataclass(slots=True, eq=False)
class _Order:
    """What all ranks are to do at the first position from `position` on."""

    number: int
    position: int
    wish: Wish
    decided: threading.Event = field(default_factory=threading.Event)
    counts: bool = False


class Agreement:
    """A rank's part in the agreement of all ranks of a group. In a world of one, each wish is fulfilled at once."""

    def __init__(
        self,
        store: Store | None,
        key: str,
        *,
        hosts: Sequence[str],
        rank: int,
        size: int,
        warn: Callable[[str], None],
        function: str = "training.step()",
        address: str = "",
    ) -> None:
        """Starts a thread that takes part, in a group of more than one rank.

        Args:
            store: The store of the group; None only in a world of one.
            key: Where the store has the leader's address. No other agreement uses this key in this store.
            hosts: Names and addresses under which this rank may reach rank 0's machine. Other ranks try rank 0's
                hosts after their own.
            rank: This rank's number in the group.
            size: The number of ranks of the group.
            warn: Called, in any thread, with a sentence about ranks that do not take part.
            function: The name of the function that all ranks have to call equally often, for such sentences.
            address: Where rank 0 listens; empty for all its addresses.
        """
        self._rank, self._size, self._function, self._warn = rank, size, function, warn
        self.function = function
        self.steps = 0
        """How many steps this rank has made, for `survey`."""
        self.followed: list[int] = []
        """The numbers of the orders that this rank followed when `reached` last returned a wish; none if that was its
        own."""
        self._position = -1
        self._lock = threading.Lock()
        """Guards the orders. Never taken in `wish`, which may interrupt the thread that holds it."""
        self._orders: dict[int, _Order] = {}
        self._wished: list[object] = [None] * len(Wish)
        """For each wish that is not fulfilled yet, an object that identifies it."""
        self._acted = deque[int](maxlen=ACTED_KEPT)
        """The last orders that this rank has followed, by number."""
        self._apart = False
        """Whether this rank follows only its own wishes."""
        self._tell: Tell | None = None
        self._unreachable = ""
        """Why the leader is not reached, although rank 0 has published its address."""
        self._unsent = deque[tuple[str, bytes]]()
        """Contents, each with its names."""
        self._sending: asyncio.Task[None] | None = None
        self._closes = False
        self._sent = SentContents(size) if rank == 0 else None
        self.noted: dict[int, int] = {}
        """On rank 0, the last number that each rank has noted, by rank."""
        self._loop: asyncio.AbstractEventLoop | None = None
        if size == 1 or store is None:
            self._part()
        else:
            self._start(store, key, hosts, address)

    def wish(self, wish: Wish) -> None:
        """Wishes that all ranks act. Returns immediately; for any thread, and for signal handlers."""
        if wish and self._wished[wish] is None:
            self._wished[wish] = object()
            self._post(self._ask_for)

    def reached(self, position: int) -> Wish:
        """Returns what all ranks do at this position. Positions rise from call to call.

        Waits only if there is an order for this position, until the leader has decided whether it counts. This
        usually takes less than a millisecond.
        """
        # Writes the position, then reads the orders. `_accept` does the opposite. So one of them notices the other.
        self._position = position
        return self._act(position) if self._orders or self._apart else Wish.NOTHING

    def send(self, name: str, content: bytes, *others: str) -> None:
        """Sends this rank's bytes to rank 0, in the background, once for all names.

        If rank 0 accepts them too slowly, the oldest unsent contents are dropped.

        Raises:
            ValueError: The content or its names are too long, or a name has a space.
        """
        names = " ".join((name, *others))
        fits = len(content) <= rules.CONTENT_BYTES and len(names) <= wire.NAMES_BYTES
        if not fits or not names.isascii() or names.split() != [name, *others]:
            raise ValueError(f"{names!r}, {len(content)} bytes: cannot be sent to rank 0")
        if self._sent:
            self._sent.put(self._rank, names.split(), content)
        elif self._loop:
            self._unsent.append((names, content))
            with suppress(IndexError):  # The thread has sent them meanwhile.
                while _size(self._unsent) > rules.KEPT_BYTES // self._size and len(self._unsent) > 1:
                    self._unsent.popleft()
            self._post(self._start_sending)

    def note(self, number: int) -> None:
        """Tells rank 0 a number, such as the time of a step, in the background. It replaces this rank's last one."""
        if self._loop:
            self._post(lambda: self._tell and self._tell("note", number))
        else:
            self.noted[self._rank] = number

    def gathered(self, name: str, seconds: float) -> dict[int, bytes]:
        """On rank 0: waits for what all ranks have sent under a name, and returns it by rank, once.

        Raises:
            NotSentError: Something has not come within `seconds`, or will not come. The message names the ranks.
        """
        assert self._sent, "only rank 0 gathers"
        return self._sent.gathered(name, seconds)

    def survey(self, seconds: float) -> Survey:
        """On rank 0: asks all ranks how far they are. Nothing is known of ranks that are missing in the result."""
        if not self._loop:
            return {}
        found = Future[Survey]()
        self._post(lambda: self._leader.survey(found))
        with suppress(TimeoutError):
            return found.result(seconds)
        return {}

    def close(self) -> None:
        """Ends this rank's part. First waits until all contents have been sent, if rank 0 accepts them."""
        if self._loop:
            self._post(self._finish)
            self._thread.join(UNSENT_SECONDS + END_SECONDS if self._unsent or self._sending else END_SECONDS)

    def forget(self) -> None:
        """Leaves the agreement in a forked child, which has neither the thread nor the connections."""
        self._lock = threading.Lock()  # The thread may have held the other.
        self._loop = self._tell = None
        self._part()

    def _start(self, store: Store, key: str, hosts: Sequence[str], address: str) -> None:
        # Not as the policy of asyncio has it, which may be uvloop's.
        self._loop = asyncio.SelectorEventLoop()
        if self._rank == 0:
            listener, token = wire.listening(address, backlog=2 * self._size), new_token()
            store.set(key, json.dumps({"hosts": [*hosts], "port": listener.getsockname()[1], "token": token}))
            work = self._lead(listener, token)
        else:
            work = self._follow(store, key, hosts)
        self._task = self._loop.create_task(self._take_part(work))
        self._thread = threading.Thread(target=_run, args=(self._loop, self._task), name="agreement", daemon=True)
        self._thread.start()
        _taking_part.add(self)

    async def _take_part(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (OSError, RuntimeError, ValueError):
            pass  # The store or the leader is gone, because rank 0 has ended.
        finally:
            self._tell = None
            self._part()
            if self._sending:
                self._sending.cancel()
        pending = [order.wish for order in self._orders.values()]
        if pending:
            await asyncio.sleep(rules.MISMATCH_SECONDS)
            if self._orders:
                self._warn(called_less_often([self._rank], self._function, max(pending)))

    async def _lead(self, listener: socket.socket, token: str) -> None:
        assert self._sent
        self._leader = leader = Leader(self._size, self._function, self._warn, self.noted)
        self._connected(lambda word, *numbers: leader.hear(0, word, [*numbers]))
        leader.join(0, self._hear)
        with listener:
            async with asyncio.TaskGroup() as both:
                both.create_task(leader.lead())
                both.create_task(serve(listener, token, self._size, leader, self._sent))

    async def _follow(self, store: Store, key: str, hosts: Sequence[str]) -> None:
        with self._named_if_late():
            place = await _published(store, key)
            del store  # It may be what listens on the port that the script's next group needs.
            self._greeting = f"{place['token']} {self._rank}"
            connection = await self._connect([*hosts, *place["hosts"]], place["port"], again=False)
        while connection:
            self._address = connection.getpeername()[0], place["port"]
            if not await self._listen(connection):
                return
            with self._named_if_late():
                connection = await self._connect([self._address[0]], place["port"], again=True)

    async def _connect(self, hosts: Sequence[str], port: int, *, again: bool) -> socket.socket | None:
        """Connects to the leader. None if rank 0 has ended since this rank was connected for the first time."""
        refused_since, pauses = math.inf, longer_pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                return await wire.connected(hosts, port, self._greeting)
            except ConnectionError as error:
                self._unreachable, now = str(error), time.monotonic()
                refused_since = min(refused_since, now) if isinstance(error, ConnectionRefusedError) else math.inf
                if again and now - refused_since >= rules.REFUSED_SECONDS:
                    return None
            await asyncio.sleep(next(pauses))

    async def _listen(self, connection: socket.socket) -> bool:
        """Does what the leader says. True if the connection is lost, false if rank 0 has ended."""
        with connection:
            self._connected(partial(wire.tell, connection))
            self._start_sending()
            try:
                async for word, numbers in wire.messages(connection):
                    if word == "end":
                        return False
                    self._hear(word, *numbers)
            except asyncio.CancelledError:
                wire.tell(connection, "end")
                raise
            except (OSError, ValueError):
                pass
        self._disconnected()
        return True

    @contextmanager
    def _named_if_late(self) -> Iterator[None]:
        """Warns if connecting takes long."""
        naming = asyncio.get_running_loop().call_later(rules.MISMATCH_SECONDS, self._name_leader)
        try:
            yield
        finally:
            naming.cancel()

    def _name_leader(self) -> None:
        self._warn(
            f"rank {self._rank} cannot connect: {self._unreachable}; allow connections between ranks on all ports"
            if self._unreachable
            else not_called([0], self._function, self._rank)
        )

    def _connected(self, tell: Tell) -> None:
        """Lets this rank tell the leader something, whose first messages end with `met`."""
        self._tell, self._apart = tell, False

    def _disconnected(self) -> None:
        self._tell, self._unreachable = None, "its connection is lost"
        self._ask_for()  # From now on, it waits for the leader to be there again.

    def _ask_for(self) -> None:
        """Tells the leader this rank's greatest wish, unless an order is about to fulfil it."""
        wish = self._own()
        if not wish or self._apart:
            return
        if self._tell and not self._ordered(wish):
            self._tell("wish", wish)
        seconds = rules.PATIENCE_SECONDS[wish] + rules.SILENT_LEADER_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._lose_patience, wish, self._wished[wish], self._tell)

    def _lose_patience(self, wish: Wish, wished: object, tell: Tell | None) -> None:
        """Gives up a wish. `tell` is what it was told by: in each connection it is told, and waited for, anew."""
        still = self._wished[wish] is wished and self._tell is tell and not self._apart
        if still and not self._ordered(wish, for_sure=True):
            self._warn(given_up([0], wish, "" if self._tell or self._unreachable else self._function))
            self._give_up(wish)

    def _hear(self, word: str, *numbers: int) -> None:
        """Answers the leader."""
        assert self._tell
        match word, numbers:
            case "met", ():
                self._drop_undecided()
                self._ask_for()
            case "ask", (number,):
                self._tell("answer", number, self._position)
            case "count", (number,):
                self._tell("answer", number, self.steps)
            case "order", (number, position, wish):
                self._tell("answer", number, self._accept(_Order(number, position, Wish(wish))))
            case "decide", (number, counts):
                self._decide(number, counts=bool(counts))
            case "counts", (number, position, wish):
                self._accept_late(_Order(number, position, Wish(wish)))
            case "give-up", (wish,):
                self._give_up(Wish(wish))

    def _accept(self, order: _Order) -> bool:
        """Follows an order, unless this rank has reached its position already."""
        with self._lock:
            self._orders[order.number] = order
        in_time = self._position < order.position
        if not in_time:
            self._decide(order.number, counts=False)
        return in_time

    def _accept_late(self, order: _Order) -> None:
        """Follows an order of which this rank may not have heard that it counts, unless it has followed it."""
        with self._lock:
            if missed := order.number not in self._acted:
                late = order.number not in self._orders and order.position <= self._position
                self._orders.setdefault(order.number, order)
        if missed:
            self._decide(order.number, counts=True)
            if late:
                self._warn(left_behind(self._rank, order.wish))
        else:
            self._report(order)

    def _decide(self, number: int, *, counts: bool) -> bool:
        """Decides an order, unless it is decided already. Returns whether this call has decided it."""
        with self._lock:
            order = self._orders.get(number)
            if not order or order.decided.is_set():
                return False
            order.counts = counts
            if not counts:
                del self._orders[number]
            order.decided.set()
            return True

    def _act(self, position: int) -> Wish:
        """Returns what all ranks do at this position; after the ranks have parted, also what this rank wishes."""
        with self._lock:
            due = [order for order in self._orders.values() if order.position <= position]
        if not due and not self._apart:
            return Wish.NOTHING
        for order in due:
            if not order.decided.wait(rules.PATIENCE_SECONDS[order.wish]):
                self._doubt(order)
        with self._lock:
            follows = [order for order in due if order.counts]
            for order in follows:
                self._orders.pop(order.number, None)
                self._acted.append(order.number)
            acts = max((order.wish for order in follows), default=Wish.NOTHING)
            if self._apart:
                acts = max(acts, self._own())
            for wish in range(acts + 1):
                self._wished[wish] = None
        self.followed = [order.number for order in follows]
        for order in follows:
            self._post(partial(self._report, order))
        return acts

    def _doubt(self, order: _Order) -> None:
        """Goes on, although this rank does not know whether the others do."""
        if self._decide(order.number, counts=False):
            self._warn(in_doubt(self._rank, order.wish))

    def _report(self, order: _Order) -> None:
        if self._tell:
            self._tell("acted", order.number)

    def _give_up(self, wish: Wish) -> None:
        if wish is Wish.STOP:
            self._part()
        else:
            self._wished[wish] = None

    def _part(self) -> None:
        """From now on this rank follows its own wishes, and those orders that count already."""
        self._apart = True
        self._drop_undecided()

    def _drop_undecided(self) -> None:
        """Drops the orders that will not be decided any more."""
        with self._lock:
            undecided = [order for order in self._orders.values() if not order.counts]
            self._orders = {number: order for number, order in self._orders.items() if order.counts}
        for order in undecided:
            order.decided.set()

    def _own(self) -> Wish:
        return Wish.STOP if self._wished[Wish.STOP] else Wish.SAVE if self._wished[Wish.SAVE] else Wish.NOTHING

    def _ordered(self, wish: Wish, *, for_sure: bool = False) -> bool:
        with self._lock:
            return any(order.wish >= wish for order in self._orders.values() if order.counts or not for_sure)

    def _start_sending(self) -> None:
        if self._tell and self._unsent and not self._sending:
            self._sending = asyncio.ensure_future(self._send_contents())

    async def _send_contents(self) -> None:
        try:
            while self._unsent:
                names, content = self._unsent.popleft()
                arrived = False
                while not arrived:  # The end of rank 0 cancels this task.
                    arrived = await self._send_content(names, content)
                    await asyncio.sleep(0 if arrived else LONGEST_PAUSE_SECONDS)
        finally:
            self._sending = None
            if self._closes:
                self._task.cancel()

    async def _send_content(self, names: str, content: bytes) -> bool:
        host, port = self._address
        greeting = f"{self._greeting} {names} {len(content)}"
        try:
            with await wire.connected([host], port, greeting) as connection:
                await asyncio.get_running_loop().sock_sendall(connection, content)
                return bool(await wire.content(connection, len(wire.WELCOME)))
        except OSError:  # Rank 0 is very busy, or has ended.
            return False

    def _finish(self) -> None:
        """Ends the thread, once nothing is left to be sent."""
        self._closes = True
        if self._unsent or self._sending:
            asyncio.get_running_loop().call_later(UNSENT_SECONDS, self._task.cancel)
        else:
            self._task.cancel()

    def _post(self, callback: Callable[[], object]) -> None:
        """Runs a callback in the thread's event loop."""
        if self._loop:
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(callback)


async def _published(store: Store, key: str) -> Any:
    """Where the leader listens, once rank 0 has published it."""
    for pause in longer_pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
        if store.check([key]):
            break
        await asyncio.sleep(pause)
    return json.loads(store.get(key))


def _size(contents: deque[tuple[str, bytes]]) -> int:
    return sum(len(content) for _, content in contents.copy())  # Another thread may take one out meanwhile.


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    async def result() -> None:
        await task

    with suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(result())


_taking_part = WeakSet[Agreement]()


def _close_all() -> None:
    """Ends the threads before the interpreter does.

    Python ends a thread that is in a call of the store by unwinding C++ frames, which abort the process.
    """
    for agreement in list(_taking_part):
        agreement.close()


def _leave_to_parent() -> None:
    """A forked child takes no part: it has neither the thread nor the connections."""
    for agreement in list(_taking_part):
        agreement.forget()
    _taking_part.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_leave_to_parent)
