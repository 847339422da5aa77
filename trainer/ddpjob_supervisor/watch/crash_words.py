"""Parses what a process prints on stderr before it crashes, because no Python exception gives the reason then.

Pure.
"""

import re
from dataclasses import dataclass, field

from .frames import FRAME, Frame, location

UNCAUGHT = re.compile(r"terminate called after throwing an instance of '(?P<kind>[^']{1,200})'")
"""An exception that C++ code does not catch, as libstdc++ prints it. The exception's message is on the next line."""
WHAT = "  what():  "

FATAL = re.compile(
    r"terminate called without an active exception|Assertion `|\*\*\* [^*]{1,100} \*\*\*: terminated"
    r"|^(?:malloc|free|realloc|munmap_chunk)[\w ]{0,20}\(\): |^double free or |^corrupted (?:size|double-linked) "
)
"""The message of a failed assertion in C code, or of the C library when it finds its memory corrupted."""

CRASHED = "Current thread 0x"
"""The heading that faulthandler prints above the stack of the thread that crashed."""


@dataclass(slots=True)
class CrashWords:
    """Why and where one process crashes, according to its stderr, which is passed in line by line."""

    kind: str | None = None
    """The type of the C++ exception."""
    said: str = ""
    """The last explanation; empty if none was printed."""
    _frames: list[Frame] = field(default_factory=list)
    _crashed: bool = False
    """Whether the next line may be a frame of the thread that crashed."""

    def hear(self, line: str) -> None:
        """Parses the next line."""
        frame = FRAME.match(line) if self._crashed else None
        self._crashed = frame is not None
        if frame is not None:
            self._frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
        elif line.startswith(CRASHED):
            self._frames, self._crashed = [], True
        elif match := UNCAUGHT.search(line):
            self.kind, self.said = match["kind"], ""
        elif self.kind is not None and not self.said and line.startswith(WHAT):
            self.said = line.removeprefix(WHAT).strip()
        elif FATAL.search(line):
            self.kind, self.said = None, line.strip()

    @property
    def where(self) -> str | None:
        """Where the thread that crashed was; None if its stack was not printed."""
        return location(self._frames)
