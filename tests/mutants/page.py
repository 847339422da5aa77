"""The table of this directory's README.md: the score by part of the programs, and who survived."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import pages

from .mutant import Mutant
from .run import KILLED, NO_MORE, NOT_REACHED, SURVIVED

PAGE = Path(__file__).with_name("README.md")
PART = "mutants"
EQUIVALENT = "equivalent"


def write(units: Mapping[Mutant, str], processes: Mapping[Mutant, str]) -> None:
    """Puts the outcomes into the page; a mutant that no test can notice counts neither way."""
    outcomes = {
        mutant: EQUIVALENT if mutant.equivalent and outcome != KILLED else outcome
        for mutant, outcome in units.items()
    }
    pages.write(PAGE, PART, [*_score(outcomes, processes), "", *_survivors(outcomes, processes)])


def _score(units: Mapping[Mutant, str], processes: Mapping[Mutant, str]) -> Iterator[str]:
    rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in units.items():
        rooms[_room(mutant)][outcome] += 1
    total = sum(rooms.values(), Counter())
    yield "| Part | Mutants | Killed | Survived | Not reached | Equivalent | Gone | Score |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for room, counts in [*sorted(rooms.items()), ("**all**", total)]:
        numbers = (counts[what] for what in (KILLED, SURVIVED, NOT_REACHED, EQUIVALENT, NO_MORE))
        counted = counts.total() - counts[EQUIVALENT] - counts[NO_MORE]
        score = f"{counts[KILLED] / counted:.0%}" if counted else ""
        yield f"| {room} | {counts.total()} | {' | '.join(map(str, numbers))} | {score} |"
    killed = sum(outcome == KILLED for outcome in processes.values())
    yield ""
    yield f"Of those left, {len(processes)} met real processes: {killed} were killed."


def _survivors(units: Mapping[Mutant, str], processes: Mapping[Mutant, str]) -> Iterator[str]:
    yield "| Mutant | Unit tests | Real processes | From | To |"
    yield "| --- | --- | --- | --- | --- |"
    for mutant, outcome in sorted(units.items(), key=lambda one: (one[0].file, one[0].line)):
        if outcome in {SURVIVED, NOT_REACHED, EQUIVALENT}:
            old, new = (text.replace("|", "\\|") for text in mutant.change)
            why = mutant.equivalent or processes.get(mutant, "not run")
            yield f"| {mutant} | {outcome} | {why} | `{old}` | `{new or 'nothing'}` |"


def _room(mutant: Mutant) -> str:
    root, _, path = mutant.file.partition("/")
    parts = Path(path).parts
    return f"{root}/{parts[1]}" if len(parts) > 2 else root
