"""Commands for clusters, called for a run of this machine: what does the same here."""

from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import find_run

STOP = "stop it with Ctrl-C, or: kill -INT {pid}"
RUNNING = {
    "suspend": "to let it save and stop, press Ctrl-C in its terminal, or: kill -INT {pid}",
    "resume": "process {pid} carries it on",
    "scale": f"to change its size, {STOP}, edit nodes in its file, and call: ddpjob run FILE",
}
"""By command, where a process carries the run on."""
IDLE = {
    "suspend": "nothing carries it on now; to let it go on, call: ddpjob run FILE",
    "resume": "to let it go on, call: ddpjob run FILE",
    "scale": "to change its size, edit nodes in its file, and call: ddpjob run FILE",
}
"""By command, where none does."""


def refuse(runs: Path, name: str, command: str) -> int:
    """Says what to do instead.

    Raises:
        BadInputError: always.
    """
    run = find_run(runs, name)
    pid = run.lock.holder()
    instead = (RUNNING if pid else IDLE)[command].format(pid=pid)
    raise BadInputError(f"{name} is a run of this machine, not of a cluster; {instead}")
