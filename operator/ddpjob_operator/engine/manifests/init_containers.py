"""Our init containers: one that waits for the master before a rank's trainer starts, and one for reserves.

Without the wait, a program that gives up after a few tries to connect would fail on every node that starts before
rank 0's. Nodes with our supervisor need no such container, because the supervisor itself waits, with all imports
done.
"""

import copy
import json

from ddpjob_operator.api import Cause
from ddpjob_operator.api.contract import Env, ExitCode
from ddpjob_operator.api.resources import without_devices
from ddpjob_operator.engine.snapshot import Manifest

WAIT_CONTAINER = "wait-for-master"
WAITING_FOR_MASTER = "waiting for the master's port"
"""How messages describe a pod in which the wait container is running."""

VOLUMES_AND_NETWORK = "waiting for its volumes and network"
"""How messages describe a pod that lacks a volume or its network. Only the kubelet's events name a missing volume."""

ALIKE = ("image", "imagePullPolicy", "securityContext")
"""The fields that our init containers copy from the trainer, so that no other image has to be pulled or admitted."""

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
"""A failure report, which becomes the last line of the log. With this cause the job fails without a restart."""

# Because of -I and -S, python ignores PYTHONPATH, site packages, and any socket.py in the working directory.
SHELL = f"""\
for python in python3 python; do
  command -v "$python" >/dev/null && exec "$python" -ISc "$0"
done
echo "$1" >&2
exit {ExitCode.BAD_INPUT:d}
"""


RESERVE_CONTAINER = "wait-for-growth"
# During `wait`, a shell runs its trap immediately. With a `sleep` in the foreground, it would finish the sleep first.
RESERVE_SHELL = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def reserve_container(trainer: Manifest) -> Manifest:
    """Builds the container of a reserve, which only occupies the pod's place and never ends unless it is stopped."""
    alike: Manifest = {name: trainer[name] for name in ALIKE if name in trainer}
    return {
        "name": RESERVE_CONTAINER,
        **copy.deepcopy(alike),
        "command": ["sh", "-c", RESERVE_SHELL],
        **without_devices(trainer),
    }


def wait_container(trainer: Manifest, master: list[Manifest]) -> Manifest:
    """Builds the init container that waits for rank 0. `master` are the variables with rank 0's address and ports.

    The container waits without a limit, because the operator has the timeout. Each try resolves the name again.
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
