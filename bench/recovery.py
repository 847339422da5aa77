"""Measures how soon training continues after a fault, what faults cost, and what the protection against them costs.

The figures are printed and written into docs/reference/recovery.md, each part with its circumstances. Exits with 1 if
a target is missed.
"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

from bench import flood, goodput, kills, reading_back, resuming, table, watching
from bench.table import Part


def parts(flags: argparse.Namespace, directory: Path) -> dict[str, Part]:
    """The parts of the bench by name. Each works in its own subdirectory."""
    quick = flags.quick
    rounds, each = (1, 3) if quick else (flags.rounds, 7)
    minutes = 0.5 if quick else flags.minutes
    every, calm = (15.0, 5.0) if quick else (60.0, flags.calm)
    seconds, stops = (10.0, 1) if quick else (60.0, 6)
    saves = 2 if quick else 15
    faults = f"a fault every {every:.0f} s for {minutes:g} min, {calm:.0f} s undisturbed before and after"
    pairs = 1 if quick else 7
    megabytes = 48 if quick else 768
    kill, strangers, watch, read_back, resume, lose, mix = (
        directory / name for name in ("kills", "flood", "watching", "read-back", "resume", "goodput", "mixed")
    )
    return {
        "kills": Part(f"{rounds} rounds in turn", lambda: kills.measure(kill, rounds=rounds, kills=each)),
        "pods": Part("on real nodes", watching.pods),
        "flood": Part(f"{pairs} pairs in turn", lambda: flood.measure(strangers, pairs=pairs)),
        "watching": Part(f"CPU over {seconds:.0f} s", lambda: watching.measure(watch, seconds=seconds, stops=stops)),
        "saves": Part(f"{saves} saves", lambda: watching.saves(saves)),
        "read-back": Part(
            f"{pairs} pairs in turn",
            lambda: reading_back.measure(read_back, megabytes=50 if quick else 500, count=pairs),
        ),
        "resume": Part("once", lambda: resuming.measure(resume, megabytes=megabytes)),
        "goodput": Part(faults, lambda: goodput.kills(lose, minutes=minutes, every=every, calm=calm)),
        "mixed": Part(faults, lambda: goodput.mixed(mix, minutes=minutes, every=every, calm=calm)),
    }


def main() -> None:
    """Measures, prints and writes the figures. Exits with 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a little of each, to see that it works; nothing is kept"
    )
    parser.add_argument("--minutes", type=float, default=10, help="of faults in each part about goodput (default 10)")
    parser.add_argument("--calm", type=float, default=120, help="undisturbed seconds around them (default 120)")
    parser.add_argument("--rounds", type=int, default=3, help="of kills, seven in place in each (default 3)")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=table.RECOVERY.parts, help="parts")
    flags = parser.parse_args()
    directory = Path(mkdtemp(prefix="bench-recovery-"))
    print(f"logs are in {directory}", flush=True)
    chosen = {name: part for name, part in parts(flags, directory).items() if name in (flags.only or [name])}
    table.measure_all(table.RECOVERY, chosen, keep=not flags.quick)


if __name__ == "__main__":
    main()
