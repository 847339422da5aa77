"""What the report's figures show: the curves, marks and bars that are drawn, and the words beside them."""

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.local.record_files import read
from ddpjob_operator.report import figures
from ddpjob_operator.view_model import Interruption, Records
from matplotlib.axes import Axes

from .lines import ZERO, line, write

Run = Callable[..., Records]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure is what was drawn, not yet SVG."""
    monkeypatch.setattr(figures, "_svg", lambda axes, *_: axes)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """What a trainer that wrote these lines after its start has recorded."""

    def recorded(*lines: str) -> Records:
        return read(write(tmp_path / "metrics.jsonl", line("started", 1, 0), *lines))

    return recorded


def incident(
    number: int, *, resumed: int | None = None, minutes: float = 0, cause: str = "rank 1: OOM"
) -> Interruption:
    return Interruption(number, ZERO + timedelta(minutes=minutes), 1, cause, "", 5, resumed)


def curves(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """The points of each named line."""
    return {
        str(one.get_label()): list(zip(*one.get_data(), strict=True))
        for one in axes.lines
        if not str(one.get_label()).startswith("_")
    }


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def vertical(axes: Axes) -> list[float]:
    """Where vertical lines are."""
    return [one.get_xdata()[0] for one in axes.lines if list(one.get_ydata()) == [0, 1]]


pytestmark = pytest.mark.usefixtures("drawn")


def test_the_loss_is_shown_by_step_in_training_and_in_evaluation(run: Run) -> None:
    recorded = run(
        line("progress", 1, 10, loss=2.0), line("progress", 1, 20, loss=1.0), line("evaluated", 1, 20, loss=1.5)
    )
    axes: Any = figures.loss(recorded, [])
    assert curves(axes) == {"training": [(10, 2.0), (20, 1.0)], "evaluation": [(20, 1.5)]}
    assert axes.lines[1].get_marker() == "o", "one point makes no line"


@pytest.mark.parametrize(("event", "label"), [("progress", "training"), ("evaluated", "evaluation")])
def test_of_a_loss_that_nobody_told_there_is_no_curve(event: str, label: str, run: Run) -> None:
    axes: Any = figures.loss(run(line(event, 1, 10, loss=2.0)), [])
    assert curves(axes) == {label: [(10, 2.0)]}


def test_the_loss_is_marked_where_training_went_on_also_at_its_very_beginning(run: Run) -> None:
    incidents = [incident(1, resumed=0), incident(2), incident(3, resumed=7)]
    axes: Any = figures.loss(run(line("progress", 1, 10, loss=2.0)), incidents)
    assert vertical(axes) == [0, 7]
    assert words(axes) == ["1", "3"], "the second did not go on"


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ([1000.0, 900.0, *(4 / step for step in range(1, 100))], "log"),
        ([2.3 - step / 50 for step in range(100)], "linear"),
        ([4 / step for step in range(1, 20)], "linear"),
        ([1000.0, *[0.0] * 20], "linear"),
        ([1000.0, *[-1.0] * 20], "linear"),
        ([0.5], "linear"),
    ],
    ids=["two values flatten the rest", "even", "a little uneven", "zero", "negative", "one value"],
)
def test_the_axis_is_logarithmic_where_single_values_would_flatten_the_rest(
    losses: list[float], scale: str, run: Run
) -> None:
    recorded = run(*(line("progress", 1, step, loss=loss) for step, loss in enumerate(losses)))
    axes: Any = figures.loss(recorded, [])
    assert axes.get_yscale() == scale
    assert axes.get_ylabel() == ("loss, logarithmic" if scale == "log" else "loss")


def test_the_numbers_of_a_logarithmic_axis_are_no_formulas(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    recorded = run(*(line("progress", 1, step, loss=1000 if step < 2 else 0.1) for step in range(50)))
    svg = str(figures.loss(recorded, []))
    assert ">100</text>" in svg
    assert "mathdefault" not in svg


def test_incidents_that_are_close_together_share_a_label(run: Run) -> None:
    resumed = (100, 101, 102, 500, 501, 900, 110)
    incidents = [incident(number, resumed=step) for number, step in enumerate(resumed, 1)]
    axes: Any = figures.loss(run(*(line("progress", 1, step, loss=2.0) for step in range(1000))), incidents)
    assert words(axes) == ["1, 2, 3, 7", "4-5", "6"]
    assert len(vertical(axes)) == 7


def test_causes_that_are_close_together_are_not_written_over_each_other(run: Run) -> None:
    recorded = run(line("progress", 1, 10, at=6000, samples_per_second=100))
    close = [
        incident(1, minutes=10),
        incident(2, minutes=11, cause="x" * 99),
        incident(3, minutes=50, cause="y" * 99),
    ]
    axes: Any = figures.throughput(recorded, close, ZERO)
    assert words(axes) == ["1-2", "3", "rank 1: OOM", "y" * 31 + "…"]


def test_each_metric_of_the_task_has_a_curve_and_what_all_tasks_have_has_none(run: Run) -> None:
    recorded = run(
        line("evaluated", 1, 5, loss=1.0, epoch=1, samples=64, accuracy=0.5),
        line("evaluated", 1, 10, loss=0.9, epoch=2, samples=64, accuracy=0.75, name="digits"),
    )
    assert [(name, curves(axes)) for name, axes in figures.metrics(recorded)] == [
        ("accuracy", {"accuracy": [(5, 0.5), (10, 0.75)]})
    ]


def test_metrics_that_a_program_tells_its_supervisor_have_curves_each_with_a_scale_of_its_own(run: Run) -> None:
    recorded = run(
        line("progress", 1, 5, metrics={"lr": 1e-5, "accuracy": 0.5}),
        line("progress", 1, 10, metrics={"lr": "NaN", "accuracy": 0.75}),
    )
    assert [(name, curves(axes)) for name, axes in figures.metrics(recorded)] == [
        ("accuracy", {"accuracy": [(5, 0.5), (10, 0.75)]}),
        ("lr", {"lr": [(5, 1e-5)]}),
    ]


def test_where_nobody_told_how_many_samples_a_step_has_throughput_is_of_steps(run: Run) -> None:
    recorded = run(
        *(line("progress", 1, step, at=at) for step, at in ((10, 10), (20, 12), (21, 12.1), (25, 13))),
        line("started", 2, 14),
        *(line("progress", 2, step, at=at) for step, at in ((15, 30), (14, 31), (20, 32))),
    )
    axes: Any = figures.throughput(recorded, [], ZERO)
    assert axes.get_ylabel() == "steps/s"
    shown = [list(zip(*one.get_data(), strict=True)) for one in axes.lines]
    assert shown == [[(12, 5), (13, pytest.approx(4 / 0.9))], [(32, 6)]]


def test_a_long_throughput_is_smoothed_with_what_was_measured_behind_it(run: Run) -> None:
    paces = [100.0] * 20 + [300.0] + [100.0] * 20
    recorded = run(*(line("progress", 1, at, at=at, samples_per_second=pace) for at, pace in enumerate(paces)))
    axes: Any = figures.throughput(recorded, [], ZERO)
    raw, smooth = axes.lines
    assert (max(raw.get_ydata()), max(smooth.get_ydata())) == (300, 140)
    assert raw.get_alpha() < 1
    assert smooth.get_gid() == "samples/s, smoothed"


def test_no_point_is_cut_off_at_an_edge(run: Run) -> None:
    lines = [line("progress", 1, 5, at=0, loss=1.0, samples_per_second=0, metrics={"lr": 1})]
    recorded = run(*lines, line("timed", 1, 5, rank_seconds={"0": 0.0}))
    drawn: list[Any] = [figures.loss(recorded, []), figures.throughput(recorded, [], ZERO), figures.ranks(recorded)]
    for axes in (*drawn, *(axes for _, axes in figures.metrics(recorded))):
        assert [one.get_clip_on() for one in (*axes.lines, *axes.collections)].count(True) == 0


def test_throughput_is_shown_of_each_start_also_of_steps_that_were_lost(run: Run) -> None:
    recorded = run(
        line("progress", 1, 10, at=60, samples_per_second=100),
        line("progress", 1, 20, at=120, samples_per_second=110),
        line("started", 2, 10, at=150),
        line("progress", 2, 20, at=180, samples_per_second=90),
    )
    axes: Any = figures.throughput(recorded, [incident(1, minutes=2.25)], ZERO)
    shown = [list(zip(*one.get_data(), strict=True)) for one in axes.lines[:2]]
    assert shown == [[(1, 100), (2, 110)], [(3, 90)]]
    assert axes.get_xlabel() == "minutes since the start"
    assert vertical(axes) == [2.25]
    assert words(axes) == ["1", "rank 1: OOM"]
    assert (axes.get_xlim()[0], axes.get_ylim()[0]) == (0, 0)


def test_an_incident_after_the_last_record_is_shown(run: Run) -> None:
    recorded = run(line("progress", 1, 10, at=60, samples_per_second=100))
    axes: Any = figures.throughput(recorded, [incident(1, minutes=3)], ZERO)
    assert axes.get_xlim()[1] > 180


def test_a_start_that_told_no_throughput_hides_none_of_the_others(run: Run) -> None:
    recorded = run(
        line("started", 1, 0, at=10),
        line("started", 2, 0, at=30),
        line("progress", 2, 10, at=60, samples_per_second=100),
    )
    axes: Any = figures.throughput(recorded, [], ZERO)
    assert axes.get_ylabel() == "samples/s"


@pytest.mark.parametrize(("count", "named"), [(figures.NAMED, figures.NAMED), (figures.NAMED + 1, 0)])
def test_the_causes_of_many_incidents_are_not_written_over_each_other(run: Run, count: int, named: int) -> None:
    recorded = run(line("progress", 1, 10, at=600, samples_per_second=100))
    axes: Any = figures.throughput(recorded, [incident(one, minutes=one) for one in range(count)], ZERO)
    assert words(axes).count("rank 1: OOM") == named
    assert len(vertical(axes)) == count


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(119, (1, "seconds")), (120, (60, "minutes")), (7199, (60, "minutes")), (7200, (3600, "hours"))],
)
def test_time_is_told_in_a_unit_of_which_there_are_two(seconds: float, unit: tuple[float, str]) -> None:
    assert figures._unit(seconds) == unit


def test_of_each_rank_the_median_is_shown_and_where_nine_in_ten_of_its_times_lie(run: Run) -> None:
    times = [line("timed", 1, step, rank_seconds={"10": step / 1000, "2": 0.007}) for step in range(101)]
    axes: Any = figures.ranks(run(*times))
    ranges = [bars.get_segments()[0].tolist() for bars in axes.collections]
    assert ranges == [[[7, 0], [7, 0]], [[pytest.approx(5), 1], [pytest.approx(95), 1]]]
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in axes.lines] == [(7, 0), (50, 1)]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["2", "10"], "by number, not by letter"
    assert axes.get_xlim()[0] == 0, "a place is as far from the edge as its rank is slow"
    assert axes.get_ylim() == (1.5, -0.5), "the first rank is at the top"


def test_a_rank_that_was_timed_once_has_a_point(run: Run) -> None:
    axes: Any = figures.ranks(run(line("timed", 1, 5, rank_seconds={"0": 0.007})))
    assert axes.collections[0].get_segments()[0].tolist() == [[7, 0], [7, 0]]


def test_the_parts_of_a_step_stand_beside_each_other_and_communication_counts_once(run: Run) -> None:
    seconds = {"data": 0.001, "forward": 0.004, "backward": 0.010, "communication": 0.003, "sum": 9.0}
    axes: Any = figures.parts(run(line("timed", 1, 5, seconds=seconds), line("timed", 1, 6, seconds={"data": 0.003})))
    bars = [(round(bar.get_x(), 6), round(bar.get_width(), 6)) for bar in axes.patches]
    assert bars == [(0, 2), (2, 4), (6, 7), (13, 3)], "of a backward pass of 10 ms, 3 were waiting for others"
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["data 2 ms", "forward 4 ms", "backward 7 ms", "communication 3 ms"]


def test_where_nobody_waited_for_others_a_backward_pass_counts_as_a_whole(run: Run) -> None:
    axes: Any = figures.parts(run(line("timed", 1, 5, seconds={"backward": 0.010})))
    assert [bar.get_width() for bar in axes.patches] == [10]


@pytest.mark.parametrize(
    "figure",
    [
        lambda recorded: figures.loss(recorded, []),
        lambda recorded: next(figures.metrics(recorded), None),
        lambda recorded: figures.throughput(recorded, [], ZERO),
        figures.ranks,
        figures.parts,
    ],
    ids=["loss", "metrics", "throughput", "ranks", "parts"],
)
def test_of_what_nothing_is_known_there_is_no_figure(run: Run, figure: Callable[[Records], str | None]) -> None:
    assert figure(run(line("progress", 1, 5, loss="NaN"))) is None


def test_a_long_curve_is_drawn_with_means_of_neighbours(run: Run) -> None:
    count = 600
    axes: Any = figures.loss(run(*(line("progress", 1, step, loss=step % 2) for step in range(count))), [])
    points = curves(axes)["training"]
    assert len(points) == 300
    assert (points[0], points[-1]) == ((1, 0.5), (count - 1, 0.5))


def tips(svg: str) -> list[str]:
    """The words of each place that can be pointed at."""
    return [" ".join(re.findall("<tspan[^>]*>(.*?)</tspan>", one)) for one in svg.split('class="tip"')[1:]]


def test_each_place_of_a_curve_tells_its_values_while_it_is_pointed_at(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    recorded = run(
        *(line("progress", 1, step, at=step, loss=step / 8, samples_per_second=step) for step in (1, 2, 4)),
        line("evaluated", 1, 4, loss=0.25),
        line("timed", 1, 4, rank_seconds={"0": 0.007}),
    )
    loss, throughput, ranks = (
        figures.loss(recorded, []),
        figures.throughput(recorded, [], ZERO),
        figures.ranks(recorded),
    )
    assert tips(str(loss)) == [
        "step 1 training: 0.125",
        "step 2 training: 0.25",
        "step 4 training: 0.5 evaluation: 0.25",
    ]
    assert tips(str(throughput))[-1] == "4 seconds since the start samples/s: 4"
    assert tips(str(ranks)) == ["rank 0: 7 ms 90% of its steps: 7 to 7 ms"]


def test_a_cause_is_written_as_it_is_and_never_read_as_a_formula(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    recorded = run(line("progress", 1, 10, at=600, samples_per_second=100))
    assert ">KeyError: $a_$</text>" in str(figures.throughput(recorded, [incident(1, cause="KeyError: $a_$")], ZERO))


def test_values_are_told_on_the_side_of_the_place_that_has_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    svg = str(figures.loss(run(*(line("progress", 1, step, loss=step) for step in range(1, 9))), []))
    places = svg.split('class="tip"')[1:]
    xs = [float(re.findall(r'<path d="M([\d.]+)', place)[0]) for place in places]
    sides = [re.findall('text-anchor="(.*?)"', place)[0] for place in places]
    texts = [float(re.findall('<tspan x="(.*?)"', place)[0]) for place in places]
    assert sides == ["start"] * 4 + ["end"] * 4
    assert [text > x for text, x in zip(texts, xs, strict=True)] == [side == "start" for side in sides]


def test_a_long_curve_tells_its_values_at_as_many_places_as_can_be_hit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    svg = figures.loss(run(*(line("progress", 1, step, loss=step) for step in range(2000))), [])
    assert figures.TIPS / 2 < len(tips(str(svg))) <= figures.TIPS


def test_a_figure_takes_the_colours_of_its_page_and_has_a_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    svg = figures.loss(run(line("progress", 1, 10, loss=2.0)), [incident(1, resumed=3)])
    assert svg is not None
    assert svg.startswith('<svg role="img" aria-label="loss by step" ')
    assert {f"var(--{name})" in svg for name in ("ink", "rule", "mark", "series-0")} == {True}
    assert "#0" not in svg.replace("url(#", "").replace('href="#', "")
    assert ">loss</text>" in svg, "letters, not outlines"
    assert "<metadata>" not in svg
    assert 'id="axes' not in svg, "several figures share one page"


def test_places_are_ranges_of_a_curve_and_rows_of_ranks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def boxes(svg: str | None) -> list[list[float]]:
        found = re.findall(r'class="place"><rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', str(svg))
        return [[float(number) for number in box] for box in found]

    recorded = run(
        *(line("progress", 1, step, loss=step) for step in range(1, 4)),
        *(line("timed", 1, step, rank_seconds={"0": 0.007, "1": 0.009}) for step in range(1, 4)),
    )
    curve, rows = figures.loss(recorded, []), figures.ranks(recorded)
    ranges, of_ranks = boxes(curve), boxes(rows)
    assert [x for x, *_ in ranges] == sorted({x for x, *_ in ranges})
    assert len({(y, height) for _, y, _, height in ranges}) == 1
    for (x, _, width, _), (after, *_) in pairwise(ranges):
        assert x + width == pytest.approx(after, abs=0.11)
    assert len(of_ranks) == 2
    assert len({(x, width) for x, _, width, _ in of_ranks}) == 1
    assert of_ranks[0][3] == pytest.approx(of_ranks[1][3], abs=0.11)
    assert abs(of_ranks[0][1] - of_ranks[1][1]) == pytest.approx(of_ranks[0][3], abs=0.11)
    assert [str(svg).count('class="tip"><path') for svg in (curve, rows)] == [3, 0]
    for (_, y, _, height), tip in zip(of_ranks, str(rows).split('class="tip"')[1:], strict=True):
        (middle,) = {float(at) for at in re.findall(r'<circle cx=".*?" cy="(.*?)"', tip)}
        assert middle == pytest.approx(y + height / 2, abs=0.2)
        assert float(re.findall(r'<text text-anchor="\w+" y="(.*?)"', tip)[0]) == pytest.approx(middle, abs=0.2)
