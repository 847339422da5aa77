"""Draws curves as SVG, for a page. Text stays text, and the colours follow the page's light or dark theme."""

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median, quantiles
from typing import Any, TypeVar

import matplotlib as mpl
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ddpjob_operator.view_model import Interruption, Record, Records, Start, metrics_of

T = TypeVar("T")

INK, RULE, MARK = "#010101", "#020202", "#030303"
SERIES = ("#040404", "#050505", "#060606", "#070707", "#080808")
COLOURS = {INK: "ink", RULE: "rule", MARK: "mark"} | {colour: f"series-{at}" for at, colour in enumerate(SERIES)}
"""matplotlib draws with these placeholder colours, each of which is replaced by a CSS variable of the page."""

INCHES = (5.4, 3.0)
"""Width and height of a figure, in inches of 72 SVG units. It fills half of a page on a desktop, and is legible on a
phone."""
SHORTEST_SECONDS = 0.5
"""Steps per second are computed only from two records that are at least this far apart."""
POINTS = 300
"""How many points of a curve are drawn. More would not be visible."""
DOTS = 40
"""A curve of at most this many points gets a dot at each point."""
TIPS = 150
"""How many places of a figure show a tooltip on hover."""
SMOOTH = 20
"""A smoothed point is the mean of its neighbours, which are 1/SMOOTH of all points on each side."""
METRICS = 32
"""The maximum number of metrics that are drawn."""
NAMED = 5
"""Up to this many incidents are labelled with their causes. If there are more, they are only numbered."""
LONGEST_CAUSE = 32
"""A cause is cut off after this many characters, because it would not fit into the figure's height."""
APART = 0.06
"""Labels that are closer together than this share of the figure's width would be written over each other."""
FLAT, WIDE = 0.03, 30.0
"""The axis is logarithmic if half of the values would be within this share of a linear axis, at its lower end, and if
the largest value is at least WIDE times the smallest."""
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


def loss(recorded: Records, incidents: Sequence[Interruption]) -> str | None:
    """Draws the loss by step, in training and evaluation. Returns None if no loss was recorded.

    Vertical lines mark the steps from which training went on after incidents.
    """
    trained, evaluated = (_points(recorded.of(event), "loss") for event in ("progress", "evaluated"))
    if not trained and not evaluated:
        return None
    with _axes("step", "loss") as axes:
        if trained:
            _curve(axes, trained, SERIES[0], "training")
        if evaluated:
            _curve(axes, evaluated, SERIES[1], "evaluation")
        _scale(axes)
        _mark(axes, [(incident.resumed, incident.number) for incident in incidents if incident.resumed is not None])
        axes.legend()
        return _svg(axes, "loss by step")


