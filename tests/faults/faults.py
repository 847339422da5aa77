"""What is broken, as data: which request or event of a watch, and what happens to it."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .calls import Call, Place

ASKED_ONCE_MORE = frozenset({"get", "list", "watch", "delete"})
"""What has no other effect when it is done twice, HTTP's clients ask once more at once where a connection breaks, as
RFC 9112 has it in section 9.3.1. Who asks hears of the second time alone."""


@dataclass(frozen=True, slots=True)
class On:
    """Which requests, or which events of watches: what stands here, and the n-th of those."""

    verb: str
    resource: str
    subresource: str = ""
    place: Place | None = None
    word: str = ""
    """A pattern, as for names of files: `attempt-1-*-created`."""
    nth: int = 1
    times: int = 1
    """How many in a row, from the n-th on;"""
    seconds: float = 0.0
    """or all, for so long."""

    def covers(self, call: Call) -> bool:
        """Whether it is one of those."""
        return (
            (self.verb, self.resource, self.subresource) == (call.verb, call.resource, call.subresource)
            and self.place in {None, call.place}
            and (not self.word or fnmatchcase(call.word, self.word))
        )


@dataclass(frozen=True, slots=True)
class Crash:
    """The operator is killed, and another one started: before the server hears of the request, or after."""

    after: bool

    def __str__(self) -> str:
        return "killed after it" if self.after else "killed before it"


@dataclass(frozen=True, slots=True)
class Lost:
    """The server does what it is asked, and its answer does not arrive."""

    def __str__(self) -> str:
        return "its answer is lost"


@dataclass(frozen=True, slots=True)
class Answer:
    """The server hears nothing of it; this is the answer."""

    status: int
    reason: str
    retry_after: int | None = None
    body: str | None = None
    """Instead of a Status object."""

    def __str__(self) -> str:
        return "half an answer" if self.body else str(self.status)


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is torn down, and the server hears nothing."""

    def __str__(self) -> str:
        return "connection reset"


@dataclass(frozen=True, slots=True)
class Hang:
    """The server hears of it late, when nobody may wait for the answer any more."""

    seconds: float = 20.0

    def __str__(self) -> str:
        return f"arrives {self.seconds:.0f} s late"


@dataclass(frozen=True, slots=True)
class Drop:
    """This event is never told."""

    def __str__(self) -> str:
        return "never told"


@dataclass(frozen=True, slots=True)
class Lag:
    """From this event on, a watch is behind by so many events, or by a moment of silence."""

    events: int

    def __str__(self) -> str:
        return f"{self.events} event{'s' if self.events > 1 else ''} behind"


@dataclass(frozen=True, slots=True)
class Gone:
    """Instead of this event: 410, what you want to hear of is too long ago; then the watch ends."""

    def __str__(self) -> str:
        return "410 as an event"


@dataclass(frozen=True, slots=True)
class Truncate:
    """Half a line, then the end of the stream."""

    def __str__(self) -> str:
        return "half a line"


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """This event and all later ones are never told, and the connection stays."""

    def __str__(self) -> str:
        return "silent, and stays open"


@dataclass(frozen=True, slots=True)
class Remember:
    """Nothing yet: what is so when this has just been done is what a later process sees."""

    def __str__(self) -> str:
        return "in the middle of a stage"


Effect = Crash | Lost | Answer | Reset | Hang | Drop | Lag | Gone | Truncate | HalfOpen | Remember


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

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
    """When, by the clock of the loop."""

    def strikes(self, call: Call, now: float) -> bool:
        """Whether it befalls this one."""
        if not self.fault.on.covers(call):
            return False
        self.seen += 1
        on = self.fault.on
        lasts = bool(self.fired) and now - self.fired[0] < on.seconds
        struck = on.nth <= self.seen < on.nth + on.times or lasts
        if struck:
            self.fired.append(now)
        return struck
