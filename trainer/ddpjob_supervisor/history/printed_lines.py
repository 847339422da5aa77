"""Divides what a node prints into lines, as a terminal finally shows them, with its secrets masked. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from .secret_values import SecretValues
from .segments import LONGEST_LINE


@dataclass(slots=True)
class PrintedLines:
    """The lines of one stream. Keeps LONGEST_LINE bytes and the longest secret of a line that is not finished yet."""

    secret: SecretValues
    _rest: bytes = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bool]]:
        """The lines that end in this chunk, or are too long. The flag says if the next text continues the line."""
        lines, newline, rest = (self._rest + chunk).rpartition(b"\n")
        if newline:  # No secret has more than one line, so all lines are masked at once.
            for line in self.secret.masked_bytes(lines).split(b"\n"):
                yield from _shown(line)
        # A carriage return at the end does not count yet: until more arrives, the text before it is still shown.
        rest = rest[max(0, rest.rfind(b"\r", 0, len(rest) - 1)) :]
        if len(rest) > LONGEST_LINE + self.secret.longest:  # A secret at the end of a piece has arrived as a whole.
            rest = self.secret.masked_bytes(rest)
        while len(rest) > LONGEST_LINE + self.secret.longest:
            end = _whole_characters(rest, LONGEST_LINE)
            yield rest[:end].decode(errors="replace"), True
            rest = rest[end:]
        self._rest = rest

    def finish(self) -> Iterator[tuple[str, bool]]:
        """The line that is not finished."""
        rest, self._rest = self._rest, b""
        yield from _shown(self.secret.masked_bytes(rest)) if rest else ()


def _shown(line: bytes) -> Iterator[tuple[str, bool]]:
    """A line in pieces; nothing if it has erased itself, as a progress bar that is done does."""
    *former, last = line.removesuffix(b"\r").split(b"\r")
    if former and not last.strip():
        return
    text = last.decode(errors="replace")
    for start in range(0, max(1, len(text)), LONGEST_LINE):
        yield text[start : start + LONGEST_LINE], start + LONGEST_LINE < len(text)


def _whole_characters(text: bytes, end: int) -> int:
    """The largest number up to `end` at which UTF-8 can be divided."""
    for earlier in range(end, max(0, end - 4), -1):
        if text[earlier] & 0xC0 != 0x80:  # noqa: PLR2004  (a continuation byte)
            return earlier
    return end
