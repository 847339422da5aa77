"""One recorded fault, and how it is put into a file that may have moved since."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path

FILE = Path(__file__).with_name("mutants.jsonl")
"""One mutant a line."""

CONTEXT = 1
"""Lines above and below a change that must be the same for it to apply."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a few lines in one file."""

    number: int
    file: str
    """From the root of the project."""
    line: int
    """Where the change began when it was recorded, counted from 1."""
    operator: str
    before: tuple[str, ...]
    """The lines that are replaced, with those around them."""
    after: tuple[str, ...]
    equivalent: str = ""
    """Why no test can notice it; empty where one could."""

    def __str__(self) -> str:
        return f"{self.number:03} {self.file}:{self.line} {self.operator}"

    @property
    def change(self) -> tuple[str, str]:
        """What was there and what is there instead, for a person."""
        old, new = _core(self.before, self.after), _core(self.after, self.before)
        return " ".join(line.strip() for line in old), " ".join(line.strip() for line in new)

    def place(self, source: str) -> int | None:
        """The line, counted from 0, at which `before` stands now, the nearest if there are several; None: nowhere."""
        lines, size = source.splitlines(), len(self.before)
        places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == self.before]
        return min(places, key=lambda at: abs(at + 1 - self.line), default=None)

    def applied(self, source: str) -> str | None:
        """The source with the fault in it; None where what it changes is not there any more."""
        at = self.place(source)
        if at is None:
            return None
        lines = source.splitlines()
        return "\n".join([*lines[:at], *self.after, *lines[at + len(self.before) :]]) + "\n"


def between(number: int, file: str, operator: str, old: str, new: str) -> Mutant:
    """The mutant that makes one source of another."""
    before, after = old.splitlines(), new.splitlines()
    changes = [
        code for code in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if code[0] != "equal"
    ]
    first, last = changes[0], changes[-1]
    above, below = max(0, first[1] - CONTEXT), CONTEXT
    old, new = tuple(before[above : last[2] + below]), tuple(after[above : last[4] + below])
    return Mutant(number, file, first[1] + 1, operator, old, new)


def recorded() -> list[Mutant]:
    """The sample."""
    lines = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    return [Mutant(**{**line, "before": tuple(line["before"]), "after": tuple(line["after"])}) for line in lines]


def record(mutants: Sequence[Mutant]) -> None:
    """Replaces the sample."""
    lines = (json.dumps(asdict(mutant), ensure_ascii=False) for mutant in mutants)
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _core(lines: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """The lines that the others lack."""
    return (line for line in lines if line not in others)
