"""`python -m tests.mutants`: runs the recorded mutants and writes the page; `sample` draws anew."""

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import page
from .mutant import Mutant, record, recorded
from .reach import processes
from .run import KILLED, NO_MORE, Runner

COUNT, SEED = 300, 21


def main() -> None:
    """Runs the sample, or draws another."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the recorded mutants and write the page")
    run.add_argument(
        "--processes", type=int, default=20, help="so many survivors of the unit tests meet real processes"
    )
    commands.add_parser("sample", help="draw the mutants anew from the programs as they are")
    arguments = parser.parse_args()
    if arguments.command == "sample":
        from .sample import sample  # noqa: PLC0415  (cosmic-ray takes long to import)

        record(sample(COUNT, SEED))
    else:
        _run(arguments.processes)


def _told(outcomes: Iterable[tuple[Mutant, str]]) -> Iterator[tuple[Mutant, str]]:
    for one, outcome in outcomes:
        print(one, outcome, sep=": ", flush=True)
        yield one, outcome


def _run(most: int) -> None:
    mutants = recorded()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        runner = Runner(Path(directory))
        units = dict(_told(runner.units(mutants)))
        alive = (one for one in mutants if units[one] not in {KILLED, NO_MORE} and not one.equivalent)
        left = [one for one in alive if processes(one)]
        page.write(units, dict(_told(runner.processes(left[:most]))))


if __name__ == "__main__":
    main()
