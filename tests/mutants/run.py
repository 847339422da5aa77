"""Runs mutants: each with the unit tests that reach it and with mypy, some that survive with real processes."""

import os
import queue
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .copies import Copy, digest
from .covering import FAILURES, MEASURED, ONLY, REACH
from .faults import Mutant
from .reach import UNIT, Reach, processes

NOTICED, SURVIVED, NOT_REACHED = "noticed", "survived", "not reached"

KEPT = Path(".tests_cache/mutants")

OF_SPEED = "tests/unit/rank/test_heartbeats.py::test_the_call_is_cheap"
"""It fails where coverage counts, and elsewhere by luck."""

PYTEST = ("-m", "pytest", "-p", "tests.mutants.covering", "--deselect", OF_SPEED)
FIRST_FAILURE = "--exitfirst"
FEW_FAILURES = "--maxfail=4"
"""Without any mutant, a few tests may fail on a busy machine, if they pass alone."""
FAILED = frozenset({1, 2, 3, 4})
"""pytest's exit codes where a test fails, or where tests or a conftest cannot even be imported; among them mypy's."""

LEAST_SECONDS, TIMES = 30.0, 5
"""A mutant hangs, and is noticed, where its tests take longer than this and so many times what they took before."""

PROCESS_SECONDS = 1800.0
"""As above, for one run of tests with real processes."""


class Runner:
    """A few copies of the project, and which unmutated unit tests reach what in them."""

    def __init__(self, source: Path, directory: Path) -> None:
        """Copies the project, and runs its unit tests as they are, unless that has been done.

        Raises:
            SystemExit: One fails without any mutant, also alone.
        """
        copies = [Copy.made(source, directory / str(number)) for number in range(len(os.sched_getaffinity(0)))]
        self._reach = Reach(copies[0].root, _measured(source, copies[0]))
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            self._free.put(copy)
        self._at_a_time = len(copies)

    def units(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant with the unit tests that reach it, the fastest first, then with mypy."""
        return self._each(mutants, self._unit, self._at_a_time)

    def processes(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant with the tests of its room that start real processes; these take all the cores."""
        return self._each(mutants, _process, 1)

    def _each(
        self, mutants: Sequence[Mutant], test: Callable[[Copy, Mutant], str], at_a_time: int
    ) -> Iterator[tuple[Mutant, str]]:
        def outcome(mutant: Mutant) -> str:
            copy = self._free.get()
            try:
                with copy.mutated(mutant):
                    return test(copy, mutant)
            finally:
                self._free.put(copy)

        with ThreadPoolExecutor(at_a_time) as pool:
            yield from zip(mutants, pool.map(outcome, mutants), strict=True)

    def _unit(self, copy: Copy, mutant: Mutant) -> str:
        for tests in self._reach.unit(mutant):
            only = copy.root / "only"
            only.write_text("\n".join(tests), encoding="utf-8")
            files = sorted({test.partition("::")[0] for test in tests})
            seconds = LEAST_SECONDS + TIMES * self._reach.seconds(tests)
            if not _passes(copy, mutant, seconds, *PYTEST, FIRST_FAILURE, *files, only=str(only)):
                return NOTICED
        if not _passes(copy, mutant, PROCESS_SECONDS, "-m", "mypy"):
            return NOTICED
        return SURVIVED if self._reach.reached(mutant) else NOT_REACHED


def _measured(source: Path, copy: Copy) -> Path:
    """What the unit tests of a project reach, measured in a copy of it or, for the same files, by an earlier run."""
    found = source / KEPT / digest(source)
    if not found.is_dir():
        (copy.root / MEASURED).mkdir()
        data = f"--data-file={MEASURED / REACH}"
        run = ("run", "--parallel-mode", data, "--source=operator,trainer", *PYTEST, FEW_FAILURES, UNIT)
        failures = copy.root / MEASURED / FAILURES
        if copy.run(3600, "-m", "coverage", *run, env={}) != os.EX_OK:
            said = copy.said
            if not failures.exists() or copy.run(3600, *PYTEST, UNIT, env={ONLY: str(failures)}) != os.EX_OK:
                raise SystemExit(said)
        if copy.run(3600, "-m", "coverage", "combine", data, str(MEASURED), env={}) != os.EX_OK:
            raise SystemExit(copy.said)
        shutil.rmtree(found.parent, ignore_errors=True)
        shutil.copytree(copy.root / MEASURED, partly := found.with_suffix(".partly"))
        partly.rename(found)
    return found


def _process(copy: Copy, mutant: Mutant) -> str:
    passed = all(
        _passes(copy, mutant, PROCESS_SECONDS, *PYTEST, FIRST_FAILURE, *tests) for tests in processes(mutant)
    )
    return SURVIVED if passed else NOTICED


def _passes(copy: Copy, mutant: Mutant, seconds: float, *command: str, only: str = "") -> bool:
    code = copy.run(seconds, *command, env={ONLY: only})
    assert code is None or code < 0 or code in {os.EX_OK, *FAILED}, f"nothing has run for {mutant}: {copy.said}"
    return code == os.EX_OK
