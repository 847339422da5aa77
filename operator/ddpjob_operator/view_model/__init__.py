"""What a screen shows of jobs, without any screen: words, figures and curves, as values.

Each command, page and notebook takes them from here, so that a job is described in the same words everywhere. Reads
no clock, and does no input or output. Imports api, engine and text.
"""

from .curves import Curve
from .description import Around, between_steps, how_far, last_step, lines_of, pace, tables_of, waiting
from .interruptions import STOPPED_ON_REQUEST, Interruption, interruptions_of
from .logged_progress import LoggedProgress, Report, parse, printed_loss
from .losses import last_loss, last_loss_alone, loss_in
from .records import Record, Records, Start, collected

__all__ = [
    "STOPPED_ON_REQUEST",
    "Around",
    "Curve",
    "Interruption",
    "LoggedProgress",
    "Record",
    "Records",
    "Report",
    "Start",
    "between_steps",
    "collected",
    "how_far",
    "interruptions_of",
    "last_loss",
    "last_loss_alone",
    "last_step",
    "lines_of",
    "loss_in",
    "pace",
    "parse",
    "printed_loss",
    "tables_of",
    "waiting",
]