def overlaid(name: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draws curves of the same kind, such as the losses of several runs, over each other, by their labels.

    A label without points takes up a colour, so that each run has the same one in all figures.
    """
    with _axes("step", "") as axes:
        for (label, points), colour in zip(curves.items(), SERIES, strict=False):
            if points:  # matplotlib leaves labels that begin with an underscore out of legends.
                _curve(axes, points, colour, f" {label}" if label.startswith("_") else label)
        _scale(axes)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=9)  # Names may be long.
        return _svg(axes, f"{name} by step")


def metrics(recorded: Records) -> Iterator[tuple[str, str]]:
    """Draws each of the program's own metrics by step, in separate figures, because their scales may differ.

    Yields the name and the figure of each metric.
    """
    for name, points in [*metrics_of(recorded).items()][:METRICS]:
        with _axes("step", "") as axes:
            _curve(axes, points, SERIES[0], name)
            _scale(axes)
            yield name, _svg(axes, f"{name} by step")


def throughput(recorded: Records, incidents: Sequence[Interruption], zero: datetime) -> str | None:
    """Draws the total throughput of all processes over time, including lost steps. Returns None if it is unknown."""
    what, paces = "samples/s", [_samples_per_second(start) for start in recorded.starts]
    if not any(paces):
        what, paces = "steps/s", [_steps_per_second(start) for start in recorded.starts]
    if not any(paces):
        return None
    last = max(time for points in paces for time, _ in points)
    scale, unit = _unit((last - zero).total_seconds())
    with _axes(f"{unit} since the start", what) as axes:
        for points in paces:
            at = [((time - zero).total_seconds() / scale, pace) for time, pace in points]
            raw = _thinned(at)
            smooth = _smoothed(raw)
            if smooth == raw:
                _curve(axes, raw, SERIES[0], what)
                continue
            axes.plot(*_columns(raw), color=SERIES[0], alpha=0.35, linewidth=1, clip_on=False)
            _curve(axes, smooth, SERIES[0], f"{what}, smoothed")
        axes.set_ylim(bottom=0)
        marks = [((one.time - zero).total_seconds() / scale, one) for one in incidents]
        # The last incident may be after the last record.
        axes.set_xlim(0, max([axes.get_xlim()[1], *(1.02 * x for x, _ in marks)]))
        _mark(axes, [(x, one.number) for x, one in marks])
        labels = _apart(axes, [(x, _cut(one.cause)) for x, one in marks]) if len(marks) <= NAMED else []
        for x, (cause, *_) in labels:
            place = axes.get_xaxis_transform()
            axes.annotate(
                cause,
                (x, 0.0),
                xycoords=place,
                annotation_clip=True,
                xytext=(2, 2),
                textcoords="offset points",
                rotation=90,
                fontsize=8,
                color=MARK,
            )
        return _svg(axes, "throughput over time")


def ranks(recorded: Records) -> str | None:
    """Draws how long each rank's own part of a step takes: median, and range of 90% of steps. None if unknown."""
    times: dict[int, list[float]] = {}
    for entry in recorded.of("timed"):
        for name, seconds in entry.numbers("rank_seconds").items():
            if re.fullmatch("[0-9]{1,6}", name):
                times.setdefault(int(name), []).append(1000 * seconds)
    if not times:
        return None
    height = max(1.4, 0.9 + 0.22 * len(times))
    with _axes("ms", "rank", height) as axes:
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        tips = []
        for place, rank in enumerate(sorted(times)):
            (least, most), middle = _most(times[rank]), median(times[rank])
            axes.hlines(place, least, most, color=SERIES[0], linewidth=3, alpha=0.5, clip_on=False)
            axes.plot(middle, place, "o", color=SERIES[0], clip_on=False)
            says = (f"rank {rank}: {middle:.4g} ms", f"90% of its steps: {least:.4g} to {most:.4g} ms")
            tips.append(_Tip(place - 0.5, place + 0.5, says, [(middle, place, SERIES[0])]))
        axes.set_yticks(range(len(times)), [str(rank) for rank in sorted(times)])
        axes.set_ylim(len(times) - 0.5, -0.5)
        axes.set_xlim(left=0)
        return _svg(axes, "own time per step of each rank", tips)


def parts(recorded: Records) -> str | None:
    """Draws the mean times of the parts of rank 0's steps over the whole run. Returns None if they are unknown."""
    entries = [entry.numbers("seconds") for entry in recorded.of("timed")]
    means = {
        part: 1000 * fmean(times)
        for part in PARTS
        if (times := [times_of_parts[part] for times_of_parts in entries if part in times_of_parts])
    }
    if not means:
        return None
    if "backward" in means:  # The measured backward time includes communication.
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
        figure = Figure(figsize=(INCHES[0], height), dpi=72, layout="constrained")  # 72 dpi, as in matplotlib's SVG.
        axes = figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        yield axes


@dataclass(frozen=True, slots=True)
class _Tip:
    """A tooltip: text that is shown while the pointer is over one range of a figure."""

    begin: float
    """The range extends from `begin` to `end`, on the x axis or, in the figure of ranks, on the y axis."""
    end: float
    says: Sequence[str]
    dots: Sequence[tuple[float, float, str]]
    """Points to highlight: x, y and colour."""


def _curve(axes: Axes, points: Sequence[tuple[float, float]], colour: str, name: str) -> None:
    """Draws a curve that is not clipped at the axes. Its gid is its name: only curves with a gid get tips."""
    shown = _columns(_thinned(points))
    axes.plot(*shown, color=colour, label=name, gid=name, clip_on=False, **_dots(points))


def _tips(axes: Axes) -> Iterator[_Tip]:
    """Yields tips with the values of a figure's curves, from left to right."""
    lines = [line for line in axes.lines if line.get_gid() is not None]
    points = [(x, y, str(line.get_color()), str(line.get_gid())) for line in lines for x, y in _values(line)]
    size = math.ceil(len(points) / TIPS) or 1
    places = sorted({x for x, *_ in points})[size - 1 :: size]
    edges = [-math.inf, *((left + right) / 2 for left, right in pairwise(places)), math.inf]
    label = axes.get_xlabel()
    for x, begin, end in zip(places, edges, edges[1:], strict=False):
        near = {name: (at, y, colour) for at, y, colour, name in points if begin < at <= end}
        where = f"step {x:.0f}" if label == "step" else f"{x:.4g} {label}"
        says = (where, *(f"{name}: {y:.4g}" for name, (_, y, _) in near.items()))
        yield _Tip(begin, end, says, list(near.values()))


def _values(line: Any) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in line.get_xydata()]


