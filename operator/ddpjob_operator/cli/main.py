"""The `ddpjob` command. Exit codes: that of the job; 2 for bad input."""

import argparse
import os
import sys
from importlib.metadata import version
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RUNS

from .logs import logs
from .run import run
from .status import status
from .words import INTERRUPTED


def main() -> None:
    """Runs the command that the arguments name."""
    arguments = parser().parse_args()
    try:
        sys.exit(_call(arguments))
    except BadInputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has enough of it, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    top = argparse.ArgumentParser(
        prog="ddpjob", description="Run PyTorch DistributedDataParallel training as a whole."
    )
    top.add_argument("--version", action="version", version=f"ddpjob {version('ddpjob')}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    one = commands.add_parser("run", help="run a DDPJob on this machine, or go on with it")
    one.add_argument("file", type=Path, metavar="FILE", help="YAML file with one DDPJob")
    one.add_argument(
        "--fresh",
        action="store_true",
        help="forget an earlier run of this job, and the checkpoints in its run directory",
    )

    one = commands.add_parser("status", help="say what a job is doing and why")
    one.add_argument("name", nargs="?", metavar="NAME", help="the job; not needed where there is only one")
    one.add_argument("-o", "--output", choices=["json"], help="print the whole object")

    one = commands.add_parser("logs", help="print what the ranks have written")
    one.add_argument("name", nargs="?", metavar="NAME", help="the job; not needed where there is only one")
    one.add_argument("--rank", type=int, metavar="N", help="only this node's")
    one.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    one.add_argument("-p", "--previous", action="store_true", help="of the attempt before the present one")

    for command in commands.choices.values():
        command.add_argument(
            "--run-dir",
            type=Path,
            metavar="DIR",
            default=Path(os.environ.get("DDPJOB_RUN_DIR", RUNS)),
            help=f"where runs are kept (default: $DDPJOB_RUN_DIR or {RUNS})",
        )
    return top


def _call(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "run":
            return run(arguments.file, arguments.run_dir, fresh=arguments.fresh)
        case "status":
            return status(arguments.run_dir, arguments.name, as_json=arguments.output == "json")
        case _:
            return logs(
                arguments.run_dir,
                arguments.name,
                arguments.rank,
                follow=arguments.follow,
                previous=arguments.previous,
            )
