"""Which tests may notice a mutant, and how long they take."""

import ast
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from coverage import CoverageData

from tests.stages.__main__ import Choice
from tests.stages.changes import concerned
from tests.stages.table import NODES, STAGES

from .covering import REACH, SECONDS
from .covering import name_of as test_of
from .faults import Mutant

UNIT = "tests/unit"

NEAREST = 100
"""So many tests that do not run a mutant's lines meet it, too: in seconds, where all unit tests take minutes."""


class Reach:
    """What is known of the unmutated unit tests: by coverage what they reach, and their seconds."""

    def __init__(self, root: Path, measured: Path) -> None:
        self._data = CoverageData(str(measured / REACH))
        self._data.read()
        self._seconds: dict[str, float] = json.loads((measured / SECONDS).read_text(encoding="utf-8"))
        files = {*self._data.measured_files(), *map(_file, self._seconds)}
        self._sources = {file: (root / file).read_text(encoding="utf-8") for file in files}

    def unit(self, mutant: Mutant) -> Iterator[list[str]]:
        """The unit tests that may notice a mutant, in turns: all that run its lines, the fastest first; the nearest.

        What is imported or cached runs for the first test that needs it, or for none, and others may use it. What a
        process runs that is killed is not known at all.
        """
        own = sorted(self._reaching(mutant) - {""}, key=self._of)
        yield from filter(None, (own, self._nearest(mutant, own)))

    def reached(self, mutant: Mutant) -> bool:
        """Whether a unit test, or an import before all of them, is known to run a mutant's lines."""
        return bool(self._reaching(mutant))

    def _reaching(self, mutant: Mutant) -> set[str]:
        return self._running(mutant.file, {*mutant.head, *mutant.lines})

    def seconds(self, tests: list[str]) -> float:
        """How long these take."""
        return sum(map(self._of, tests))

    def _nearest(self, mutant: Mutant, but: list[str]) -> list[str]:
        """First those that contain what is broken as `module.NAME`, as a table of constants does; then those that run
        lines with its name, run its file, name it or are named after it."""
        module, name = Path(mutant.file).stem, name_of(mutant)
        word, full = re.compile(rf"\b{name or module}\b"), re.compile(rf"\b{module}\.{name or 'NONE'}\b")
        users, of_file = self._using(word), self._running(mutant.file)

        def rank(test: str) -> tuple[bool, int, float]:
            source = self._sources[_file(test)]
            near = (test in users, test in of_file, bool(word.search(source)), module in test)
            return not full.search(source), -sum(near), self._of(test)

        return sorted({*self._seconds}.difference(but), key=rank)[:NEAREST]

    def _using(self, word: re.Pattern[str]) -> set[str]:
        found: set[str] = set()
        for file in self._data.measured_files():
            lines = [number for number, line in enumerate(self._sources[file].splitlines(), 1) if word.search(line)]
            found |= self._running(file, lines) if lines else set()
        return found

    def _running(self, file: str, lines: Collection[int] | None = None) -> set[str]:
        """The tests that run any of a file's lines; "" for an import before all tests."""
        by_line = self._data.contexts_by_lineno(file)
        return {test_of(name) for line in (by_line if lines is None else lines) for name in by_line.get(line, ())}

    def _of(self, test: str) -> float:
        return self._seconds.get(test, 0.0)


def name_of(mutant: Mutant) -> str:
    """What others call the function, class, constant or field that is broken; "" for none of these."""
    name, body = "", ast.parse(mutant.source).body
    while around := next((one for one in body if _first(one) <= mutant.lines.start <= (one.end_lineno or 0)), None):
        match around:
            case ast.ClassDef():
                name, body = around.name, around.body
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return name if around.name.startswith("__") else around.name
            case ast.Assign(targets=[ast.Name(own), *_]) | ast.AnnAssign(target=ast.Name(own)):
                return own
            case _:
                return name
    return name


def _first(statement: ast.stmt) -> int:
    return min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ())))


def _file(test: str) -> str:
    return test.partition("::")[0]


def processes(mutant: Mutant) -> list[list[str]]:
    """Pytest's arguments for the tests with real processes of a mutant's room, as `make test` runs them."""
    choice = Choice(stages=(), full=False, rooms=concerned([mutant.file]), changed=())
    runs = (run for stage in STAGES if not (stage.make or stage.full) for run in choice.runs(stage))
    return [run for run in runs if not {*NODES} & {*run}]
