"""Prints a job in full: its state and the reason for it, its incidents, and its remaining budget and time."""

from datetime import datetime

from ddpjob_operator.api import DDPJob
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import Around, lines_of, tables_of

from .phrases import style_of
from .screen import Screen


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
