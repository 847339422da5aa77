"""`ddpjob describe NAME`, of which `ddpjob status` prints the first part.

That part has the job's state and the reason for it, its incidents, and its remaining budget and time.
"""

from collections.abc import Sequence
from datetime import datetime

from ddpjob_operator.api import DDPJob
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import Around, RankRow, lines_of, spec_lines, tables_of

from .phrases import style_of
from .screen import Screen
from .table import tabulate

FULL = "full"
"""The value of `output` with which a job is shown by `ddpjob describe`. It is no value of the flag `-o`."""


def describe(screen: Screen, job: DDPJob, now: datetime, around: Around, *, wide: bool = False) -> None:
    """Prints the present state of a job, each text only once. `wide` adds all incidents and conditions in full."""
    for name, value in lines_of(job, now, around, wide=wide).items():
        screen.entry(f"{name + ':':<14}", one_line(value), style_of(value) if name == "State" else "")
    for name, link in around.links.items():
        if link is not None:
            screen.print(f"{name + ':':<14}{one_line(link)}")
    for heading, rows in tables_of(job, now, wide=wide).items():
        for index, (head, text) in enumerate(rows):
            if index == 0:
                screen.print(f"{heading}:")
            screen.entry(f"  {one_line(head)}", one_line(text))


def describe_spec(screen: Screen, job: DDPJob) -> None:
    """Prints what a job was asked to be: what differs from the defaults line by line, and the defaults after it."""
    lines = spec_lines(job)
    chosen = [line for line in lines if not line.default]
    width = max((len(line.path) for line in chosen), default=0)
    screen.print("Spec:")
    for line in chosen:
        screen.entry(f"  {one_line(line.path):<{width}}  ", one_line(line.value))
    screen.entry("Defaults:     ", ", ".join(f"{line.path} {one_line(line.value)}" for line in lines if line.default))


def describe_ranks(screen: Screen, rows: Sequence[RankRow]) -> None:
    """Prints the ranks as a table; nothing if there are none."""
    if rows:
        from .top.drawing import OF_RANKS, rank_cells  # noqa: PLC0415  It imports the client, which takes long.

        screen.print("Ranks:")
        tabulate(OF_RANKS, [rank_cells(row) for row in rows])
