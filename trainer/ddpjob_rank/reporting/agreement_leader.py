"""The leader of an agreement: on rank 0, it fulfils the ranks' wishes, and gathers what they send."""

import asyncio
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from enum import IntEnum
from functools import partial
from typing import Protocol

from ddpjob_rank.console import listed

from . import agreement_wire as wire

ORDER_SECONDS = 2.0
"""How long the leader waits for the ranks' answers to an order. Meanwhile a rank may be waiting for the decision."""

COUNTS_SECONDS = 5.0
"""How long after an order the leader may decide that it counts. A rank waits twice as long for that."""

MISMATCH_SECONDS = 45.0
"""How long the leader waits for ranks that have not connected, or not yet acted as the others have."""

FARTHER = 4
"""By which factor an order is farther ahead than the previous order, for which a rank was late."""

CONTENT_BYTES = 1 << 30
CONTENTS_KEPT = 4
"""How many names have contents at the same time. A save that was abandoned leaves contents that nobody gathers."""

MOST_NAMED = 8


class Wish(IntEnum):
    """What a rank may want all ranks to do. The greatest wish counts."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


PATIENCE_SECONDS = {Wish.NOTHING: 45.0, Wish.SAVE: 45.0, Wish.STOP: 10.0}
"""How long all ranks together may take to answer. Their threads answer within milliseconds, whatever the ranks are
doing. Whoever stops has a grace period."""

IN_WORDS = {Wish.SAVE: "saved", Wish.STOP: "stopped"}


class Tell(Protocol):
    """Sends a message to a rank, or to the leader, without waiting."""

    def __call__(self, word: str, /, *numbers: int) -> None:
        """A word, and the numbers that belong to it."""


class Leader:
    """Asks all ranks how far they are, orders them to act farther ahead, and decides whether all of them can.

    All methods are called in the event loop's thread.
    """

    def __init__(self, size: int, function: str, warn: Callable[[str], None]) -> None:
        self._size, self._function, self._warn = size, function, warn
        self._ranks: dict[int, Tell] = {}
        """The ranks that have not ended."""
        self._met = set[int]()
        """All ranks that have ever joined."""
        self._heard = asyncio.Queue[tuple[int, str, list[int]]]()
        self._wished = Wish.NOTHING
        """The greatest wish that is not fulfilled yet."""
        self._apart = False
        self._number = 0
        self._acted: dict[int, set[int]] = {}
        """The ranks that have acted, by the number of an order that counts."""

    def join(self, rank: int, tell: Tell) -> None:
        """A rank has connected."""
        self._ranks[rank] = tell
        self._met.add(rank)
        if self._apart:
            tell("give-up", Wish.STOP)
        self.hear(rank, "joined", [])

    def hear(self, rank: int, word: str, numbers: list[int]) -> None:
        """Takes a message of a rank."""
        self._heard.put_nowait((rank, word, numbers))

    def leave(self, rank: int, tell: Tell) -> None:
        """The connection of a rank has ended."""
        if self._ranks.get(rank) is tell:
            del self._ranks[rank]
            self.hear(rank, "left", [])

    async def lead(self) -> None:
        """Fulfils wishes, until the ranks have parted because some do not answer."""
        naming = asyncio.get_running_loop().call_later(MISMATCH_SECONDS, self._name_absent)
        try:
            while not self._apart:
                if self._wished:
                    await self._fulfil()
                else:
                    await self._take()
        finally:
            naming.cancel()

    async def _fulfil(self) -> None:
        """Lets all ranks agree when to fulfil the greatest wish, or gives it up."""
        begun, ahead = time.monotonic(), 1

        def seconds_left() -> float:
            return begun + PATIENCE_SECONDS[self._wished] - time.monotonic()

        while True:
            await self._until(lambda: not self._absent(), seconds_left)
            positions = await self._answers("ask", seconds_left=seconds_left)
            if missing := self._absent() | self._silent(positions):
                self._give_up(missing)
                return
            if await self._order(self._wished, max(positions.values()) + ahead):
                return
            ahead *= FARTHER

    async def _order(self, wish: Wish, position: int) -> bool:
        """Orders all ranks to act, and decides whether the order counts."""
        ordered = time.monotonic()
        answers = await self._answers(
            "order", position, wish, seconds_left=lambda: ordered + ORDER_SECONDS - time.monotonic()
        )
        in_time = time.monotonic() - ordered < COUNTS_SECONDS
        counts = in_time and not self._silent(answers) and all(answers.values())
        self._tell_all("decide", self._number, counts)
        if counts:
            self._acted[self._number] = set()
            if self._wished <= wish:
                self._wished = Wish.NOTHING
        return counts

    async def _answers(self, word: str, *numbers: int, seconds_left: Callable[[], float]) -> dict[int, int]:
        """Asks all ranks, and returns their answers, by rank."""
        self._number += 1
        answers: dict[int, int] = {}

        def note(rank: int, heard: str, heard_numbers: list[int]) -> None:
            match heard, heard_numbers:
                case "answer", [number, answer] if number == self._number:
                    answers[rank] = answer

        self._tell_all(word, self._number, *numbers)
        await self._until(lambda: not self._silent(answers), seconds_left, note)
        return answers

    def _absent(self) -> set[int]:
        """The ranks that have never joined."""
        return {*range(self._size)} - self._met

    def _silent(self, answers: Collection[int]) -> set[int]:
        """The ranks that have neither answered nor ended."""
        return self._ranks.keys() - answers

    async def _until(
        self,
        done: Callable[[], bool],
        seconds_left: Callable[[], float],
        note: Callable[[int, str, list[int]], None] = lambda *_: None,
    ) -> None:
        """Passes messages to `note` until something is done, or no time is left."""
        while not done() and (seconds := seconds_left()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    note(*await self._take())

    async def _take(self) -> tuple[int, str, list[int]]:
        rank, word, numbers = await self._heard.get()
        match word, numbers:
            case "wish", [1 | 2 as wish]:
                self._wished = max(self._wished, Wish(wish))
            case "acted", [number, 1 | 2 as wish] if number in self._acted:
                if not self._acted[number]:
                    loop = asyncio.get_running_loop()
                    loop.call_later(MISMATCH_SECONDS, self._name_late, number, Wish(wish))
                self._acted[number].add(rank)
        return rank, word, numbers

    def _tell_all(self, word: str, *numbers: int) -> None:
        for tell in list(self._ranks.values()):
            tell(word, *numbers)

    def _give_up(self, missing: Collection[int]) -> None:
        wish, self._wished = self._wished, Wish.NOTHING
        self._apart = wish is Wish.STOP
        self._tell_all("give-up", wish)
        absent = self._absent()
        self._warn(given_up(absent or missing, wish, "" if not absent else self._function))

    def _name_absent(self) -> None:
        if absent := self._absent():
            self._warn(not_called(absent, self._function, 0))

    def _name_late(self, number: int, wish: Wish) -> None:
        if late := self._ranks.keys() - self._acted.pop(number):
            self._warn(called_less_often(late, self._function, wish))


class SentContents:
    """What the ranks have sent, by name and rank, for any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._contents: dict[str, dict[int, bytes]] = {}

    def put(self, rank: int, name: str, content: bytes) -> None:
        """Keeps a content, and forgets those of the oldest name if there are too many names."""
        with self._changed:
            self._contents.setdefault(name, {})[rank] = content
            if len(self._contents) > CONTENTS_KEPT:
                del self._contents[next(iter(self._contents))]
            self._changed.notify_all()

    def gathered(self, name: str, seconds: float) -> dict[int, bytes]:
        """Waits for the contents of all ranks, and hands them out.

        Raises:
            TimeoutError: Some have not come within `seconds`. The message names their ranks.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._contents.get(name, ())) == self._size, seconds)
            contents = self._contents.pop(name, {})
        if missing := sorted({*range(self._size)} - contents.keys()):
            raise TimeoutError(f"{ranks(missing, 'has')} sent nothing within {seconds:.0f} s")
        return dict(sorted(contents.items()))


async def serve(listener: socket.socket, token: str, size: int, leader: Leader, sent: SentContents) -> None:
    """Serves the ranks that connect; a stranger is dismissed."""
    served = set[asyncio.Task[None]]()
    try:
        while True:
            connection = await wire.accepted(listener)
            if len(served) > 4 * size + 256:  # Strangers: a rank has two connections at most.
                connection.close()
                continue
            task = asyncio.ensure_future(_attend(connection, token, size, leader, sent))
            served.add(task)
            task.add_done_callback(served.discard)
    finally:
        for task in served:
            task.cancel()


async def _attend(connection: socket.socket, token: str, size: int, leader: Leader, sent: SentContents) -> None:
    # A ValueError: it is no rank. Cancelled: the leader ends.
    with suppress(OSError, ValueError, asyncio.CancelledError), closing(connection):
        given, number, *rest = await wire.greeted(connection)
        rank = int(number)
        if not hmac.compare_digest(given.encode(), token.encode()) or not 0 < rank < size:
            return
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, wire.WELCOME)
        if rest:
            name, length = rest[0], int(rest[1])
            if not 0 <= length <= CONTENT_BYTES:
                return
            sent.put(rank, name, bytes(await wire.content(connection, length)))
            await loop.sock_sendall(connection, wire.WELCOME)
            return
        tell = partial(wire.tell, connection)
        leader.join(rank, tell)
        try:
            async for word, numbers in wire.messages(connection):
                leader.hear(rank, word, numbers)
        finally:
            leader.leave(rank, tell)


def new_token() -> str:
    """What ranks prove themselves by."""
    return secrets.token_hex(16)


def ranks(numbers: Collection[int], verb: str) -> str:
    """Ranks as the subject of a sentence: `rank 2 has`, `ranks 2, 5 have`."""
    if verb == "has" and len(numbers) > 1:
        verb = "have"
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(sorted(numbers), MOST_NAMED)} {verb}"


def not_called(absent: Collection[int], function: str, rank: int) -> str:
    """Warns that some ranks have never called a function that another rank has called."""
    return (
        f"{ranks(absent, 'has')} not called {function} in the {MISMATCH_SECONDS:.0f} s since rank {rank} called it,"
        " or cannot connect to rank 0: call it equally often on all ranks, which otherwise stop after different steps"
    )


def given_up(missing: Collection[int], wish: Wish, never_called: str) -> str:
    """Warns that a wish was given up, because some ranks did not answer, or never called the function."""
    why = ranks(missing, f"never called {never_called}" if never_called else "did not answer")
    cure = "call it on all ranks" if never_called else "find out whether it is stopped, or too busy to answer"
    result = (
        "so the ranks cannot stop after the same step, and each stops when it is told to itself"
        if wish is Wish.STOP
        else "so the ranks cannot save now, and try again when the next save is due"
    )
    return f"{why}, {result}: {cure}"


def called_less_often(late: Collection[int], function: str, wish: Wish) -> str:
    """Warns that some ranks have not come to the call in which the others have acted."""
    return (
        f"{ranks(late, 'has')} not come as far as the others, which {IN_WORDS[wish]} {MISMATCH_SECONDS:.0f} s ago:"
        f" call {function} equally often on all ranks"
    )
