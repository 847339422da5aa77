"""The leader of an agreement: on rank 0, it fulfils the ranks' wishes."""

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
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


class Leader:
    """Asks all ranks how far they are, orders them to act farther ahead, and decides whether all of them can.

    All methods are called in the event loop's thread.
    """

    def __init__(self, size: int, function: str, warn: Callable[[str], None], noted: dict[int, int]) -> None:
        """`noted` receives the last number that each rank has noted."""
        self._size, self._function, self._warn, self._noted = size, function, warn, noted
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
        self._surveys: list[Future[Survey]] = []

    def join(self, rank: int, tell: Tell) -> None:
        """Adds a rank that has connected."""
        self._ranks[rank] = tell
        self._met.add(rank)
        if self._apart:
            tell("give-up", Wish.STOP)
        self.hear(rank, "joined", [])

    def hear(self, rank: int, word: str, numbers: list[int]) -> None:
        """Takes a message of a rank."""
        if not self._apart:
            self._heard.put_nowait((rank, word, numbers))

    def leave(self, rank: int, tell: Tell) -> None:
        """Removes a rank whose connection has ended."""
        if self._ranks.get(rank) is tell:
            del self._ranks[rank]
            self.hear(rank, "left", [])

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
            if missing := self._absent() | self._silent(positions):
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
        ordered = time.monotonic()
        answers = await self._answers("order", position, wish, seconds_left=_within(rules.ORDER_SECONDS))
        late = not all(answers.values())
        counts = not late and not self._silent(answers) and time.monotonic() - ordered < rules.COUNTS_SECONDS
        self._tell_all("decide", self._number, counts)
        if counts:
            self._acted[self._number] = set()
            if self._wished <= wish:
                self._wished = Wish.NOTHING
        return counts, late

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
            case "acted", [number, 1 | 2 as wish] if number in self._acted:
                if not self._acted[number]:
                    loop = asyncio.get_running_loop()
                    loop.call_later(rules.MISMATCH_SECONDS, self._name_late, number, Wish(wish))
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


def _within(seconds: float) -> Callable[[], float]:
    """Returns how much is left of this time, which begins now."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()
