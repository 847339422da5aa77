"""The summary that is printed when a job has ended."""

from collections.abc import Iterator
from datetime import datetime

from ddpjob_operator.api import Backend, ConditionType, DDPJob, DDPJobStatus, State
from ddpjob_operator.api.words import lasted
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import LoggedProgress, last_loss

from .invocation import itself
from .phrases import NEVER_RAN, restarts
from .screen import Screen

NO_NCCL = (
    "The script asks for NCCL, which needs a GPU for each rank; this job runs with gloo. Have the script "
    "use the job's backend:"
    ' init_process_group(os.environ["DDPJOB_BACKEND"])'
)

NO_TERMINAL = (
    "Ranks have no terminal, so breakpoint() and input() end them. To give rank {rank} yours, add --attach {rank} to"
    " your command"
)
NO_TERMINAL_THERE = (
    "Ranks have no terminal, so breakpoint() and input() end them. To give rank {rank} yours, run the job on this"
    " machine: {ddpjob} run … --attach {rank}"
)
OTHER_TERMINAL = (
    "Only rank {attached} has a terminal, so input() ends rank {rank}. To give rank {rank} yours instead, use"
    " --attach {rank}"
)
READS_A_TERMINAL = ("BdbQuit", "EOFError: EOF when reading a line")
"""Messages of the exceptions that `breakpoint()` and `input()` raise without a terminal."""


def summarise(
    screen: Screen,
    job: DDPJob,
    progress: LoggedProgress,
    seconds: float = 0.0,
    *,
    created: datetime | None = None,
    **where: str | None,
) -> None:
    """Prints how the job ended, its results, and the paths and commands in `where`, by label.

    `seconds` is how long this command has followed the job. It is printed if the status lacks the job's duration.
    `created` is when the job was created, if that is known.
    """
    status = job.status
    screen.print(f"\n{job.metadata.name}: {status.state}. {one_line(status.message)}")
    for name, value in _results(job, progress, seconds, created):
        if value is not None:
            screen.entry(f"  {name:<11}", one_line(value))
    for name, value in where.items():
        if value is not None:
            screen.print(f"  {name:<11}{one_line(value)}")


def advise(screen: Screen, job: DDPJob, flags: str = "", attached: int | None = None) -> None:
    """Prints the advice after a failure."""
    for line in advice(job, flags, attached):
        screen.print(line)


def advice(job: DDPJob, flags: str = "", attached: int | None = None) -> Iterator[str]:
    """After a failure: which log to look at, and what to do about some mistakes.

    `flags` are added to `ddpjob logs` so that it finds a job on a cluster; for a run on this machine there are none.
    `attached` is the rank that had the terminal.
    """
    incident = job.status.last_incident
    if job.status.state is State.FAILED and incident and incident.cause not in NEVER_RAN:
        yield f"Look at its log with: {itself()} logs {job.metadata.name}{flags} --node {incident.node}"
        # With a supervisor, the rank's message already gives this advice.
        unsaid = "DDPJOB_BACKEND" not in incident.message
        if job.status.backend is Backend.GLOO and "nccl" in incident.message.lower() and unsaid:
            yield NO_NCCL
        rank = incident.node if incident.rank is None else incident.rank
        if incident.message in READS_A_TERMINAL and rank != attached:
            text = OTHER_TERMINAL if attached is not None else NO_TERMINAL_THERE if flags else NO_TERMINAL
            yield text.format(rank=rank, attached=attached, ddpjob=itself())


def _results(
    job: DDPJob, progress: LoggedProgress, seconds: float, created: datetime | None
) -> list[tuple[str, str | None]]:
    evaluated, finished, reported = progress.evaluated, progress.finished, job.status.progress
    pace = finished.values.get("samples_per_second") if finished else None
    step = progress.step if progress.step is not None or reported is None else reported.step
    return [
        ("loss", job.status.message_while_true(ConditionType.LOSS_NOT_FINITE) or last_loss(job.status, progress)),
        ("accuracy", evaluated.values.get("accuracy") if evaluated else None),
        ("throughput", f"{pace} samples/s" if pace else None),
        ("step", str(step) if step is not None else None),
        ("duration", _took(job.status, seconds, created)),
        ("restarts", restarts(job.status)),
    ]


def _took(status: DDPJobStatus, seconds: float, created: datetime | None) -> str | None:
    ended = status.completion_time
    if status.start_time is not None and ended is not None:
        seconds = (ended - status.start_time).total_seconds()
    in_all = (ended - created).total_seconds() if ended and created and status.resumed else None
    return lasted(seconds, in_all) if seconds > 0 else None
