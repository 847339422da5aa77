"""Turns the measured figures into tables: our figures with their targets, and all contestants side by side."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.table import Row
from tests.pages import REFERENCE

from .contestants import CONTESTANTS, DDPJOB, MANAGER, SERVER
from .scenarios import OWN_CPU as CPU
from .stage import Figures

Found = Mapping[str, Mapping[str, Sequence[Figures]]]
"""The figures of each repeat, by the contestant's title and by scenario."""

FLOORS = REFERENCE / "performance.json"


class Floor(NamedTuple):
    """The lower limit for a share. It is written by hand, never taken from a measurement."""

    best: float
    """The best value that was ever measured, on an otherwise idle machine."""
    floor: float
    since: str
    """The date of the floor's last change."""
    reason: str
    """The reason for the last change, with the old and the new number. The changelog contains the same sentence."""


def floors() -> dict[str, Floor]:
    """The floors, by figure."""
    known: dict[str, dict[str, Any]] = json.loads(FLOORS.read_text(encoding="utf-8"))
    return {figure: Floor(**floor) for figure, floor in known.items()}


class Limit(NamedTuple):
    """The upper limit for one of our figures."""

    scenario: str
    figure: str
    what: str
    unit: str
    most: float
    goal: float | None = None
    """A more ambitious value, which is shown but has no verdict."""


MOST = (
    Limit("idle", "created p50 ms", "one job of 8 pods: submit to all pods created, p50", "ms", 100),
    Limit("idle", "created p99 ms", "the same, p99", "ms", 200),
    Limit("idle", "said p99 ms", "last pod finished to status says so, p99", "ms", 250),
    Limit("burst", "created p99 s", "100 jobs of 4 pods at once: all pods created, p99", "s", 1.5),
    Limit("burst", "writes per job, most", "writes in the life of a job of 4 pods, most", "", 12),
    Limit("burst500", "writes per job, most", "the same, of 500 at once", "", 12),
    Limit("burst", "events per job, most", "its events, most", "", 3),
    Limit("burst", CPU, "CPU time for it", "ms", 15),
    Limit("burst", f"CPU ms per job, {SERVER}", "and of the API server", "ms", 90, 75),
    Limit("live", "RSS MiB, live jobs", "memory with 1,000 jobs of 8 pods that run", "MiB", 300, 150),
    Limit("live", "start: quiet after s", "started among them: quiet after", "s", 15),
    Limit("live", "start: writes", "writes at that start", "", 0),
    Limit("many", "start: quiet after s", "started among 10,000 jobs, of which 1,000 run: quiet after", "s", 15),
    Limit("many", "RSS MiB", "memory with these", "MiB", 300),
    Limit("many", "at rest: share of a core", "CPU time with these, at rest, share of a core", "", 0.01),
    Limit("fairness", "created p99 ms", "a job of 4 pods beside one that is being made: all created, p99", "ms", 300),
    Limit("largest", "loop stood still ms", "one of 4,096, made and restarted: its loop stood still", "ms", 50),
    Limit("largest", "most MiB", "the most memory meanwhile", "MiB", 512),
    Limit("memory", "RSS MiB, few", "memory with 300 suspended jobs of 91 KiB", "MiB", 150),
    Limit("memory", "most MiB, few", "the most of it, from a start among them on", "MiB", 200),
    Limit("memory", "RSS MiB, many", "the same with 1,000 of them", "MiB", 200),
    Limit("memory", "most MiB, many", "the most of it, from a start among them on", "MiB", 256),
    Limit("big", "writes until it runs", "one job of 1,000 pods: writes until it runs", "", 1007),
    Limit("big", "statuses", "its statuses until it runs again", "", 10),
    Limit("big", "object KB", "its object while it runs", "KB", 40),
)
LEAST_OF_JOBS = {
    "pytorchjob": 1.0,
    "jobset": 1.4,
    "trainjob": 1.0,
    "pytorchjob-lifted": 1.0,
    "jobset-lifted": 1.0,
    "trainjob-lifted": 1.0,
    "job-lifted": 0.6,
}
"""How many times each contestant's jobs per second ours must at least be."""
BY_HAND = (("created", "it is made: all created", 3.0), ("recreated", "it restarts as a gang: all recreated", 10.0))
"""Figures of a large job that are compared with pods created by hand: name, description, and limit in seconds."""
LONG_MINUTES = 60.0
"""If memory was observed for less time than this, its growth is reported without a verdict."""
MOST_GROWTH_MIB = 1.0
"""Growth up to this counts as no growth."""

