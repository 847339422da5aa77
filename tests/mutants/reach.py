"""Which tests may notice a mutant, and how long they take."""

import json
from collections.abc import Iterator
from pathlib import Path

from coverage import CoverageData

from tests.stages.__main__ import Choice
from tests.stages.changes import concerned
from tests.stages.table import NODES, STAGES

from .faults import Mutant

UNIT = "tests/unit"


class Reach:
    """What is known of the unmutated unit tests: by coverage what they reach, and their seconds."""

    def __init__(self, root: Path, data: str, seconds: str) -> None:
        self._data = CoverageData(str(root / data))
        self._data.read()
        self._root = root
        self._seconds: dict[str, float] = json.loads((root / seconds).read_text(encoding="utf-8"))

    def unit(self, mutant: Mutant) -> Iterator[list[str]]:
        """The unit tests that may notice a mutant, in turns, the fastest of each first.

        They are those that run its lines or, where only an import does, those that run anything of its file; then
        all: what an import or another test leaves behind, such as a constant or a moment of a table, any test may
        use, also one that runs no line of the programs itself.
        """
        by_line = self._data.contexts_by_lineno(str(self._root / mutant.file))
        reached = {name for line in {*mutant.head, *mutant.lines} for name in by_line.get(line, ())}
        of_file = {name for names in by_line.values() for name in names}
        turns = [of_file if reached == {""} else reached, {*self._seconds}] if reached else []
        return (sorted(tests, key=self._of) for turn in turns if (tests := turn - {""}))

    def seconds(self, tests: list[str]) -> float:
        """How long these take."""
        return sum(map(self._of, tests))

    def _of(self, test: str) -> float:
        return self._seconds.get(test, 0.0)


def processes(mutant: Mutant) -> list[list[str]]:
    """Pytest's arguments for the tests with real processes of a mutant's room, as `make test` runs them."""
    choice = Choice(stages=(), full=False, rooms=concerned([mutant.file]), changed=())
    runs = (run for stage in STAGES if not (stage.make or stage.full) for run in choice.runs(stage))
    return [run for run in runs if not {*NODES} & {*run}]
