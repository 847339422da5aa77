"""Each figure of the report: all that is drawn into it, with its place, its colour and its shape."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.local.record_files import read
from ddpjob_operator.report import figures
from ddpjob_operator.view_model import Interruption, Records

from tests.unit.report.lines import ZERO, line, write

from .conftest import Golden

INCIDENTS = [
    Interruption(1, ZERO + timedelta(seconds=90), 1, "rank 1: OOM", "", 5, 40),
    Interruption(2, ZERO + timedelta(seconds=150), 2, "it saw a $ and a $", "", 5, None),
]
SHARES = {"data": 0.001, "forward": 0.002, "communication": 0.003, "optimizer": 0.004}


def recorded() -> Iterator[str]:
    for step in range(1, 61):
        values = {"loss": 60.0 - step, "samples_per_second": step % 3, "metrics": {"lr": step / 64}}
        yield line("progress", 1, step, at=3 * step, **values)
        shares = {**SHARES, "backward": 0.004} if step > 1 else SHARES
        yield line("timed", 1, step, seconds=shares, rank_seconds={"0": step / 1000, "1": 0.064})
    yield line("evaluated", 1, 30, loss=31.0)


def described(axes: Any) -> Iterator[str]:
    """One line for each thing that is drawn."""
    width, height = axes.figure.get_size_inches()
    yield f"{width:g} x {height:g} inches at {axes.figure.dpi:g} dpi, {axes.get_xlabel()!r} by {axes.get_ylabel()!r}"
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = [text.get_text() for text in axis.get_ticklabels()]
        shown = any(one.get_visible() for one in axis.get_gridlines())
        yield f"{name} from {axis.get_view_interval()[0]:.4g}, ticks {ticks}, grid {shown}"
    spines = [side for side, one in axes.spines.items() if one.get_visible()]
    colours = (
        axes.spines["left"].get_edgecolor()[0],
        *(text.get_color() for text in (axes.title, *axes.get_xticklabels()[:1])),
    )
    yield f"frame {spines} {colours}, grid below {axes.get_axisbelow()}, letters {axes.xaxis.label.get_family()}"
    for one in axes.lines:
        points = " ".join(f"{x:.4g},{y:.4g}" for x, y in one.get_xydata())
        look = (one.get_color(), one.get_alpha(), one.get_linewidth(), one.get_linestyle())
        dots = (one.get_marker(), one.get_markersize(), one.get_clip_on())
        yield f"line {one.get_label() if one.get_gid() else ''!r} {look} {dots}: {points}"
    for one in axes.collections:
        look = (one.get_color().round(3).tolist(), one.get_linewidth().tolist(), one.get_clip_on())
        yield f"range {one.get_segments()[0].round(4).tolist()} {look}"
    for one in axes.patches:
        yield f"bar {one.get_bbox().extents.round(4).tolist()} {one.get_facecolor()} {one.get_label()}"
    for one in axes.texts:
        look = (one.get_color(), one.get_fontsize(), one.get_rotation(), one.get_ha(), one.get_va())
        yield f"text {one.get_text()!r} at {one.xy}, {one.xyann} from there, {look} {one.get_annotation_clip()}"
    if legend := axes.get_legend():
        names = [(text.get_text(), text.get_fontsize()) for text in legend.get_texts()]
        yield f"legend {names}, {legend._ncols} in a row, at {legend._get_loc()}"


FIGURES: dict[str, Callable[[Records], Any]] = {
    "loss": lambda run: figures.loss(run, INCIDENTS),
    "metrics": lambda run: next(figures.metrics(run))[1],
    "throughput": lambda run: figures.throughput(run, INCIDENTS, ZERO),
    "ranks": figures.ranks,
    "parts": figures.parts,
}


def test_the_figures_of_a_run_are_drawn_like_this(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "_svg", lambda axes, *_: [*described(axes)])
    run = read(write(tmp_path / "metrics.jsonl", line("started", 1, 0), *recorded()))
    drawn = {name: figure(run) for name, figure in FIGURES.items()}
    golden("figures.txt", "\n\n".join("\n".join((name, *lines)) for name, lines in drawn.items()) + "\n")
