"""Commands for clusters, called for a run of this machine: what does the same here."""

from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import find_run

INSTEAD = {
    "suspend": "to let it save and stop, press Ctrl-C in its terminal{pid}",
    "resume": "to let it go on, call: ddpjob run FILE",
    "scale": "to change its size, stop it with Ctrl-C{pid}, edit nodes in its file, and call: ddpjob run FILE",
    "delete": "to remove it and its checkpoints, stop it with Ctrl-C{pid}, and remove its directory: {root}",
}
"""By command."""


def refuse(runs: Path, name: str, command: str) -> int:
    """Says what to do instead.

    Raises:
        BadInputError: always.
    """
    run = find_run(runs, name)
    holder = run.lock.holder()
    pid = f", or: kill -INT {holder}" if holder else ""
    instead = INSTEAD[command].format(pid=pid, root=run.root)
    raise BadInputError(f"{name} is a run of this machine, not of a cluster; {instead}")
