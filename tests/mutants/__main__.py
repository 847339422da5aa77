"""`python -m tests.mutants`: breaks what differs from a base, one line at a time, and tells what no test notices."""

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .change import changed, drawn, room, since
from .faults import Mutant
from .run import NOT_REACHED, NOTICED, SURVIVED, Runner

ROOT = Path(__file__).resolve().parents[2]

MOST_BYTES = 8 << 30
"""A mutant that only grows ends here, before the machine's memory does."""


def main() -> int:
    """Draws the mutants, runs them, and lists the survivors."""
    arguments = _arguments()
    try:
        base = since(ROOT, arguments.base)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    lines = changed(ROOT, base)
    mutants = drawn(ROOT, lines, arguments.seed, arguments.per_room)
    if not mutants:
        print(f"No code differs from {base[:8]}: there is nothing to break.")
        return 0
    print(
        f"{sum(map(len, lines.values()))} lines in {len(lines)} files differ from {base[:8]}:"
        f" {len(mutants)} mutants, drawn by SEED={arguments.seed}",
        flush=True,
    )
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # What runs is killed, copies are removed.
    os.environ["TEST_SEED"] = str(arguments.seed)  # What the tests themselves draw is the same with each fault, too.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        _run(mutants, Runner(ROOT, Path(directory)), arguments.processes, random.Random(arguments.seed))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--base", default="", help="where the change began (main; on main, a day ago)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="draw as a run did that printed it")
    parser.add_argument("--per-room", type=int, metavar="N", help="at most so many of each room (one for each line)")
    parser.add_argument(
        "--processes", type=int, default=0, metavar="N", help="so many survivors meet real processes, too (0)"
    )
    return parser.parse_args()


def _run(mutants: list[Mutant], runner: Runner, most: int, chance: random.Random) -> None:
    units = dict(_told(runner.units(mutants)))
    _score(units)
    alive = [mutant for mutant, outcome in units.items() if outcome != NOTICED]
    if most and alive:
        print("\nWith real processes:")
        met = dict(_told(runner.processes(chance.sample(alive, min(most, len(alive))))))
        _score(met)


def _told(outcomes: Iterable[tuple[Mutant, str]]) -> Iterator[tuple[Mutant, str]]:
    for mutant, outcome in outcomes:
        if outcome != NOTICED:
            before, after = mutant.change
            print(f"\n{mutant}: {outcome}\n  - {before}\n  + {after}", flush=True)
        yield mutant, outcome


def _score(outcomes: Mapping[Mutant, str]) -> None:
    rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in outcomes.items():
        rooms[room(mutant.file)][outcome] += 1
        rooms["all"][outcome] += 1
    columns = (NOTICED, SURVIVED, NOT_REACHED)
    print(f"\n{'room':<34}{'mutants':>12}{''.join(f'{column:>12}' for column in columns)}")
    for name in sorted(rooms, key=lambda name: (name == "all", name)):
        counts = rooms[name]
        print(f"{name:<34}{counts.total():>12}{''.join(f'{counts[column]:>12}' for column in columns)}")


if __name__ == "__main__":
    sys.exit(main())
