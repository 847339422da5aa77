"""The init container that holds a rank back until rank 0 listens, so that its trainer finds the master there.

Without it a program that gives up after a few tries would fail on every node that is faster than rank 0's. Our own
supervisor does not need it: it waits for rank 0's supervisor with all imports done.
"""

import copy
import json

from ddpjob_operator.api import Cause
from ddpjob_operator.api.contract import Env, ExitCode
from ddpjob_operator.api.resources import without_devices
from ddpjob_operator.engine.snapshot import Manifest

WAIT_CONTAINER = "wait-for-master"
WAITING_FOR_MASTER = "waiting for the master's port"
"""What messages say of a pod in which the wait container runs."""

VOLUMES_AND_NETWORK = "waiting for its volumes and network"
"""What messages say of a pod that does not have all of these yet; only the kubelet's events name the missing
volume."""

ALIKE = ("image", "imagePullPolicy", "securityContext")
"""The fields that our init containers copy from the trainer: no other image has to be pulled or admitted."""

PROGRAM = f"""\
import os, signal, socket, time

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))  # The first process of a container ignores it otherwise.
host = os.environ["{Env.MASTER_ADDR}"]
# A program's store, or a supervisor, which starts its ranks once all nodes are there.
ports = [os.environ[name] for name in ("{Env.MASTER_PORT}", "{Env.CONTROL_PORT}") if name in os.environ]
pause, said = 0.1, None
while True:
    for port in ports:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            os._exit(0)
        except OSError as error:
            if said is None or time.monotonic() - said >= 30:
                said = time.monotonic()
                print("waiting for rank 0 at {{}}:{{}}: {{}}".format(host, port, error), flush=True)
    time.sleep(pause)
    pause = min(pause * 1.2, 0.5)
"""

NO_PYTHON = {
    "cause": Cause.CONFIG_ERROR,
    "message": f"{WAIT_CONTAINER} needs python in the image of the trainer and finds none; "
    "set spec.network.waitForMaster: false",
}
"""A failure report, written as the last line of the log: trying again cannot help."""

# With -I and -S, neither PYTHONPATH, nor a socket.py in the working directory, nor a site package can get in the way.
SHELL = f"""\
for python in python3 python; do
  command -v "$python" >/dev/null && exec "$python" -ISc "$0"
done
echo "$1" >&2
exit {ExitCode.BAD_INPUT:d}
"""


RESERVE_CONTAINER = "wait-for-growth"
# A shell runs its trap immediately during `wait`; during a `sleep` in the foreground, only once the sleep is over.
RESERVE_SHELL = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def reserve_container(trainer: Manifest) -> Manifest:
    """The container of a reserve, which only holds its place; it never ends by itself."""
    alike: Manifest = {name: trainer[name] for name in ALIKE if name in trainer}
    return {
        "name": RESERVE_CONTAINER,
        **copy.deepcopy(alike),
        "command": ["sh", "-c", RESERVE_SHELL],
        **without_devices(trainer),
    }


def wait_container(trainer: Manifest, master: list[Manifest]) -> Manifest:
    """The init container that waits for rank 0; `master` are the variables that tell where rank 0 is.

    It waits forever: the operator decides how long is too long. Every try resolves the name again.
    """
    alike: Manifest = {name: trainer[name] for name in ALIKE if name in trainer}
    return {
        "name": WAIT_CONTAINER,
        **copy.deepcopy(alike),
        "command": ["sh", "-c", SHELL, PROGRAM, json.dumps(NO_PYTHON)],
        "env": master,
        **without_devices(trainer),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
