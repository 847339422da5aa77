"""`ddpjob-supervise`: runs the ranks of this node, in front of any PyTorch training program."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from ddpjob_rank.console import complain
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.failure.failure_report import clear, leave, report_of, report_path
from ddpjob_rank.parsing import Parser, unpack_variables
from ddpjob_rank.places.flags import PROOF
from ddpjob_rank.running.program import program_of
from ddpjob_rank.stopping import leave_at_once

from .node.imports import check_imports
from .supervise import supervise

START_METHODS = ("warm", "cold")


def main() -> NoReturn:
    """Runs the program that the command line names once for each process of this node."""
    clear(report_path(os.environ))
    try:
        unpack_variables(os.environ)
        flags = _parser().parse_args()
        program = program_of(flags.program if flags.module is None else ["-m", *flags.module])
        program.check()
        if not flags.preload:  # What it does to Python is unknown here.
            check_imports(program)
        if flags.secret_file is not None:
            os.environ[Env.SECRET_FILE] = str(flags.secret_file)
        if flags.preload and flags.start_method == "cold":
            raise ConfigError("--preload needs --start-method warm: what is started cold imports all by itself")
        leave_at_once(supervise(program, flags.start_method, flags.max_restarts, flags.preload))
    except TrainerError as error:
        complain(str(error))
        leave(report_of(error, 0, None), report_path(os.environ))
        sys.exit(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ddpjob-supervise",
        description=__doc__,
        usage="%(prog)s [OPTION ...] {SCRIPT | -m MODULE} [ARGUMENT ...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--start-method",
        choices=START_METHODS,
        default="warm",
        help="warm: fork ranks from a process that has imported torch; cold: start each as a process of its own",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="restarts in place within the window (default: DDPJOB_IN_PLACE_RESTARTS, else 0)",
    )
    parser.add_argument(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module that the program imports and that takes long: ranks are forked with it (can be repeated)",
    )
    parser.add_argument("--secret-file", type=Path, metavar="FILE", help=PROOF)
    module = "a module to run, as `python -m` would, and its arguments"
    parser.add_argument("-m", dest="module", metavar="MODULE ...", nargs=argparse.REMAINDER, help=module)
    script = "a script to run, as `python` would, and its arguments"
    parser.add_argument("program", metavar="SCRIPT ...", nargs=argparse.REMAINDER, help=script)
    return parser
