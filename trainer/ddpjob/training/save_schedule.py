"""Decides when a training run saves, and under which names rank 0 gathers the states of its ranks."""

import math
import time
from collections.abc import Callable

from ddpjob_rank.reporting.agreement import Agreement, Wish
from ddpjob_rank.world import World

from ddpjob.checkpoint.interval import best_interval, expected_time_to_failure

from .save_settings import AUTO, SaveSettings


class SaveSchedule:
    """The saves of one rank: after a number of steps, at the end of each epoch, or when all ranks agree to save.

    All ranks agree if the interval in seconds has passed, by the clock of rank 0, or if somebody asks for a save or a
    stop. Saves after steps and epochs need no agreement, unless ranks turn out to make different numbers of steps.

    Rank 0 gathers the ranks' own states under a name of the save: `agreed-` and the number of the order that all
    ranks follow; `at-` and the position; or, if the ranks do not agree, `own-` and a number. A rank may have several
    names for a save.
    """

    def __init__(self, settings: SaveSettings, world: World, agreement: Agreement, *, gathers: bool) -> None:
        """`gathers`: whether this rank gathers the states of all ranks, instead of only sending its own."""
        self.step = 0
        """The step of the last call of `due`."""
        self.agrees = False
        """Whether the ranks agree on all saves, because they do not make equally many steps."""
        self._settings, self._world, self._agreement, self._gathers = settings, world, agreement, gathers
        self._names: list[str] = []
        self._own_names = 0
        self._saved_in_epoch = self._missed = False
        self._saved_at = time.monotonic()
        self._cost: float | None = None
        self._writing = 0.0
        self._wishes_at = self._time_of_next()

    def decide(self, position: int, step: int, *, ready: bool) -> Wish:
        """Returns what all ranks do at this position.

        `ready`: whether this rank may ask for a save when one is due. Ranks that do not write must not.
        """
        if ready and not self._names and (self._missed or time.monotonic() >= self._wishes_at):
            self._missed = False
            self._agreement.wish(Wish.SAVE)
        self._agreement.steps = step
        return self._agreement.reached(position)

    def due(
        self,
        decision: Wish,
        position: int,
        step: int,
        *,
        ends: bool,
        last: bool,
        postpones: Callable[[], bool],
    ) -> list[str]:
        """Returns the names of the save that is due at this position; none if no save is due.

        The arguments are those of `TrainingSaver.reached`, and what `decide` has returned.
        """
        if decision is not Wish.NOTHING:
            self._names += [f"agreed-{order}" for order in self._agreement.followed] or [self._own_name()]
        due = last or self._counted(step, ends=ends)
        if due and self.agrees and not last:
            self._agreement.wish(Wish.SAVE)
            due = False
        if (self._names or due) and not last and decision is not Wish.STOP and postpones():
            self._names += [f"at-{position}"] * due
            return []
        names, self._names, self.step = self._names, [], step
        # Ranks with different numbers of batches may agree at a place where another save is due on some of them. They
        # meet at the end of the epoch: there, rank 0 gets all states if it saves.
        if due or (ends and (names or (self._saved_in_epoch and not self._gathers))):
            names.append(f"at-{position}")
        self._saved_in_epoch = not ends and (self._saved_in_epoch or bool(names))
        return names

    def begun(self, seconds: float) -> None:
        """Notes that a save has begun, for which training has waited for `seconds`."""
        self._saved_at, self._cost = time.monotonic(), seconds
        self._wishes_at = self._time_of_next()

    def written(self, seconds: float) -> None:
        """Notes how many seconds it took to write a save."""
        self._writing = seconds
        self._wishes_at = self._time_of_next()

    def make_up(self) -> None:
        """Saves as soon as all ranks agree, because the last save was skipped or has failed."""
        self._missed = True

    def _own_name(self) -> str:
        """A name that other ranks may use, too, so that rank 0 notices immediately if they are at other steps."""
        self._own_names += 1
        return f"own-{self._own_names}"

    def _counted(self, step: int, *, ends: bool) -> bool:
        every = self._settings.every_steps
        if every is not None:
            return step // every > self.step // every  # The program may have made several steps between two calls.
        return ends and self._settings.every_seconds is None

    def _time_of_next(self) -> float:
        """When this rank asks for the next save; infinity if the program does not save after a number of seconds."""
        every = self._settings.every_seconds
        if every is None:
            return math.inf
        if every == AUTO:
            nodes = self._world.world_size // self._world.local_world_size
            expected = self._settings.mean_time_to_failure or expected_time_to_failure(nodes)
            every = best_interval(expected, self._cost, self._writing)
        return self._saved_at + every
