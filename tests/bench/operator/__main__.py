"""How fast the operator is and what it costs, beside other controllers on the same plant."""

import argparse
import asyncio
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.plant import PlantError

from .client import BenchError
from .contestants import CONTESTANTS, Contestant
from .scenarios import Scenario, scenarios
from .stage import Figures, a_stage

Found = dict[str, list[Figures]]
"""The figures of each repeat, by contestant and scenario."""


async def play(contestant: Contestant, chosen: dict[str, Scenario], *, quick: bool) -> dict[str, Figures]:
    """Plays these scenarios, one after the other on one plant."""
    nodes = max(scenario.nodes for scenario in chosen.values())
    grace = max(scenario.node_grace_seconds for scenario in chosen.values())
    found = {}
    async with a_stage(
        contestant, nodes=min(nodes, 60) if quick else nodes, node_grace_seconds=grace, quick=quick
    ) as stage:
        for name, scenario in chosen.items():
            print(f"{contestant.name}, {name}: {scenario.how}", flush=True)
            found[name] = await scenario.measure(stage)
            for what, figure in found[name].items():
                print(f"  {what}: {figure:.3f}", flush=True)
    return found


def measure(who: Sequence[Contestant], chosen: dict[str, Scenario], repeats: int, *, quick: bool) -> Found:
    """Measures everyone so often."""
    found: Found = defaultdict(list)
    for _ in range(repeats):
        for contestant in who:
            theirs = {name: one for name, one in chosen.items() if contestant.name == "DDPJob" or not one.ours_only}
            together = {name: one for name, one in theirs.items() if not one.alone}
            alone = [{name: one} for name, one in theirs.items() if one.alone]
            for group in [together, *alone]:
                if group:
                    for name, figures in asyncio.run(play(contestant, group, quick=quick)).items():
                        found[f"{contestant.name}: {name}"].append(figures)
    return found


def show(found: Found) -> None:
    """Medians, with least and most."""
    for name, repeats in found.items():
        print(name)
        for what in repeats[0]:
            values = [figures[what] for figures in repeats]
            print(f"  {what}: {statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a little of each, to see that it works")
    parser.add_argument("--repeats", type=int, default=3, help="how often everything is measured (default 3)")
    parser.add_argument(
        "--churn", type=float, default=3, metavar="MINUTES", help="jobs come and go so long (default 3)"
    )
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", choices=scenarios(0), help=", ".join(scenarios(0)))
    parser.add_argument("--contestant", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), help="whom")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    flags = parser.parse_args()
    everything: dict[str, Any] = scenarios(flags.churn)
    chosen = {name: one for name, one in everything.items() if name in (flags.only or everything)}
    who = [CONTESTANTS[name] for name in flags.contestant]
    try:
        found = measure(who, chosen, 1 if flags.quick else flags.repeats, quick=flags.quick)
    except (BenchError, PlantError) as error:
        sys.exit(str(error))
    show(found)
    if flags.json:
        flags.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
