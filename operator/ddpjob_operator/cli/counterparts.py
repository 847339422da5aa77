"""Refuses a cluster command for a run on this machine, and names the local command that does the same."""

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RunDirectory, Runs, find_run

from .invocation import itself

STOP = "{ddpjob} stop {name}"
GO_ON = "{ddpjob} {again}"
RUNNING = {
    "cancel": f"let it save and stop with: {STOP}",
    "suspend": f"let it save and stop with: {STOP}",
    "resume": "process {pid} is running it",
    "debug": "its ranks are processes of this machine; what they do is shown by: {ddpjob} status {name} --stacks",
    "scale": f"to change its size, stop it with: {STOP}; then {{resize}}",
}
"""Advice by command, if a process is running the job."""
IDLE = {
    "cancel": "no ddpjob run is in charge of it now; remove it with: {ddpjob} rm {name}",
    "suspend": f"no ddpjob run is in charge of it now; let it go on with: {GO_ON}",
    "resume": f"let it go on with: {GO_ON}",
    "debug": "no ddpjob run is in charge of it now, so nothing runs",
    "scale": "to change its size, {resize}",
}
"""Advice by command, if no process is running the job."""


def refuse(runs: Runs, name: str, command: str) -> int:
    """Refuses `command` for a run on this machine.

    Raises:
        BadInputError: always, with the local command to use instead.
    """
    run = find_run(runs, name)
    pid = run.lock.holder()
    values = {"ddpjob": itself(), "name": name, "again": run.resume, "pid": pid, "resize": _how_to_resize(run)}
    instead = (RUNNING if pid else IDLE)[command].format(**values)
    raise BadInputError(f"{name} is a run on this machine, not on a cluster; {instead}")


def _how_to_resize(run: RunDirectory) -> str:
    """Advice on resizing a run: a run of a program keeps its size, but a run of a YAML file follows the file."""
    begun = run.begun
    if program := begun.get("program"):
        return f"start another run of {program}, with --nodes: this one keeps the nodes that it was started with"
    file = begun.get("file", "FILE")
    return f"edit nodes in {file}, and run: {itself()} run {file}"
