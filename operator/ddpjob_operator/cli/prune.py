"""`ddpjob prune --history`: removes what is kept of old jobs that have ended."""

import argparse
import time
from itertools import islice

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.resources import amount_of
from ddpjob_operator.api.words import counted
from ddpjob_operator.history import (
    MOST_JOBS,
    PlaceError,
    Retention,
    Stock,
    Unreadable,
    is_of_one_job,
    kept_jobs,
    namespaces_of,
    open_place,
)

from .from_history import CLAIM
from .phrases import say

CERTAIN = "a job is removed a day after the last line of one that succeeded, and a week after that of one that failed"
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def prune(arguments: argparse.Namespace) -> int:
    """Removes the histories that the arguments do not keep, and prints what it has removed.

    A job that cannot be removed is named, and the others are removed; the exit code is then 1.

    Raises:
        BadInputError: No limit is given, or the place is not one.
        PlaceError: The place cannot be read.
    """
    size = None if arguments.max_size is None else amount_of(arguments.max_size)
    if arguments.max_size is not None and size is None:
        raise BadInputError(f"--max-size {arguments.max_size}: must be a quantity of bytes, such as 100Gi")
    if (arguments.keep, arguments.older_than, size) == (None, None, None):
        raise BadInputError("nothing says what to remove: use --keep, --older-than or --max-size")
    if arguments.history.startswith(CLAIM):
        raise BadInputError(f"{arguments.history} is only read: prune it where it is mounted")
    place = open_place(arguments.history)
    if is_of_one_job(place):
        raise BadInputError(f"{place} is the folder of one job: name the place that contains its namespace")
    space, _, name = (arguments.name or "").rpartition("/")
    left_out: Unreadable = {}
    found = kept_jobs(place, [space]) if space else kept_jobs(place, namespaces_of(place), left_out)
    jobs = [job for job in islice(found, 10 * MOST_JOBS) if not name or job.name == name]
    retention = Retention(arguments.keep, arguments.older_than, None if size is None else int(size))
    for sentence in left_out.values():
        say(sentence)
    stock, freed, number, failed = Stock(place, jobs), 0, 0, 0
    for job in stock.surplus(retention, time.time()):
        try:
            taken = stock.size(job) if arguments.dry_run else stock.remove(job, say)
        except PlaceError as error:
            failed += 1
            say(f"{job.namespace}/{job.name} {job.uid} is not removed, or not all of it: {error}")
            continue
        verb = "would remove" if arguments.dry_run else "removed"
        print(
            f"{verb} {job.namespace}/{job.name} {job.uid}, which began {job.moment}: {_in_units(taken)}", flush=True
        )
        freed, number = freed + taken, number + 1
    _say_unreadable(stock)
    if stock.uncertain:
        say(f"{counted(len(stock.uncertain), 'job')} may still run: {CERTAIN}")
    kept = counted(len(jobs) - number, "job")
    print(
        f"{counted(number, 'job')}, {_in_units(freed)}; {kept} {'remain' if len(jobs) - number != 1 else 'remains'}"
    )
    return 1 if failed else 0


def _say_unreadable(stock: Stock) -> None:
    if stock.unreadable:
        number, first = len(stock.unreadable), next(iter(stock.unreadable.values()))
        whose = "is kept, because its folder" if number == 1 else "are kept, because their folders"
        say(f"{counted(number, 'job')} {whose} cannot be read: {'' if number == 1 else 'for example, '}{first}")


def _in_units(size: int) -> str:
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