def _drawn(axes: Axes, tips: Sequence[_Tip], *, across: bool) -> Iterator[str]:
    """Yields SVG elements for the tips. The page's CSS shows them on hover, without a script.

    If `across`, the tips belong to rows of the y axis, otherwise to ranges of the x axis.
    """
    figure = axes.figure
    height = 72 * figure.get_figheight()  # type: ignore[union-attr]
    (left, right), (bottom, top) = axes.bbox.intervalx, axes.bbox.intervaly
    for tip in tips:
        dots = [(*axes.transData.transform((x, y)), colour) for x, y, colour in tip.dots]
        if across:
            ends = sorted(float(axes.transData.transform((0, y))[1]) for y in (tip.begin, tip.end))
            box = (left, height - ends[1], right - left, ends[1] - ends[0])
        else:
            begin, end = (
                float(axes.transData.transform((x, 0))[0]) if math.isfinite(x) else edge
                for x, edge in ((tip.begin, left), (tip.end, right))
            )
            box = (begin, height - top, end - begin, top - bottom)
        x, y = dots[0][0], height - (dots[0][1] if across else top)
        right_half = x > (left + right) / 2
        anchor, beside = ("end", x - 6) if right_half else ("start", x + 6)
        yield '<g class="place"><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/><g class="tip">'.format(
            *box
        )
        if not across:
            yield f'<path d="M{x:.1f} {height - bottom:.1f}V{height - top:.1f}"/>'
        for dot_x, dot_y, colour in dots:
            yield f'<circle cx="{dot_x:.1f}" cy="{height - dot_y:.1f}" r="3" fill="{colour}"/>'
        yield f'<text text-anchor="{anchor}" y="{y - 2 if not across else y:.1f}">'
        for line in tip.says:
            yield f'<tspan x="{beside:.1f}" dy="11">{escape(line)}</tspan>'
        yield "</text></g></g>"


