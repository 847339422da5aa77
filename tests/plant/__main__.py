"""Run by hand: `python -m tests.plant build`; or `up api`, `up fake` or `up real`, which run until Ctrl-C."""

import argparse
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress

from . import Plant, PlantError, build, start_api, start_fake
from .binaries import For
from .images import build_images
from .real import machine, start_real

SIZES: dict[str, Callable[[], AbstractContextManager[Plant]]] = {
    "api": start_api,
    "fake": start_fake,
    "real": start_real,
}


def main() -> int:
    """Builds the plant, or brings up one of its sizes and waits."""
    parser = argparse.ArgumentParser(prog="python -m tests.plant", description="The cluster that the tests run on.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build what is missing")
    up = commands.add_parser("up", help="bring a plant up until Ctrl-C")
    up.add_argument("size", choices=SIZES)
    arguments = parser.parse_args()
    try:
        if arguments.command == "up":
            _up(arguments.size)
        else:
            _build()
    except PlantError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _build() -> None:
    if lack := machine.what_is_lacking():
        print(f"left out: the size real cannot run here ({lack}); run it on Linux, as root")
        build.build()
        return
    machine.install_missing()
    # Building images mostly waits for the network and the disk, while Go's compiler needs the cores.
    with ThreadPoolExecutor() as beside:
        images = beside.submit(build_images)
        build.build(For.REAL)
        images.result()


def _up(size: str) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), SIZES[size]() as plant:
        print(f"export KUBECONFIG={plant.kubeconfig}", f"export PATH={build.path('kubectl').parent}:$PATH", sep="\n")
        print(f"# logs in {plant.directory}/logs; Ctrl-C ends it", flush=True)
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
