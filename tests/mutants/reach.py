"""Which unit tests reach a line, and which tests with real processes belong to a part of the programs."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from coverage import CoverageData

from .mutant import CONTEXT, Mutant

UNIT = "tests/unit"

PROCESSES: Mapping[str, Sequence[str]] = {
    "operator/ddpjob_operator/api/rules": ("tests/cluster/test_crd.py",),
    "operator/ddpjob_operator/api": ("tests/cluster/test_crd.py", "tests/local/test_bad_input.py"),
    "operator/ddpjob_operator/cli/cluster": ("tests/cluster/test_cli.py",),
    "operator/ddpjob_operator/cli": ("tests/local/test_bad_input.py", "tests/local/test_runs.py"),
    "operator/ddpjob_operator/client": ("tests/cluster/test_cli.py",),
    "operator/ddpjob_operator/cluster": ("tests/cluster",),
    "operator/ddpjob_operator/engine": ("tests/model",),
    "operator/ddpjob_operator/local": ("tests/local",),
    "operator/ddpjob_operator/report": ("tests/report",),
    "trainer/ddpjob/": ("tests/training/test_reporting.py", "tests/local/test_integrations.py"),
    "trainer/ddpjob_rank": ("tests/training/test_supervising.py", "tests/training/test_reporting.py"),
    "trainer/ddpjob_trainer/inference": ("tests/training/test_inference.py",),
    "trainer/ddpjob_trainer/group": ("tests/training/test_communication.py", "tests/training/test_stacks.py"),
    "trainer/ddpjob_trainer/data": ("tests/training/test_imagenet.py", "tests/training/test_loading.py"),
    "trainer/ddpjob_supervisor/gang": (
        "tests/training/test_supervising.py",
        "tests/training/test_in_place.py",
    ),
    "trainer/ddpjob_supervisor/page": ("tests/training/test_reporting.py",),
    "trainer/ddpjob_supervisor/preflight": ("tests/training/test_preflight.py",),
    "trainer/ddpjob_supervisor/node": (
        "tests/training/test_starting.py",
        "tests/training/test_supervising.py",
    ),
    "trainer/ddpjob_supervisor/watch": (
        "tests/training/test_stacks.py",
        "tests/training/test_supervising.py",
    ),
    "trainer/ddpjob_supervisor": ("tests/training/test_supervising.py",),
    "trainer/ddpjob_trainer/recording": ("tests/training/test_recording.py",),
    "trainer/ddpjob_trainer/workloads": ("tests/training/test_workloads.py", "tests/training/test_tasks.py"),
    "trainer/ddpjob_trainer": ("tests/training",),
}
"""By the beginning of a path; the longest counts."""


class Reach:
    """What coverage has noted of the unmutated unit tests."""

    def __init__(self, data: Path, root: Path) -> None:
        self._data = CoverageData(str(data))
        self._data.read()
        self._root = root

    def unit(self, mutant: Mutant) -> list[set[str]]:
        """The unit tests that may notice a mutant, in the order in which they are worth running.

        They are those that run its lines. Where an import does, too, they are those that run anything of its file,
        then all, by their directory: what an import leaves behind, such as a constant or a table of moments, any test
        may use, also one that runs no line of the programs itself.
        """
        by_line = self._data.contexts_by_lineno(str(self._root / mutant.file))
        source = (self._root / mutant.file).read_text(encoding="utf-8")
        reached = {name for line in _statements(source, mutant) for name in by_line.get(line, ())}
        turns = [reached]
        if "" in reached:
            of_file = {name for names in by_line.values() for name in names}
            turns = [of_file if reached == {""} else reached, {UNIT}]
        return [tests for turn in turns if (tests := turn - {""})]


def processes(mutant: Mutant) -> Sequence[str]:
    """The tests with real processes that use a mutant's part; none for what only people who develop this run."""
    part = max((path for path in PROCESSES if mutant.file.startswith(path)), key=len, default="")
    return PROCESSES.get(part, ())


def _statements(source: str, mutant: Mutant) -> set[int]:
    """The lines of the statements that a mutant changes, those of a compound one down to its body."""
    place = mutant.place(source)
    assert place is not None, mutant
    changed = range(place + 1, place + 1 + len(mutant.before))[min(CONTEXT, mutant.line - 1) :]
    line = next(line for line in changed if source.splitlines()[line - 1].strip())
    spans = [_span(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    alone = range(line, line + 1)  # An `except` or a `case` is no statement.
    return set(min((span for span in spans if line in span), key=len, default=alone))


def _span(statement: ast.stmt) -> range:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min(one.lineno for one in (*decorators, statement))
    body: list[ast.stmt] | None = getattr(statement, "body", None)
    end = statement.end_lineno or statement.lineno
    return range(first, max(first, body[0].lineno - 1) + 1 if body else end + 1)
