"""Measures the operator's speed and cost, and compares them with other controllers' on the same plant.

The figures are printed. A whole run is written into docs/reference/performance.md. A scenario that has a table of
its own there is also written if it alone was measured; jobs that come and go, only if that took an hour. Exits
with 1 if a target is missed.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from bench import table
from tests import pages
from tests.plant import PlantError, build
from tests.plant.binaries import KUBERNETES_VERSION, For

from . import report
from .client import BenchError
from .contestants import CONTESTANTS, DDPJOB, Contestant
from .scenarios import Scenario, scenarios
from .stage import Figures, a_stage

NODES_AT_MOST = 60
"""The largest number of nodes in a quick run."""
PARTS = frozenset({"shares", "fairness", "memory", "many", "progress", "largest", "churn"})
"""Scenarios whose figures have their own table."""


class Bench:
    """Measures all contestants. Each repeat has another random order."""

    def __init__(self, chosen: dict[str, Scenario], kept: Path | None, *, quick: bool) -> None:
        self.found: defaultdict[str, defaultdict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
        self.left_out: dict[str, str] = {}
        self._chosen = chosen
        self._kept = kept
        self._quick = quick
        head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        self._of = {"commit": head.stdout.strip(), "host": platform.node(), "quick": quick}
        if kept is not None and kept.exists():
            former = json.loads(kept.read_text())
            if former["of"] != self._of:
                raise BenchError(f"{kept} holds figures of {former['of']}, not of {self._of}: name another file")
            for title, scenarios_of_it in former["found"].items():
                self.found[title].update(scenarios_of_it)

    def measure(self, who: list[Contestant], repeats: int) -> None:
        """Measures all contestants.

        If one cannot be measured, leaves it out and notes the reason, unless it is ours.
        """
        for repeat in range(repeats):
            for contestant in random.sample(who, len(who)):
                if contestant.title in self.left_out:
                    continue
                for group in self._groups(contestant, repeat):
                    try:
                        asyncio.run(self._play(contestant, group))
                    except (BenchError, PlantError, TimeoutError) as error:
                        if contestant is DDPJOB:
                            raise
                        print(f"{contestant.title} is left out: {error}", flush=True)
                        self.left_out[contestant.title] = str(error).partition("\n")[0]
                        self.found.pop(contestant.title, None)

    def _groups(self, contestant: Contestant, repeat: int) -> list[dict[str, Scenario]]:
        """Groups of scenarios that share a plant. Most scenarios are in one group; some have a plant of their own."""
        due = {
            name: one
            for name, one in self._chosen.items()
            if (contestant is DDPJOB or not one.ours_only)
            and repeat < contestant.at_most.get(name, 1 if one.once else repeat + 1)
            and repeat >= len(self.found.get(contestant.title, {}).get(name, ()))
        }
        together = {name: one for name, one in due.items() if not one.alone}
        groups = [together, *({name: one} for name, one in due.items() if one.alone)]
        return [group for group in groups if group]

    async def _play(self, contestant: Contestant, group: dict[str, Scenario]) -> None:
        nodes = max(scenario.nodes for scenario in group.values())
        async with a_stage(
            contestant,
            nodes=min(nodes, NODES_AT_MOST) if self._quick else nodes,
            node_grace_seconds=max(scenario.node_grace_seconds for scenario in group.values()),
            quick=self._quick,
        ) as stage:
            for name, scenario in group.items():
                print(f"{contestant.title}, {name}: {scenario.how}", flush=True)
                figures = await scenario.measure(stage)
                self.found[contestant.title][name].append(figures)
                for what, figure in figures.items():
                    print(f"  {what}: {figure:.3f}", flush=True)
                self._keep()

    def _keep(self) -> None:
        """Stores the figures after each scenario, because a whole run takes over an hour and may be interrupted."""
        if self._kept is not None:
            whole = self._kept.with_suffix(".new")
            whole.write_text(json.dumps({"of": self._of, "found": self.found}, indent=1))
            whole.replace(self._kept)


def main() -> None:
    """Measures, prints and writes the figures. Exits with 1 if a target is missed."""
    flags = _flags()
    everything = scenarios(flags.churn)
    chosen = {name: one for name, one in everything.items() if name in (flags.only or everything)}
    load = os.getloadavg()[0]
    try:
        bench = Bench(chosen, flags.json, quick=flags.quick)
        if set(flags.contestant) - {"ddpjob"}:
            build.build(For.BENCH)
        bench.measure([CONTESTANTS[name] for name in flags.contestant], 1 if flags.quick else flags.repeats)
    except (BenchError, PlantError) as error:
        sys.exit(str(error))
    rows = report.targets(bench.found)
    beside = report.side_by_side(bench.found, bench.left_out)
    table.show(rows)
    print("\n".join(beside))
    if not flags.quick and not flags.only and set(flags.contestant) == set(CONTESTANTS):
        circumstances = table.circumstances(
            load, f"{flags.repeats} repeats in random order, Kubernetes {KUBERNETES_VERSION}"
        )
        others = {name: one for name, one in bench.found[DDPJOB.title].items() if name not in PARTS}
        table.section(
            table.PERFORMANCE.path, "targets", report.targets({**bench.found, DDPJOB.title: others}), circumstances
        )
        pages.write(table.PERFORMANCE.path, "contestants", beside)
    parts = () if flags.quick else PARTS if flags.churn >= report.LONG_MINUTES else PARTS - {"churn"}
    for part in parts:
        if part in bench.found[DDPJOB.title]:
            alone = report.targets({DDPJOB.title: {part: bench.found[DDPJOB.title][part]}})
            table.section(table.PERFORMANCE.path, part, alone, table.circumstances(load, "once"))
    missed = [row for row in rows if row.met is False and not flags.quick]
    sys.exit(f"missed: {'; '.join(row.what for row in missed)}" if missed else 0)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.operator",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="a little of each, to see that it works; nothing is kept"
    )
    parser.add_argument("--repeats", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--churn", type=float, default=3, metavar="MINUTES", help="jobs come and go so long")
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", choices=scenarios(0), help=", ".join(scenarios(0)))
    parser.add_argument(
        "--contestant", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS], help="whom to measure"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keeps the figures of each repeat; goes on with those that it has"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
