"""The summary that is printed when a job has ended."""

from ddpjob_operator.api import Backend, ConditionType, DDPJob, State
from ddpjob_operator.text import one_line

from .invocation import itself
from .phrases import NEVER_RAN, restarts
from .progress import LoggedProgress
from .screen import Screen

NO_NCCL = (
    "The script asks for NCCL, which needs a GPU for each rank; this job runs with gloo. Have the script "
    "use the job's:"
    ' init_process_group(os.environ["DDPJOB_BACKEND"])'
)

NO_TERMINAL = (
    "Ranks have no terminal, so breakpoint() and input() end them. torchrun gives them one: "
    "torchrun --standalone --nproc-per-node 1 SCRIPT"
)
READS_A_TERMINAL = ("BdbQuit", "EOFError: EOF when reading a line")
"""The messages of what `breakpoint()` and `input()` raise without a terminal."""


def summarise(screen: Screen, job: DDPJob, progress: LoggedProgress, *, checkpoint: str | None, logs: str) -> None:
    """Prints how the job ended and its results; `logs` is the logs' directory or the command that prints them."""
    status = job.status
    screen.print(f"\n{job.metadata.name}: {status.state}. {one_line(status.message)}")
    for name, value in _results(job, progress):
        screen.print(f"  {name:<11}{one_line(value)}")
    if checkpoint is not None:
        screen.print(f"  {'checkpoint':<11}{checkpoint}")
    screen.print(f"  {'logs':<11}{logs}")


def advise(screen: Screen, job: DDPJob, flags: str = "") -> None:
    """Prints after a failure which log to look at; `flags` are added to `ddpjob logs` so that it finds the job."""
    incident = job.status.last_incident
    if job.status.state is State.FAILED and incident and incident.cause not in NEVER_RAN:
        command = f"{itself()} logs {job.metadata.name}{flags} --node {incident.node}"
        screen.print(f"Look at its log with: {command}")
        if job.status.backend is Backend.GLOO and "nccl" in incident.message.lower():
            screen.print(NO_NCCL)
        if incident.message in READS_A_TERMINAL:
            screen.print(NO_TERMINAL)


def _results(job: DDPJob, progress: LoggedProgress) -> list[tuple[str, str]]:
    evaluated, finished, reported = progress.evaluated, progress.finished, job.status.progress
    pace = finished.values.get("samples_per_second") if finished else None
    step = progress.step if progress.step is not None or reported is None else reported.step
    results = [
        ("loss", job.status.message_while_true(ConditionType.LOSS_NOT_FINITE) or None),
        ("accuracy", evaluated.values.get("accuracy") if evaluated else None),
        ("throughput", f"{pace} samples/s" if pace else None),
        ("step", str(step) if step is not None else None),
        ("restarts", restarts(job.status)),
    ]
    return [(name, value) for name, value in results if value is not None]
