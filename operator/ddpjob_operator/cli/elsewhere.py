"""Commands for clusters, called for a run of this machine: what does the same here."""

from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import find_run

from .called import itself

STOP = "{ddpjob} stop {name}"
GO_ON = "{ddpjob} run --resume {name}"
RUNNING = {
    "suspend": f"let it save and stop with: {STOP}",
    "resume": "process {pid} carries it on",
    "scale": f"to change its size, stop it with: {STOP}; then edit nodes in its file, and call: {{ddpjob}} run FILE",
}
"""By command, where a process carries the run on."""
IDLE = {
    "suspend": f"nothing carries it on now; let it go on with: {GO_ON}",
    "resume": f"let it go on with: {GO_ON}",
    "scale": "to change its size, edit nodes in its file, and call: {ddpjob} run FILE",
}
"""By command, where none does."""


def refuse(runs: Path, name: str, command: str) -> int:
    """Says what to do instead.

    Raises:
        BadInputError: always.
    """
    run = find_run(runs, name)
    pid = run.lock.holder()
    instead = (RUNNING if pid else IDLE)[command].format(ddpjob=itself(), name=name, pid=pid)
    raise BadInputError(f"{name} is a run of this machine, not of a cluster; {instead}")
