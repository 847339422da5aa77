"""Curves as SVG that stands within a page: its text is text, and its colours are the page's, light or dark."""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import cycle, product
from statistics import fmean, median, quantiles
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .incidents import Incident
from .recorded import Entry, Recorded

INK, RULE, MARK = "#010101", "#020202", "#030303"
SERIES = ("#040404", "#050505", "#060606", "#070707", "#080808")
COLOURS = {INK: "ink", RULE: "rule", MARK: "mark"} | {colour: f"series-{at}" for at, colour in enumerate(SERIES)}
"""Stand-ins that are drawn with, and the page's names of what they stand for."""

LINES = ("-", "--", ":")
"""What tells curves apart where there are more than colours."""

INCHES = (5.4, 3.0)
"""Of 72 units each: wide enough for half a desktop's page, and on a phone its letters can still be read."""
POINTS = 300
"""Of a curve: more would not be seen."""
DOTS = 40
"""As many can be told apart."""
NAMED = 5
"""Of more incidents the axis has the numbers only."""
PARTS = ("data", "forward", "backward", "communication", "optimizer")

STYLE: Any = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "ddpjob",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.edgecolor": RULE,
    "grid.color": RULE,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def loss(recorded: Recorded, incidents: Sequence[Incident]) -> str | None:
    """Loss by step, in training and in evaluation; where training went on after an incident."""
    trained, evaluated = (_points(recorded.of(event), "loss") for event in ("progress", "evaluated"))
    if not trained and not evaluated:
        return None
    with _axes("step", "loss") as axes:
        axes.plot(*_columns(_thinned(trained)), color=SERIES[0], label="training")
        if evaluated:
            axes.plot(*_columns(_thinned(evaluated)), color=SERIES[1], label="evaluation", **_dots(evaluated))
        _mark(axes, [(one.resumed, one.number) for one in incidents if one.resumed is not None])
        axes.legend()
        return _svg(axes, "loss by step")


def metrics(recorded: Recorded) -> str | None:
    """The task's own metrics by step."""
    entries = recorded.of("evaluated")
    known = {"step", "attempt", "epoch", "samples", "loss"}
    names = dict.fromkeys(name for entry in entries for name in entry.values if name not in known)
    curves = {name: points for name in names if (points := _points(entries, name))}
    if not curves:
        return None
    with _axes("step", "") as axes:
        for (name, points), (line, colour) in zip(curves.items(), cycle(product(LINES, SERIES)), strict=False):
            axes.plot(*_columns(_thinned(points)), color=colour, linestyle=line, label=name, **_dots(points))
        axes.legend()
        return _svg(axes, f"{', '.join(curves)} by step")


def throughput(recorded: Recorded, incidents: Sequence[Incident], zero: datetime) -> str | None:
    """Samples per second over time, of all processes together, also of steps that were lost."""
    entries = [entry for start in recorded.starts for entry in start.of("progress")]
    if not entries:
        return None
    last = max(entry.time for entry in entries)
    scale, unit = _unit((last - zero).total_seconds())
    with _axes(f"{unit} since the start", "samples/s") as axes:
        for start in recorded.starts:
            points = [
                ((entry.time - zero).total_seconds() / scale, pace)
                for entry in start.of("progress")
                if (pace := entry.number("samples_per_second")) is not None
            ]
            axes.plot(*_columns(_thinned(points)), color=SERIES[0])
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        marks = [((one.time - zero).total_seconds() / scale, one) for one in incidents]
        _mark(axes, [(x, one.number) for x, one in marks])
        for x, one in marks if len(marks) <= NAMED else ():
            place = axes.get_xaxis_transform()
            axes.annotate(
                one.cause,
                (x, 0.0),
                xycoords=place,
                xytext=(2, 2),
                textcoords="offset points",
                rotation=90,
                fontsize=8,
                color=MARK,
            )
        return _svg(axes, "throughput over time")


def ranks(recorded: Recorded) -> str | None:
    """How long each rank's own part of a step takes: the median, and the range of nine in ten."""
    times: dict[int, list[float]] = {}
    for entry in recorded.of("timed"):
        for name, seconds in entry.numbers("rank_seconds").items():
            times.setdefault(int(name), []).append(1000 * seconds)
    if not times:
        return None
    height = max(1.4, 0.9 + 0.22 * len(times))
    with _axes("ms", "rank", height) as axes:
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        for place, rank in enumerate(sorted(times)):
            axes.hlines(place, *_most(times[rank]), color=SERIES[0], linewidth=3, alpha=0.5)
            axes.plot(median(times[rank]), place, "o", color=SERIES[0])
        axes.set_yticks(range(len(times)), [str(rank) for rank in sorted(times)])
        axes.set_ylim(len(times) - 0.5, -0.5)
        axes.set_xlim(left=0)
        return _svg(axes, "own time per step of each rank")


def parts(recorded: Recorded) -> str | None:
    """What rank 0's steps consist of, over the whole run."""
    entries = [entry.numbers("seconds") for entry in recorded.of("timed")]
    means = {part: 1000 * fmean(times) for part in PARTS if (times := [one[part] for one in entries if part in one])}
    if not means:
        return None
    if "backward" in means:  # It contains the waiting for others.
        means["backward"] -= means.get("communication", 0.0)
    with _axes("ms", "", height=1.4) as axes:
        left = 0.0
        for (part, width), colour in zip(means.items(), SERIES, strict=False):
            axes.barh(0, width, left=left, color=colour, label=f"{part} {width:.3g} ms")
            left += width
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=9)
        return _svg(axes, "parts of a step")


@contextmanager
def _axes(x: str, y: str, height: float = INCHES[1]) -> Iterator[Axes]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(INCHES[0], height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        yield axes


def _svg(axes: Axes, name: str) -> str:
    file = io.StringIO()
    empty: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    axes.figure.savefig(file, format="svg", transparent=True, metadata=empty)  # type: ignore[union-attr]
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # Several such drawings share one page, and an id is one's alone.
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', r"<svg \1\2", svg, count=1)
    for colour, meaning in COLOURS.items():
        svg = svg.replace(colour, f"var(--{meaning})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)


def _points(entries: Sequence[Entry], name: str) -> list[tuple[float, float]]:
    return [(entry.step, value) for entry in entries if (value := entry.number(name)) is not None]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """As many as can be seen: means of neighbours."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [(group[-1][0], fmean(value for _, value in group)) for group in groups]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _dots(points: Sequence[object]) -> dict[str, Any]:
    return {"marker": "o", "markersize": 4} if len(points) <= DOTS else {}


def _mark(axes: Axes, marks: Sequence[tuple[float, int]]) -> None:
    """Vertical lines with the numbers of incidents above them."""
    for x, number in marks:
        axes.axvline(x, color=MARK, linewidth=1, linestyle="--")
        axes.annotate(
            str(number), (x, 1.0), xycoords=axes.get_xaxis_transform(), color=MARK, ha="center", va="bottom"
        )


def _most(values: Sequence[float]) -> tuple[float, float]:
    """Between which nine in ten lie."""
    if len(values) == 1:
        return values[0], values[0]
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[0], cuts[-1]


def _unit(seconds: float) -> tuple[float, str]:
    for scale, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * scale:
            return scale, unit
    return 1.0, "seconds"
