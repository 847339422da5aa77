"""Faults, as data: which request or event of a watch is affected, and what happens to it."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .calls import Call, Place

ASKED_ONCE_MORE = frozenset({"get", "list", "watch", "delete"})
"""Verbs that HTTP clients repeat immediately if a connection breaks, because a repetition has no other effect (RFC
9112, section 9.3.1). The caller sees only the result of the second request."""


@dataclass(frozen=True, slots=True)
class On:
    """Selects requests or events of watches: those that match all fields, beginning with the n-th."""

    verb: str
    resource: str
    subresource: str = ""
    place: Place | None = None
    word: str = ""
    """A pattern, as for file names: `attempt-1-*-created`."""
    nth: int = 1
    times: int = 1
    """How many are affected in a row, beginning with the n-th."""
    seconds: float = 0.0
    """For how many seconds all of them are affected instead."""

    def covers(self, call: Call) -> bool:
        """Whether a call matches the fields."""
        return (
            (self.verb, self.resource, self.subresource) == (call.verb, call.resource, call.subresource)
            and self.place in {None, call.place}
            and (not self.word or fnmatchcase(call.word, self.word))
        )


@dataclass(frozen=True, slots=True)
class Crash:
    """The operator is killed before the server receives the request or after it has acted, and another starts."""

    after: bool

    def __str__(self) -> str:
        return "killed after it" if self.after else "killed before it"


@dataclass(frozen=True, slots=True)
class Lost:
    """The server does what is requested, but its answer is lost."""

    def __str__(self) -> str:
        return "its answer is lost"


@dataclass(frozen=True, slots=True)
class Answer:
    """This is the answer. The server does not receive the request."""

    status: int
    reason: str
    retry_after: int | None = None
    body: str | None = None
    """The body of the answer, in place of a Status object."""

    def __str__(self) -> str:
        return "half an answer" if self.body else str(self.status)


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset, and the server receives nothing."""

    def __str__(self) -> str:
        return "connection reset"


@dataclass(frozen=True, slots=True)
class Hang:
    """The server receives the request late, when nobody waits for the answer any more."""

    seconds: float = 20.0

    def __str__(self) -> str:
        return f"arrives {self.seconds:.0f} s late"


@dataclass(frozen=True, slots=True)
class Drop:
    """This event is never delivered."""

    def __str__(self) -> str:
        return "never told"


@dataclass(frozen=True, slots=True)
class Lag:
    """From this event on, a watch is behind by some events, until nothing has happened for a moment."""

    events: int

    def __str__(self) -> str:
        return f"{self.events} event{'s' if self.events > 1 else ''} behind"


@dataclass(frozen=True, slots=True)
class Gone:
    """In place of this event comes error 410, which means that the requested version is too old.

    Then the watch ends.
    """

    def __str__(self) -> str:
        return "410 as an event"


@dataclass(frozen=True, slots=True)
class Truncate:
    """Half a line arrives, then the stream ends."""

    def __str__(self) -> str:
        return "half a line"


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """Neither this event nor any later one is delivered, but the connection remains open."""

    def __str__(self) -> str:
        return "silent, and stays open"


@dataclass(frozen=True, slots=True)
class Remember:
    """Nothing happens now. A later process sees the state as it is just after this request."""

    def __str__(self) -> str:
        return "in the middle of a stage"


Effect = Crash | Lost | Answer | Reset | Hang | Drop | Lag | Gone | Truncate | HalfOpen | Remember


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what it affects, and what happens."""

    on: On
    effect: Effect

    def __str__(self) -> str:
        return f"{self.effect} for {self.on.seconds:.0f} s" if self.on.seconds else str(self.effect)


@dataclass
class Armed:
    """A fault that waits for its moment."""

    fault: Fault
    seen: int = 0
    fired: list[float] = field(default_factory=list)
    """When the fault struck, on the event loop's clock."""

    def strikes(self, call: Call, now: float) -> bool:
        """Whether the fault strikes this call."""
        if not self.fault.on.covers(call):
            return False
        self.seen += 1
        on = self.fault.on
        lasts = bool(self.fired) and now - self.fired[0] < on.seconds
        struck = on.nth <= self.seen < on.nth + on.times or lasts
        if struck:
            self.fired.append(now)
        return struck
