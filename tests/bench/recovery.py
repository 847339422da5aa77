"""How soon training goes on after a fault, what faults cost, and what it costs to be ready for them.

What is measured is printed and written into docs/reference/recovery.md, each
part with its circumstances. Exits 1 if a target is missed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from tests.bench import goodput, kills, table, watching
from tests.bench.table import Row


def parts(flags: argparse.Namespace) -> dict[str, tuple[str, Callable[[Path], list[Row]]]]:
    """What can be measured, by name: how it is told, and how it is done."""
    quick = flags.quick
    rounds, each = (1, 3) if quick else (flags.rounds, 7)
    minutes = 0.5 if quick else flags.minutes
    every, calm = (15.0, 5.0) if quick else (60.0, flags.calm)
    seconds, stops = (10.0, 1) if quick else (60.0, 6)
    saves = 2 if quick else 15
    faults = f"a fault every {every:.0f} s for {minutes:g} min, {calm:.0f} s undisturbed before and after"
    return {
        "kills": (f"{rounds} rounds in turn", lambda place: kills.measure(place, rounds=rounds, kills=each)),
        "pods": ("on real nodes", lambda _: watching.pods()),
        "watching": (
            f"CPU over {seconds:.0f} s",
            lambda place: watching.measure(place, seconds=seconds, stops=stops),
        ),
        "saves": (f"{saves} saves", lambda _: watching.saves(saves)),
        "goodput": (faults, lambda place: goodput.kills(place, minutes=minutes, every=every, calm=calm)),
        "mixed": (faults, lambda place: goodput.mixed(place, minutes=minutes, every=every, calm=calm)),
    }


def main() -> None:
    """Measures, prints, writes, and judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a little of each, to see that it works; nothing is kept"
    )
    parser.add_argument("--minutes", type=float, default=10, help="of faults in each part about goodput (default 10)")
    parser.add_argument("--calm", type=float, default=120, help="undisturbed seconds around them (default 120)")
    parser.add_argument("--rounds", type=int, default=3, help="of kills, seven in place in each (default 3)")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=table.PARTS, help="parts")
    flags = parser.parse_args()
    directory = Path(mkdtemp(prefix="bench-recovery-"))
    print(f"logs are in {directory}", flush=True)
    missed: list[Row] = []
    for name, (how, measure) in parts(flags).items():
        if flags.only and name not in flags.only:
            continue
        print(f"{name}: {how}", flush=True)
        load, began = os.getloadavg()[0], time.monotonic()
        rows = measure(directory / name)
        table.show(rows)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        if not flags.quick:
            table.section(name, rows, table.circumstances(load, how))
        missed += [row for row in rows if row.met is False]
    sys.exit(f"missed: {'; '.join(row.what for row in missed)}" if missed else 0)


if __name__ == "__main__":
    main()
