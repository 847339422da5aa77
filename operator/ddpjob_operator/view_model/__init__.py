"""What a screen shows of jobs, without any screen: words, figures and curves, as values.

Each command, page and notebook takes them from here, so that a job is described in the same words everywhere. Reads
no clock, and does no input or output. Imports api, engine and text.
"""

from .curves import Curve, clock_of, curves_of, metrics_of
from .description import Around, advice_on, between_steps, how_far, last_step, lines_of, pace, tables_of, waiting
from .interruptions import STOPPED_ON_REQUEST, Interruption, interruptions_of
from .job_detail import JobDetail, TimeAxis, job_detail
from .job_row import (
    TROUBLE,
    JobKey,
    JobRow,
    Origin,
    awaited,
    goodput,
    job_row,
    kept_row,
    newest_first,
    told_states,
    unreadable_row,
)
from .logged_progress import LoggedProgress, PrintedStep, Report, parse, printed_loss, printed_step
from .losses import last_loss, last_loss_alone, loss_in
from .masking import MASK, Mask, without_secrets
from .pods_seen import PodSeen
from .rank_rows import RankRow, rank_rows, slowest
from .records import Record, Records, Start, collected
from .spec_lines import SpecLine, spec_lines
from .start_tree import Branch, StartMoments, StartStep, start_moments, start_tree

__all__ = [
    "MASK",
    "STOPPED_ON_REQUEST",
    "TROUBLE",
    "Around",
    "Branch",
    "Curve",
    "Interruption",
    "JobDetail",
    "JobKey",
    "JobRow",
    "LoggedProgress",
    "Mask",
    "Origin",
    "PodSeen",
    "PrintedStep",
    "RankRow",
    "Record",
    "Records",
    "Report",
    "SpecLine",
    "Start",
    "StartMoments",
    "StartStep",
    "TimeAxis",
    "advice_on",
    "awaited",
    "between_steps",
    "clock_of",
    "collected",
    "curves_of",
    "goodput",
    "how_far",
    "interruptions_of",
    "job_detail",
    "job_row",
    "kept_row",
    "last_loss",
    "last_loss_alone",
    "last_step",
    "lines_of",
    "loss_in",
    "metrics_of",
    "newest_first",
    "pace",
    "parse",
    "printed_loss",
    "printed_step",
    "rank_rows",
    "slowest",
    "spec_lines",
    "start_moments",
    "start_tree",
    "tables_of",
    "told_states",
    "unreadable_row",
    "waiting",
    "without_secrets",
]
