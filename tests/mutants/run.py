"""Runs the sample: each mutant with the unit tests that reach it, survivors with tests of real processes."""

import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from .copies import ROOT, Copy
from .covering import ONLY
from .mutant import Mutant
from .reach import UNIT, Reach, processes

AT_A_TIME = 2

KILLED, SURVIVED, NOT_REACHED, NO_MORE = "killed", "survived", "not reached", "does not apply any more"

OF_SPEED = "tests/unit/rank/test_heartbeats.py::test_the_call_is_cheap"
"""It fails where coverage counts, and elsewhere by luck."""

PYTEST = ("-m", "pytest", "-x", "-p", "tests.mutants.covering", "--deselect", OF_SPEED)
FAILED = frozenset({1, 2, 3, 4})
"""pytest's exit codes where a test fails, or where tests or a conftest cannot even be imported."""

LEAST_SECONDS, TIMES = 30.0, 2
"""A mutant hangs, and is noticed, where its tests take longer than so many times all unit tests under coverage."""

PROCESS_SECONDS = 1200.0
"""As above, for the tests of one part with real processes."""


class Runner:
    """A few copies of the project, and which unmutated unit tests reach what in them."""

    def __init__(self, directory: Path) -> None:
        """Copies the project, and runs its unit tests as they are.

        Raises:
            SystemExit: One fails without any mutant.
        """
        copy = Copy.made(ROOT, directory / "0")
        measured = ("-m", "coverage", "run", "--data-file=reach", "--source=operator,trainer", *PYTEST)
        began = time.monotonic()
        if copy.run(3600, *measured, UNIT, env={}) != os.EX_OK:
            raise SystemExit(copy.said)
        self._seconds = max(LEAST_SECONDS, TIMES * (time.monotonic() - began))
        self._reach = Reach(copy.root / "reach", copy.root)
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        self._free.put(copy)
        for number in range(1, AT_A_TIME):
            self._free.put(Copy.made(ROOT, directory / str(number)))

    def units(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant with the unit tests that reach it."""
        return self._each(mutants, self._unit)

    def processes(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant with the tests of its part that start real processes."""
        return self._each(mutants, self._process)

    def _each(self, mutants: Sequence[Mutant], test: Callable[[Copy, Mutant], str]) -> Iterator[tuple[Mutant, str]]:
        def outcome(mutant: Mutant) -> str:
            with self._copy() as copy:
                return test(copy, mutant)

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            yield from zip(mutants, pool.map(outcome, mutants), strict=True)

    @contextmanager
    def _copy(self) -> Iterator[Copy]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def _unit(self, copy: Copy, mutant: Mutant) -> str:
        if mutant.applied((copy.root / mutant.file).read_text(encoding="utf-8")) is None:
            return NO_MORE
        outcome = NOT_REACHED
        for tests in self._reach.unit(mutant):
            only = copy.root / "only"
            only.write_text("\n".join(tests), encoding="utf-8")
            files = sorted({test.partition("::")[0] for test in tests})
            outcome = _said(copy, mutant, self._seconds, files, {} if tests == {UNIT} else {ONLY: str(only)})
            if outcome == KILLED:
                break
        return outcome

    def _process(self, copy: Copy, mutant: Mutant) -> str:
        return _said(copy, mutant, PROCESS_SECONDS, processes(mutant), {})


def _said(copy: Copy, mutant: Mutant, seconds: float, tests: Sequence[str], env: dict[str, str]) -> str:
    with copy.mutated(mutant):
        code = copy.run(seconds, *PYTEST, *tests, env=env)
    if code == os.EX_OK:
        return SURVIVED
    assert code is None or code < 0 or code in FAILED, f"no test has run for {mutant}: {copy.said}"
    return KILLED