BESIDE = (
    ("idle", "created p50 ms", "one job of 8 pods, all created: p50, ms"),
    ("idle", "created p99 ms", "p99, ms"),
    ("idle", "said p50 ms", "last pod finished to status says so: p50, ms"),
    ("idle", "said p99 ms", "p99, ms"),
    ("burst", "created p50 s", "100 jobs of 4 pods at once, all created: p50, s"),
    ("burst", "created p99 s", "p99, s"),
    ("burst", "jobs/s", "jobs/s until all have succeeded"),
    ("burst500", "jobs/s", "500 jobs of 4 pods: jobs/s"),
    ("burst", "writes per job", "writes per job of 4 pods"),
    ("burst", "events per job", "events per job"),
    ("burst", CPU, "CPU per job, ms"),
    ("burst", f"CPU ms per job, {MANAGER}", "and of the controller manager, ms"),
    ("burst", f"CPU ms per job, {SERVER}", "and of the API server, ms"),
)
"""The rows of the table of all contestants: scenario, figure, and description."""


def targets(found: Found) -> list[Row]:
    """Our measured figures beside their targets."""
    ours = found.get(DDPJOB.title, {})
    rows = [
        Row(
            limit.what,
            _spread(ours[limit.scenario], limit.figure, limit.unit),
            f"≤ {limit.most} {limit.unit}".strip() + (f", goal {limit.goal}" if limit.goal else ""),
            met=_median(ours[limit.scenario], limit.figure) <= limit.most,
        )
        for limit in MOST
        if limit.scenario in ours
    ]
    if "ceiling" in ours:
        rows.append(Row("a client that only makes such pods", _spread(ours["ceiling"], "pods created/s", "pods/s")))
    if "shares" in ours:
        rows += [_beside_a_client(ours["shares"], figure, floor) for figure, floor in floors().items()]
    if "burst500" in ours:
        rows += _beside(found)
    if "big" in ours:
        rows += [_by_hand(ours["big"], *one) for one in BY_HAND]
    if "largest" in ours:
        rows += [
            Row("one of 4,096: all of its pods created", _spread(ours["largest"], "created s", "s")),
            Row("and recreated", _spread(ours["largest"], "recreated s", "s")),
        ]
    if "progress" in ours:
        rows += _of_progress(ours["progress"])
    if "fairness" in ours:
        rows += _beside_a_large_one(ours["fairness"])
    if "churn" in ours:
        rows.append(_growth(ours["churn"]))
    return rows


def _beside_a_client(repeats: Sequence[Figures], figure: str, floor: Floor) -> Row:
    target = f"≥ {floor.floor}, at best {floor.best}"
    return Row(figure, _spread(repeats, figure), target, met=_median(repeats, figure) >= floor.floor)


def _beside(found: Found) -> list[Row]:
    ours, rows = _median(found[DDPJOB.title]["burst500"], "jobs/s"), []
    for name, least in LEAST_OF_JOBS.items():
        title = CONTESTANTS[name].title
        what = f"500 jobs of 4 pods through to Succeeded, beside {title}"
        if "burst500" not in found.get(title, {}):
            rows.append(Row(what, "not measured", f"ratio ≥ {least:g}"))
        else:
            theirs = _median(found[title]["burst500"], "jobs/s")
            figure = f"{ours:.3g} beside {theirs:.3g} jobs/s, ratio {ours / theirs:.2f}"
            rows.append(Row(what, figure, f"ratio ≥ {least:g}", met=ours / theirs >= least))
    return rows


