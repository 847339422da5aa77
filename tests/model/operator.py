"""An operator that can be interrupted anywhere."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from ddpjob_operator.cluster.writer import OF_PODS
from ddpjob_operator.engine import Action, Decision, Refusal, decide

from tests.unit.engine.builders import with_nobody_steady

from .promises import check_budget, check_groups_of_gang, check_quiet_queue, check_said, check_words
from .world import World

RETRY = timedelta(seconds=5)
MOMENT = timedelta(milliseconds=1)
LONG = timedelta(days=1000)


@dataclass
class Operator:
    """Reads the state, writes the status, and acts. It may die after any step, and remembers nothing that matters."""

    world: World
    seen: int = 0
    """The job's version when the operator last read it."""
    decision: Decision = field(default_factory=Decision)
    to_do: list[Action] = field(default_factory=list)
    refused: bool = False
    """Whether anything was refused in this round."""
    refusal: Refusal | None = None

    def look(self) -> None:
        """Decides from the present state."""
        if self.world.deleted:
            self.die()
            return
        snapshot = self.world.seen(self.refusal)
        self.seen, self.decision, self.refused = self.world.version, decide(snapshot), False
        self.world.books.looks(self.world)
        self.to_do = [] if self.decision.status else list(self.decision.actions)
        wake_at = self.decision.wake_at
        assert decide(snapshot) == self.decision, "the same moment, the same decision"
        assert decide(with_nobody_steady(snapshot)) == self.decision, "a steady pod changes no decision"
        assert wake_at is None or wake_at > self.world.now
        check_words(snapshot, self.decision)
        check_said(snapshot, self.decision)
        check_groups_of_gang(snapshot, self.decision)
        check_budget(snapshot, self.decision)
        check_quiet_queue(self.world, snapshot, self.decision)
        if self.decision.empty:
            until = self.world.now + LONG if wake_at is None else wake_at - MOMENT
            later = decide(replace(snapshot, now=max(until, self.world.now)))
            kinds = [type(action).__name__ for action in later.actions]
            assert later.empty, f"wakes at {wake_at}, before which there is to be done {kinds}, said: {later.status}"

    def write(self) -> None:
        """Writes the status that was decided on. The write is refused if the job has changed since it was read."""
        status = self.decision.status
        if status is None:
            return
        if self.seen != self.world.version:
            self.decision, self.to_do = Decision(), []
            return
        self.world.write(status)
        self.to_do, self.decision = list(self.decision.actions), Decision(wake_at=self.decision.wake_at)

    def act(self) -> None:
        """Carries out the next action."""
        if not self.to_do:
            return
        action = self.to_do.pop(0)
        if not self.world.carry_out(action, self.seen):
            self.refused = True
            if not isinstance(action, OF_PODS):  # The remaining actions need the object that could not be created.
                self.to_do.clear()
        if not self.to_do:
            retry_at = self.world.now + RETRY
            self.refusal = Refusal("QuotaExceeded", "exceeded quota", retry_at) if self.refused else None

    def die(self) -> None:
        """Forgets everything, as a new process would."""
        self.decision, self.to_do, self.refusal = Decision(), [], None

    def round(self) -> None:
        """Runs a whole round without a fault."""
        self.look()
        self.write()
        while self.to_do:
            self.act()
