"""Run by hand: `python -m tests.plant.kind run COMMAND…`, beside a docker engine. deploy/kind/up calls `load`."""

import argparse
import ctypes
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.plant import PlantError, build
from tests.plant.binaries import For
from tests.plant.directory import plant_directory
from tests.plant.images import OPERATOR, PYTHON, TRAINER
from tests.plant.needs import is_required, what_this_machine_lacks
from tests.plant.processes import start_with_us
from tests.plant.real import machine
from tests.plant.real.plant import NODES

from .debian import fetch
from .engine import load_images, start_engine
from .node_image import NODE_IMAGE, build_node_image, give_node_image

PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).parents[3]
LOAD = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.plant.kind", "load")


def main() -> int:
    """Does what the command line requests. Returns the exit code, which is that of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.plant.kind", description="kind, without docker or a registry."
    )
    commands = parser.add_subparsers(dest="does", required=True)
    run = commands.add_parser("run", help="run a command beside a docker engine that has an image for kind's nodes")
    run.add_argument("command", nargs=argparse.REMAINDER)
    load = commands.add_parser("load", help="put the project's images onto nodes of kind")
    load.add_argument("node", nargs="+")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if arguments.does == "run":
            return _run(arguments.command)
        load_images(arguments.node, (PYTHON, OPERATOR, TRAINER))
    except PlantError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _run(command: list[str]) -> int:
    if lack := what_this_machine_lacks("real"):
        message = f"left out: no docker engine answers, and none can run here ({lack}); install docker and kind"
        if is_required():
            raise PlantError(message)
        print(message)
        return 0
    # Otherwise this process would not end when make is killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    machine.install_missing(machine.PACKAGES | {"iptables": "iptables"})
    # Downloading from Debian mostly waits for the network and the disk, while Go's compiler needs the cores.
    with ThreadPoolExecutor() as beside:
        debian = beside.submit(fetch)
        build.build(For.KIND)
        debian.result()
    build_node_image()
    with plant_directory(NODES) as directory:
        give_node_image(directory)
        with start_engine(directory) as engine:
            # With this engine, nothing that tests need is missing, so a test must fail rather than be skipped.
            told = {"NODE": NODE_IMAGE, "LOAD": " ".join([*engine.inside, *LOAD]), "PLANT_REQUIRED": "1"}
            beside = start_with_us(*engine.network, *command, env=os.environ | engine.environment | told)
            try:
                return beside.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(beside.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
