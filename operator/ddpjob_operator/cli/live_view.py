"""Builds the live display of a run: the progress bars that ranks print, and the progress of the ranks and the job."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ddpjob_operator.api import ConditionType, DDPJobStatus, Progress, State
from ddpjob_operator.api.words import age, counted, duration
from ddpjob_operator.text import one_line, visible
from ddpjob_operator.view_model import LoggedProgress, Report, between_steps, how_far, last_step, pace, waiting

from .run_logs import Line

HEADINGS = {"epoch": "epoch", "step": "step", "loss": "loss", "samples_per_second": "samples/s", "eta_seconds": "ETA"}
"""Column headings, by field of a progress line. Any other field gets a column under its own name."""
OWN = {"rank", *HEADINGS.values()}
AT_EACH_END = 3
"""How many of the slowest ranks, and of the fastest, are shown if there is no room for all."""
LOW = 16
"""On a terminal with fewer lines than this, only the slowest rank and the fastest are shown."""
LATE = 10.0
"""A step is late if it takes this many times as long as usual, and at least LATE_SECONDS."""
LATE_SECONDS = 10.0
PART_OF_LIMIT = 0.5
"""The display warns of a stall if a step is late, or has taken this fraction of the stall limit."""


def live_view(
    progress: LoggedProgress, status: DDPJobStatus | None, unfinished: Iterable[Line], now: datetime, height: int
) -> Group:
    """What to draw on a terminal of `height` lines. The bar of the whole job comes last."""
    bars = [_as_one_line(line) for line in unfinished]
    room = max(2, height // 4)
    if len(bars) > room:
        bars = [*bars[: room - 1], Text(f"… and {len(bars) - room + 1} more", style="dim")]
    parts: list[RenderableType] = [*bars]
    if progress.ranks:
        parts += _table(progress, height)
    return Group(*parts, *_of_the_job(progress, status, now))


def _table(progress: LoggedProgress, height: int) -> Iterator[RenderableType]:
    """One row for each rank or, if they do not fit in half of the terminal, for the slowest and fastest ranks."""
    shown = sorted(progress.ranks.items())
    ends = AT_EACH_END if height >= LOW else 1
    if len(shown) > max(height // 2 - 3, 2 * ends + 1):
        shown.sort(key=lambda item: (_step(item[1]), item[1].number("samples_per_second") or 0.0, -item[0]))
        between = len(shown) - 2 * ends
        every = counted(len(shown), "rank")
        yield Text(f"{every}: the slowest {ends}, {between} between, the fastest {ends}", style="dim")
        shown = [*shown[:ends], *shown[-ends:]]
    else:
        between = 0
    fields = dict.fromkeys(key for _, report in shown for key in report.values if key != "rank")
    columns = HEADINGS | {key: key for key in fields if key not in HEADINGS}
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("rank", *columns.values()):
        # rich first narrows the columns that may wrap. Those are the program's own fields: their values contain no
        # spaces, so they are cut off, not wrapped.
        table.add_column(heading, justify="right", no_wrap=heading in OWN)
    for index, (rank, report) in enumerate(shown):
        if between and index == ends:
            table.add_row("…")
        table.add_row(str(rank), *(_shown(report, column) for column in columns))
    yield table


def _of_the_job(progress: LoggedProgress, status: DDPJobStatus | None, now: datetime) -> Iterator[RenderableType]:
    """What the job does now, in words, and its progress bar if the total number of steps is known."""
    if news := _news(status):
        yield _words(news, status)
    far = "" if progress.ranks or status is None else ", ".join(how_far(status))
    now_doing = _doing(progress, status, now)
    share = _share(progress, status)
    if share is None:
        yield _words(", ".join(filter(None, (far, *now_doing))), status)
        return
    yield _words(", ".join(now_doing), status)
    line = Table.grid(padding=(0, 1))
    line.add_row(ProgressBar(total=1.0, completed=share, width=20 if far else 40), far or f"{share:4.0%}")
    yield line


def _news(status: DDPJobStatus | None) -> str:
    """The message of a running job, if it differs from that of the condition Running; otherwise empty."""
    running = status.condition(ConditionType.RUNNING) if status is not None else None
    if status is None or status.state is not State.RUNNING or running is None:
        return ""
    return "" if status.message == running.message else status.message


def _words(words: str, status: DDPJobStatus | None) -> Text:
    style = "yellow" if status is not None and status.state is State.STALLED else "dim"
    return Text(one_line(words), style=style, no_wrap=True, overflow="ellipsis")


def _doing(progress: LoggedProgress, status: DDPJobStatus | None, now: datetime) -> Iterator[str]:
    """What the job waits for, or how long ago it finished a step, and how long it has been running."""
    if status is None:
        yield "waiting for the first step"
        return
    last = _last_step(progress, status)
    if status.message and status.state is not State.RUNNING:
        yield status.message
    elif last is None:
        yield waiting(status, now)
    if last is not None:
        yield from between_steps(status)
        yield f"last step {age(last, now)} ago{_lateness(status, last, now)}"
    if status.start_time is not None:
        since = " since it was resumed" if status.resumed else ""
        yield f"{duration(max(0, int((now - status.start_time).total_seconds())))} elapsed{since}"


def _last_step(progress: LoggedProgress, status: DDPJobStatus) -> datetime | None:
    """When the present attempt finished its last step, according to its log or its supervisor; None if unknown."""
    printed = progress.stepped if progress.attempt >= status.attempt else None
    return max(filter(None, (last_step(status), printed)), default=None)


def _lateness(status: DDPJobStatus, last: datetime, now: datetime) -> str:
    """The usual time of a step, and how soon the job counts as stalled; empty if the present step is not late."""
    progress = status.progress or Progress()
    usual, limit = progress.step_seconds, progress.stall_limit_seconds
    seconds = (now - max(last, progress.activity_time or last)).total_seconds()
    late = usual and seconds > max(LATE_SECONDS, LATE * usual)
    words = f" (usually {pace(usual)})" if usual and late else ""
    if limit and status.state is State.RUNNING and (late or seconds > PART_OF_LIMIT * limit):
        words += f", stalled in {duration(max(0, round(limit - seconds)))}"
    return words


def _share(progress: LoggedProgress, status: DDPJobStatus | None) -> float | None:
    """The fraction of all steps that is finished; None if the total is unknown."""
    if progress.ranks:
        slowest = min(progress.ranks.values(), key=_step)
        total = slowest.total("step")
        return min(1.0, _step(slowest) / total) if total else None
    percent = status.progress.percent if status is not None and status.progress else None
    return None if percent is None else percent / 100


def _as_one_line(line: Line) -> Text:
    return Text(visible(str(line)), no_wrap=True, overflow="ellipsis")


def _shown(report: Report, column: str) -> str:
    value = report.values.get(column, "")
    return f"{value} s" if value and column == "eta_seconds" else value


def _step(report: Report) -> float:
    return report.number("step") or 0.0
