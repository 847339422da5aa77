"""Where the tests spend their time: by folder, and the slowest tests."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from .processes import Cost
from .recorder import Ran

SLOWEST = 30
KEPT = Path(".tests_cache/costs.json")
"""The costs of each test in the last run."""


def folder_of(test: str) -> str:
    """The folder of a test in the usual form: tests/local, tests/unit/engine."""
    folders = Path(test.partition("::")[0]).parts[:-1]
    return "/".join(folders[: 3 if folders[:2] == ("tests", "unit") else 2])


def table(tests: Iterable[Ran], left: Iterable[str]) -> Iterator[str]:
    """Yields a line for each folder, with the number of its tests that only `make test-full` runs.

    The slowest tests follow.
    """
    folders: dict[str, list[Ran]] = defaultdict(list)
    for test in tests:
        folders[folder_of(test.test)].append(test)
    full = Counter(map(folder_of, left))
    width = max(map(len, {*folders, *full, "folder"}))
    yield f"{'folder':<{width}}{'tests':>7}{'skipped':>9}{'wall':>8}{'CPU s':>8}{'in full':>9}"
    for name in sorted({*folders, *full}):
        ran = folders.get(name, [])
        cost = sum((Cost(test.wall, test.cpu) for test in ran), Cost())
        yield f"{name:<{width}}{row(ran, cost)}{full[name] or '':>9}"
    slowest = sorted((test for ran in folders.values() for test in ran), key=lambda test: test.wall, reverse=True)
    yield "slowest"
    yield from (f"{test.wall:>8.1f}{test.cpu:>8.1f}  {test.test}" for test in slowest[:SLOWEST])


def row(tests: Sequence[Ran], cost: Cost) -> str:
    """The numbers in a line of the table."""
    minutes, seconds = divmod(round(cost.wall), 60)
    skipped = sum(test.skipped for test in tests)
    return f"{len(tests) or '':>7}{skipped or '':>9}{f'{minutes}:{seconds:02}':>8}{cost.cpu:>8.1f}"


def keep(tests: Iterable[Ran]) -> None:
    """Writes the cost of each test to a file."""
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text("".join(f"{json.dumps(asdict(test))}\n" for test in tests))
