"""The leader of an agreement: on rank 0, it fulfils the ranks' wishes."""

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from . import agreement_rules as rules
from .agreement_rules import Wish
from .agreement_warnings import called_less_often, given_up, not_called

Survey = dict[int, tuple[int, int]]
"""The position of each rank that has answered, and how many steps it has made."""


class Tell(Protocol):
    """Sends a message to a rank, or to the leader, without waiting."""

    def __call__(self, word: str, /, *numbers: int) -> None:
        """Sends a word and its numbers."""


@dataclass(slots=True)
class _Counting:
    """An order that counts."""

    position: int
    wish: Wish
    acted: set[int] = field(default_factory=set)
    """The ranks that have acted."""


class Leader:
    """Asks all ranks how far they are, orders them to act farther ahead, and decides whether all of them can.

    An order does not count if a rank loses its connection, or connects again, before it is decided. A rank that
    connects again is told which orders count, because it may have missed a decision.

    All methods are called in the event loop's thread.
    """

    def __init__(self, size: int, function: str, warn: Callable[[str], None], noted: dict[int, int]) -> None:
        """`noted` receives the last number that each rank has noted."""
        self._size, self._function, self._warn, self._noted = size, function, warn, noted
        self._ranks: dict[int, Tell] = {}
        """The ranks that are connected."""
        self._lost: dict[int, asyncio.TimerHandle] = {}
        """The ranks that have lost their connection, and may connect again."""
        self._changes = 0
        """How often a rank has connected, or lost its connection."""
        self._met = set[int]()
        """All ranks that have ever joined."""
        self._heard = asyncio.Queue[tuple[int, str, list[int]]]()
        self._wished = Wish.NOTHING
        """The greatest wish that is not fulfilled yet."""
        self._apart = False
        self._number = 0
        self._counting: dict[int, _Counting] = {}
        """The orders that count, by number, until some time after the first rank has acted."""
        self._surveys: list[Future[Survey]] = []

    def join(self, rank: int, tell: Tell) -> None:
        """Adds a rank that has connected, or connected again."""
        if timer := self._lost.pop(rank, None):
            timer.cancel()
        self._ranks[rank] = tell
        self._met.add(rank)
        self._changes += 1
        if self._apart:
            tell("give-up", Wish.STOP)
        for number, order in self._counting.items():
            if rank not in order.acted:
                tell("counts", number, order.position, order.wish)
        tell("met")
        self.hear(rank, "joined", [])

    def hear(self, rank: int, word: str, numbers: list[int]) -> None:
        """Takes a message of a rank."""
        if not self._apart:
            self._heard.put_nowait((rank, word, numbers))

    def leave(self, rank: int, tell: Tell, *, ended: bool) -> bool:
        """Removes a rank that has ended or lost its connection. False if it has connected again before."""
        if self._ranks.get(rank) is not tell:
            return False
        del self._ranks[rank]
        if not ended:
            self._changes += 1
            self._lost[rank] = asyncio.get_running_loop().call_later(rules.RETURN_SECONDS, self._miss, rank)
        self.hear(rank, "left", [])
        return True

    def end(self) -> None:
        """Tells all ranks that the leader ends, so that they do not take their connections for lost."""
        self._tell_all("end")

    def survey(self, found: Future[Survey]) -> None:
        """Sets the result soon."""
        self._surveys.append(found)
        self.hear(0, "survey", [])

    async def lead(self) -> None:
        """Fulfils wishes, until the agreement ends because some ranks do not answer."""
        naming = asyncio.get_running_loop().call_later(rules.MISMATCH_SECONDS, self._name_absent)
        try:
            while not self._apart:
                if self._wished:
                    await self._fulfil()
                elif self._surveys:
                    await self._look()
                else:
                    await self._take()
        finally:
            naming.cancel()

    async def _fulfil(self) -> None:
        """Lets all ranks agree when to fulfil the greatest wish, or gives it up."""
        begun, ahead = dict[Wish, float](), 1

        def seconds_left() -> float:  # A greater wish may come meanwhile.
            now = time.monotonic()
            return begun.setdefault(self._wished, now) + rules.PATIENCE_SECONDS[self._wished] - now

        while True:
            await self._until(lambda: not self._absent(), seconds_left)
            positions = await self._answers("ask", seconds_left=seconds_left)
            if missing := self._absent() or self._silent(positions):
                if seconds_left() > 0:
                    continue  # A rank has lost its connection, or connected again.
                self._give_up(missing)
                return
            counts, late = await self._order(self._wished, max(positions.values()) + ahead)
            if counts:
                return
            ahead *= rules.FARTHER if late else 1

    async def _look(self) -> None:
        """Asks all ranks how far they are."""
        surveys, self._surveys = self._surveys, []
        positions, steps = [
            await self._answers(word, seconds_left=_within(rules.SURVEY_SECONDS)) for word in ("ask", "count")
        ]
        found = {rank: (positions[rank], steps[rank]) for rank in positions.keys() & steps}
        for each in surveys:
            each.set_result(found)

    async def _order(self, wish: Wish, position: int) -> tuple[bool, bool]:
        """Orders all ranks to act. Returns whether the order counts, and whether a rank was late."""
        ordered, changes = time.monotonic(), self._changes
        answers = await self._answers("order", position, wish, seconds_left=_within(rules.ORDER_SECONDS))
        late = not all(answers.values())
        in_time = changes == self._changes and time.monotonic() - ordered < rules.COUNTS_SECONDS
        counts = not late and in_time and not self._silent(answers)
        self._tell_all("decide", self._number, counts)
        if counts:
            self._counting[self._number] = _Counting(position, wish)
            if self._wished <= wish:
                self._wished = Wish.NOTHING
        return counts, late

    async def _answers(self, word: str, *numbers: int, seconds_left: Callable[[], float]) -> dict[int, int]:
        """Asks all ranks, and returns their answers, by rank. Ends early if a rank connects or is lost meanwhile."""
        self._number += 1
        answers: dict[int, int] = {}
        changes = self._changes

        def note(rank: int, heard: str, heard_numbers: list[int]) -> None:
            match heard, heard_numbers:
                case "answer", [number, answer] if number == self._number:
                    answers[rank] = answer

        self._tell_all(word, self._number, *numbers)
        await self._until(lambda: not self._silent(answers) or changes != self._changes, seconds_left, note)
        return answers

    def _unmet(self) -> set[int]:
        """The ranks that have never joined."""
        return {*range(self._size)} - self._met

    def _absent(self) -> set[int]:
        """The ranks that are not there yet, or not again."""
        return self._unmet() | self._lost.keys()

    def _silent(self, answers: Collection[int]) -> set[int]:
        """The connected ranks that have not answered."""
        return self._ranks.keys() - answers

    async def _until(
        self,
        done: Callable[[], bool],
        seconds_left: Callable[[], float],
        note: Callable[[int, str, list[int]], None] = lambda *_: None,
    ) -> None:
        """Passes messages to `note` until a condition holds, or no time is left."""
        while not done() and (seconds := seconds_left()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    note(*await self._take())

    async def _take(self) -> tuple[int, str, list[int]]:
        rank, word, numbers = await self._heard.get()
        match word, numbers:
            case "wish", [1 | 2 as wish]:
                self._wished = max(self._wished, Wish(wish))
            case "note", [number]:
                self._noted[rank] = number
            case "acted", [number] if order := self._counting.get(number):
                if not order.acted:
                    asyncio.get_running_loop().call_later(rules.MISMATCH_SECONDS, self._name_late, number)
                order.acted.add(rank)
        return rank, word, numbers

    def _tell_all(self, word: str, *numbers: int) -> None:
        for tell in list(self._ranks.values()):
            tell(word, *numbers)

    def _give_up(self, missing: Collection[int]) -> None:
        wish, self._wished = self._wished, Wish.NOTHING
        self._apart = wish is Wish.STOP
        self._tell_all("give-up", wish)
        unmet = self._unmet()
        self._warn(given_up(unmet or missing, wish, self._function if unmet else ""))

    def _miss(self, rank: int) -> None:
        """Takes a rank that has not connected again for one that has ended."""
        del self._lost[rank]
        self.hear(rank, "missed", [])

    def _name_absent(self) -> None:
        if unmet := self._unmet():
            self._warn(not_called(unmet, self._function, 0))

    def _name_late(self, number: int) -> None:
        order = self._counting.pop(number)
        if late := self._ranks.keys() - order.acted:
            self._warn(called_less_often(late, self._function, order.wish))


def _within(seconds: float) -> Callable[[], float]:
    """Returns how much is left of this time, which begins now."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()
