"""Run by hand: `python -m tests.stages`, with `--full` for all tests, or with names of stages to run only these."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.seed import SEED

from .changes import changed_files, concerned, near
from .costs import keep, row, table
from .processes import Cost, adopt_orphans, run
from .recorder import Record, command, flags
from .retry import LIST, MOST_FLAKY, Verdict, judge, line
from .table import STAGES, Stage


@dataclass(frozen=True)
class Choice:
    """Selects the tests to run: which stages, which rooms, and whether to include tests that are marked as full.

    stages   names of the stages; empty for all
    rooms    files and folders with the tests that a change concerns; None for all
    changed  files whose failed tests do not get a second run
    """

    stages: Collection[str]
    full: bool
    rooms: Collection[str] | None
    changed: Collection[str]

    def runs(self, stage: Stage) -> list[list[str]]:
        """The arguments of each run of pytest in a stage that contains any of these tests."""
        marked = [] if self.full else ["-m", "not full"]
        chosen = [([part for test in run.tests for part in self._concerned(test)], run.flags) for run in stage.runs]
        return [[*tests, *flags, *marked] for tests, flags in chosen if tests]

    def _concerned(self, test: str) -> list[str]:
        """The file or folder itself, or those parts of it that the change concerns."""
        if self.rooms is None or any(f"{test}/".startswith(f"{room}/") for room in self.rooms):
            return [test]
        return sorted(room for room in self.rooms if room.startswith(f"{test}/"))

    def has(self, stage: Stage) -> bool:
        """Whether anything in a stage has to run."""
        if stage.full and not self.stages and (not self.full or self.rooms is not None):
            return False
        return bool(stage.make or self.runs(stage)) and (not self.stages or stage.name in self.stages)


@dataclass
class Done:
    """A stage that has run."""

    stage: Stage
    cost: Cost = field(default_factory=Cost)
    record: Record = field(default_factory=Record)
    verdict: Verdict = field(default_factory=lambda: Verdict([], []))
    broken: bool = False
    """Whether the stage ended before single tests could be judged: a make target failed, or tests could not be
    collected."""

    @property
    def row(self) -> str:
        """The stage's row in the table."""
        return row(self.record.tests, self.cost)


def main() -> int:
    """Runs the stages and reports their results."""
    choice = _choice(sys.argv[1:])
    adopt_orphans()
    # Ctrl-C is meant for the programs that run. Their exit codes show here that they were interrupted.
    signal.signal(signal.SIGINT, lambda *_: None)
    done: list[Done] = []
    for stage in filter(choice.has, STAGES):
        print(f"== {stage.name}", flush=True)
        done.append(_make(stage) if stage.make else _pytest(stage, choice))
        if done[-1].broken:
            break
    return _tell(done)


def _choice(words: Sequence[str]) -> Choice:
    parser = argparse.ArgumentParser(prog="python -m tests.stages", description="The project's tests, in stages.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(stage.name for stage in STAGES)}")
    parser.add_argument("--full", action="store_true", help="also the tests that are marked as full")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--changed-since", metavar="BASE", help="in full, those that changes since then concern")
    change.add_argument("--near", metavar="BASE", help="of those the few that say most in minutes")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.stages) - {stage.name for stage in STAGES}:
        parser.error(f"no stage {', '.join(sorted(unknown))}")
    base = arguments.changed_since if arguments.near is None else arguments.near
    try:
        changed = changed_files(base)
    except ValueError as error:
        parser.error(str(error))
    if base is None:
        return Choice(arguments.stages, arguments.full, None, changed)
    if arguments.near is not None:
        return Choice(arguments.stages, arguments.full, near(changed), changed)
    return Choice(arguments.stages, full=True, rooms=concerned(changed), changed=changed)


def _make(stage: Stage) -> Done:
    """Runs a make target. Tests that it runs are recorded, too."""
    with tempfile.TemporaryDirectory() as folder:
        (code,), cost = run(["make", "--no-print-directory", stage.make, f"RECORD={' '.join(flags(Path(folder)))}"])
        record = Record.read(Path(folder))
    return Done(stage, cost, record, Verdict([], list(record.failures)), broken=code != 0)


def _pytest(stage: Stage, choice: Choice) -> Done:
    codes, record, cost = _recorded(*choice.runs(stage))
    again = Cost()

    def passes_alone(test: str) -> bool:
        nonlocal again
        print(f"== once more, alone: {test}", flush=True)
        (code,), _, took = _recorded([test])
        again += took
        return code == pytest.ExitCode.OK

    verdict = judge(record.failures, choice.changed, passes_alone)
    told = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}
    return Done(stage, cost + again, record, verdict, broken=not told.issuperset(codes))


def _recorded(*runs: list[str]) -> tuple[list[int], Record, Cost]:
    """Runs pytest once for each list of arguments. Returns the exit codes, the record, and the cost."""
    with tempfile.TemporaryDirectory() as folder:
        codes, cost = run(*(command(Path(folder), arguments) for arguments in runs))
        return codes, Record.read(Path(folder)), cost


def _tell(done: list[Done]) -> int:
    flaky = [failure for one in done for failure in one.verdict.flaky]
    failed = [failure for one in done for failure in one.verdict.failed]
    tests = [test for one in done for test in one.record.tests]
    keep(tests)
    for failure in flaky:
        print(f"\n== FLAKY, passed alone: {failure.test}\n{failure.output}")
    print("", *table(tests, [test for one in done for test in one.record.left]), "", sep="\n")
    print(f"{'stage':<12}{'tests':>7}{'skipped':>9}{'wall':>8}{'CPU s':>8}")
    for one in done:
        print(f"{one.stage.name:<12}{one.row}")
    whole = sum((one.cost for one in done), Cost())
    print(f"{'all':<12}{row(tests, whole)}")
    for word, failures in (("FLAKY", flaky), ("FAILED", failed)):
        for failure in failures:
            print(f"{word:<8}{failure.test}", *failure.why, sep="\n        ")
    for one in done:
        if one.broken:
            print(f"BROKEN  {one.stage.name}: what came after it was not tried")
    if flaky:
        print("", f"For {LIST}:", *map(line, flaky), sep="\n")
    if len(flaky) > MOST_FLAKY:
        print(f"{len(flaky)} flaky tests are too many: at most {MOST_FLAKY} pass as such")
    print(f"What was drawn by chance: TEST_SEED={SEED}")
    return int(Verdict(flaky, failed).is_red or any(one.broken for one in done))


if __name__ == "__main__":
    sys.exit(main())