def _svg(axes: Axes, name: str, tips: Sequence[_Tip] | None = None) -> str:
    """The figure as SVG. `tips` belong to rows of the figure; if `tips` is None, they are made from the curves."""
    file = io.StringIO()
    empty: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    axes.figure.savefig(file, format="svg", transparent=True, metadata=empty)  # type: ignore[union-attr]
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # Ids must be unique in a page, which has several figures.
    begin, end, drawing = svg.partition(">")
    svg = re.sub(r' (?:height|width)="[^"]*"', "", begin) + end + drawing  # Let the page set the size.
    places = "".join(_drawn(axes, list(_tips(axes)) if tips is None else tips, across=tips is not None))
    svg = svg.replace("</svg>", f"{places}</svg>")
    for colour, meaning in COLOURS.items():
        svg = svg.replace(colour, f"var(--{meaning})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(name)}" ', 1)


def _points(entries: Sequence[Record], name: str) -> list[tuple[float, float]]:
    return [(entry.step, value) for entry in entries if (value := entry.number(name)) is not None]


def _samples_per_second(start: Start) -> list[tuple[datetime, float]]:
    return [
        (entry.time, pace)
        for entry in start.of("progress")
        if (pace := entry.number("samples_per_second")) is not None
    ]


def _steps_per_second(start: Start) -> list[tuple[datetime, float]]:
    """Steps per second between successive progress records, each with the time of the later one."""
    return [
        (later.time, (later.step - former.step) / seconds)
        for former, later in pairwise(start.of("progress"))
        if (seconds := (later.time - former.time).total_seconds()) >= SHORTEST_SECONDS and later.step > former.step
    ]


def _smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, with each value replaced by the mean of its neighbourhood."""
    around = len(points) // SMOOTH
    return [
        (x, fmean(value for _, value in points[max(0, at - around) : at + around + 1]))
        for at, (x, _) in enumerate(points)
    ]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Reduces the points to at most about POINTS, each the mean of a group of neighbours."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [(group[-1][0], fmean(value for _, value in group)) for group in groups]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _dots(points: Sequence[object]) -> dict[str, Any]:
    return {"marker": "o", "markersize": 4} if len(points) <= DOTS else {}


def _scale(axes: Axes) -> None:
    """Makes the y axis logarithmic if a few large values would flatten all others, as the first losses may."""
    values = [y for line in axes.lines for _, y in _values(line)]
    least, largest = min(values), max(values)
    if least <= 0 or largest < WIDE * least or (median(values) - least) / (largest - least) > FLAT:
        return
    axes.set_yscale("log")
    axes.set_ylabel(f"{axes.get_ylabel()}, logarithmic".removeprefix(", "))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _mark(axes: Axes, marks: Sequence[tuple[float, int]]) -> None:
    """Draws a vertical line for each mark, with the incident's number above it.

    Incidents that are close together share a label: `1-3`.
    """
    for x, _ in marks:
        axes.axvline(x, color=MARK, linewidth=1, linestyle="--")
    for x, numbers in _apart(axes, marks):
        # Without annotation_clip, the layout would shrink the axes to make room for a label outside them.
        place = axes.get_xaxis_transform()
        axes.annotate(
            _numbers(numbers), (x, 1.0), xycoords=place, annotation_clip=True, color=MARK, ha="center", va="bottom"
        )


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers in a few characters: `2`, `1-3`, `1, 3`."""
    ordered = sorted(numbers)
    without_a_gap = len(ordered) > 1 and ordered == [*range(ordered[0], ordered[-1] + 1)]
    return f"{ordered[0]}-{ordered[-1]}" if without_a_gap else ", ".join(map(str, ordered))


def _apart(axes: Axes, labels: Sequence[tuple[float, T]]) -> list[tuple[float, list[T]]]:
    """The labels with their places on the x axis; those too close to the first of them are joined with it."""
    left, right = axes.get_xlim()
    joined: list[tuple[float, list[T]]] = []
    for x, label in sorted(labels, key=lambda one: one[0]):
        if joined and x - joined[-1][0] < APART * (right - left):
            joined[-1][1].append(label)
        else:
            joined.append((x, [label]))
    return joined


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CAUSE else f"{text[: LONGEST_CAUSE - 1]}…"


def _most(values: Sequence[float]) -> tuple[float, float]:
    """The range that contains 90% of the values."""
    if len(values) == 1:
        return values[0], values[0]
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[0], cuts[-1]


def _unit(seconds: float) -> tuple[float, str]:
    for scale, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * scale:
            return scale, unit
    return 1.0, "seconds"