def _by_hand(repeats: Sequence[Figures], done: str, what: str, most: float) -> Row:
    seconds, share = (_median(repeats, figure) for figure in (f"{done} s", f"{done}, share of the speed by hand"))
    by_hand = _spread(repeats, f"{done} by hand s", "s")
    figure = f"{_spread(repeats, f'{done} s', 's')}; the same by hand {by_hand}: {share:.0%} of its speed"
    return Row(what, figure, f"≤ {most:g} s", met=seconds <= most)


def _of_progress(repeats: Sequence[Figures]) -> list[Row]:
    jobs = f"{_median(repeats, 'jobs'):.0f} jobs of 4 pods that report progress: statuses"
    return [
        Row(jobs, _spread(repeats, "statuses/s", "per second")),
        Row("CPU time for each", _spread(repeats, "CPU ms per status, contestant", "ms")),
        Row("and of the API server", _spread(repeats, f"CPU ms per status, {SERVER}", "ms")),
    ]


def _beside_a_large_one(repeats: Sequence[Figures]) -> list[Row]:
    pods, jobs = (f"{_median(repeats, what):.0f}" for what in ("pods", "small jobs"))
    beside = f"a job of 4 pods beside one that is being made: all created, p50 of {jobs}"
    large = f"the {pods} pods of the one that is being made, meanwhile"
    return [
        Row(beside, _spread(repeats, "created p50 ms", "ms")),
        Row(large, _spread(repeats, "beside small jobs pods/s", "pods/s")),
        Row("and where it is alone", _spread(repeats, "alone pods/s", "pods/s")),
    ]


def _growth(repeats: Sequence[Figures]) -> Row:
    figure = "anonymous MiB per 1,000 jobs"
    slope, jobs, minutes = (_median(repeats, what) for what in (figure, "jobs", "minutes"))
    grown = slope * jobs / 1000
    met = grown <= MOST_GROWTH_MIB if minutes >= LONG_MINUTES else None
    what = f"growth of memory while {jobs:.0f} jobs came and went in {minutes:.0f} min"
    found = (
        f"{_spread(repeats, figure, 'MiB per 1,000 jobs')}, to {_spread(repeats, 'anonymous MiB at the end', 'MiB')}"
    )
    return Row(what, found, f"0 over an hour: ≤ {MOST_GROWTH_MIB:g} MiB", met=met)


def side_by_side(found: Found, left_out: Mapping[str, str]) -> list[str]:
    """Tables of all contestants, as shipped and with limits lifted, and a line for each one left out."""
    lines = []
    for lifted in (False, True):
        titles = [
            contestant.title
            for name, contestant in CONTESTANTS.items()
            if contestant.title in found and (name == "ddpjob" or name.endswith("-lifted") == lifted)
        ]
        if set(titles) - {DDPJOB.title}:
            lines += [f"| | {' | '.join(titles)} |", f"| --- |{' --- |' * len(titles)}"]
            lines += [_beside_each_other(found, titles, *row) for row in BESIDE if row[0] in found[titles[0]]]
            lines.append("")
    return [*lines, *(f"Left out: {title}, since {reason}" for title, reason in left_out.items())]


def _beside_each_other(found: Found, titles: Sequence[str], scenario: str, figure: str, what: str) -> str:
    cells = [
        _spread(found[title][scenario], figure) if scenario in found[title] else "not measured" for title in titles
    ]
    return f"| {what} | {' | '.join(cells)} |"


def _median(repeats: Sequence[Figures], figure: str) -> float:
    return statistics.median(figures[figure] for figures in repeats)


def _spread(repeats: Sequence[Figures], figure: str, unit: str = "") -> str:
    """The median of a figure, with the least and the greatest value."""
    values = [figures[figure] for figures in repeats]
    least, most = min(values), max(values)
    spread = f" ({_short(least)} to {_short(most)})" if least != most else ""
    return f"{f'{_short(statistics.median(values))} {unit}'.strip()}{spread}"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
