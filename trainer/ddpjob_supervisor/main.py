"""`ddpjob-supervise`, written before a PyTorch training command, runs it once for each process of this node.

It starts the zygote first, because the zygote's imports take longest.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ddpjob_rank.console import complain, say
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.failure.failure_report import clear, report_of, report_path, write_report
from ddpjob_rank.machine.cores import threads_of_each
from ddpjob_rank.machine.storage import check_temporary
from ddpjob_rank.parsing import DIGITS, Parser, unpack_variables
from ddpjob_rank.places.flags import PROOF
from ddpjob_rank.running.program import Program, program_of
from ddpjob_rank.running.script.script_environment import Variables
from ddpjob_rank.running.script.script_reader import variables_of
from ddpjob_rank.stopping import leave_at_once

from . import output
from .history.history import recorded
from .node.zygote_process import PRELOADED, TRAINER_PRELOADED, Preload, start_zygote

WARM, COLD = START_METHODS = ("warm", "cold")

LONGEST_HOLD_SECONDS = 366 * 24 * 3600


def main() -> NoReturn:
    """Runs the program that the command line names once for each process of this node."""
    clear(report_path(os.environ))
    try:
        unpack_variables(os.environ)
        flags = _parser().parse_args()
        program = _program_in(flags)
        if flags.secret_file is not None:
            os.environ[Env.SECRET_FILE] = str(flags.secret_file)
        if flags.preload and flags.start_method == COLD:
            raise ConfigError(
                "--preload needs --start-method warm: a rank that is started cold imports everything itself"
            )
        leave_at_once(
            supervise(*(program, flags.start_method, flags.max_restarts, flags.preload), idle_seconds=flags.hold)
        )
    except TrainerError as error:
        complain(str(error))
        write_report(report_of(error, 0, None), report_path(os.environ))
        sys.exit(error.exit_code)


def _program_in(flags: argparse.Namespace) -> Program | None:
    """The program that the command line names; None if the gang is held, and programs are sent to it later.

    Raises:
        ConfigError: There is no such program, or one beside --hold.
    """
    words = flags.program if flags.module is None else ["-m", *flags.module]
    if flags.hold is not None:
        if words:
            raise ConfigError(f"--hold waits for programs, and {words[0]} is one: leave one of them out")
        return None
    program = program_of(words)
    program.check()
    return program


def supervise(
    program: Program | None,
    start_method: str | None = None,
    max_restarts: int | None = None,
    preload: Sequence[str] = (),
    joining_seconds: float | None = None,
    *,
    idle_seconds: float | None = None,
) -> int:
    """Runs a program once for each process of this node, and returns the exit code for all.

    If `program` is None, the gang is held: it runs the programs that are sent to it, until none has run for
    `idle_seconds`.

    `start_method` is one of START_METHODS. If it is None, ranks start warm, unless the program sets a variable that
    PyTorch reads at its import, and computes the value only when it runs. `preload` names modules that are imported,
    besides PyTorch, before the ranks are forked. `joining_seconds` is how long to wait for the other nodes if no
    operator starts them.

    Raises:
        ConfigError: The environment does not describe a node of a gang, or the coordinator does not accept this node.
        StorageError: There is no directory for temporary files.
        TrainerError: The control port is in use, this node is not fit for training, or other nodes are lost.
    """
    check_temporary()
    with recorded(os.environ) as history:  # First, so that the output of all children is recorded.
        wanted = None if start_method == COLD else _preload(program, preload, start_method)
        zygote = None if wanted is None else start_zygote(wanted)
        output.print_in_threads()
        try:
            # Imported while the zygote does its own imports, which take ten times as long.
            import asyncio  # noqa: PLC0415

            from .node.starters import Cold, Warm  # noqa: PLC0415
            from .taking_part import settings_of, take_part  # noqa: PLC0415

            starter = Cold() if wanted is None else Warm(wanted, zygote)
            settings = settings_of(os.environ, max_restarts, joining_seconds, idle_seconds)
            return asyncio.run(take_part(settings, program, starter, os.environ, history))
        finally:
            if zygote is not None:
                zygote.kill()
                zygote.wait()
            output.finish()


def _preload(program: Program | None, modules: Sequence[str], start_method: str | None) -> Preload | None:
    """What to import before the ranks are forked. None if each rank has to import everything itself."""
    is_trainer = program is not None and program.is_trainer
    preloaded = (*PRELOADED, *(TRAINER_PRELOADED if is_trainer else ()), *modules)
    processes = os.environ.get(Env.NPROC_PER_NODE) or os.environ.get(Env.LOCAL_WORLD_SIZE) or "1"
    threads = threads_of_each(max(1, int(processes[:DIGITS]))) if processes.isascii() and processes.isdecimal() else 1
    if program is None:
        return Preload(preloaded, threads=threads)
    # The trainer imports PyTorch before the user's task, so variables that the task sets do not matter here.
    if is_trainer:
        return Preload(preloaded, program.directory, threads)
    found = variables_of(program, {"OMP_NUM_THREADS": str(threads), **os.environ}, others=bool(modules))
    if found.unclear and start_method != WARM:
        _say_why_cold(found, os.environ, modules)
        return None
    return Preload(preloaded, program.directory, threads, found.values)


def _say_why_cold(found: Variables, env: Mapping[str, str], modules: Sequence[str]) -> None:
    if env.get(Env.NODE_RANK, "0") != "0":
        return  # Only the first node logs this, for all nodes.
    variable, place = next(iter(found.unclear.items()))
    preload = f", and --preload {modules[0]} has no effect" if modules else ""
    say(
        f"start method: cold, because {place} computes {variable}, which PyTorch reads when imported: each rank"
        f" imports PyTorch itself, which takes longer{preload}. To start ranks warm, set {variable} to a constant"
        " there, or in your shell or with --env"
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ddpjob-supervise",
        description=__doc__,
        usage="%(prog)s [OPTION ...] {SCRIPT | -m MODULE | --hold SECONDS} [ARGUMENT ...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--start-method",
        choices=START_METHODS,
        help="warm: fork ranks from a process that has imported torch; cold: start each rank separately"
        " (default: warm, unless the script computes a variable that torch reads when it is imported)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="how many restarts in place are allowed within the window (default: DDPJOB_IN_PLACE_RESTARTS, else 0)",
    )
    parser.add_argument(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module that is slow to import: it is imported once, before the ranks are forked (can be repeated)",
    )
    parser.add_argument(
        "--hold",
        type=_seconds,
        metavar="SECONDS",
        help="run no program, but hold the nodes for programs that ddpjob run --on sends; end when none has run for"
        " this many seconds",
    )
    parser.add_argument("--secret-file", type=Path, metavar="FILE", help=PROOF)
    module = "a module to run, as `python -m` would, and its arguments"
    parser.add_argument("-m", dest="module", metavar="MODULE ...", nargs=argparse.REMAINDER, help=module)
    script = "a script to run, as `python` would, and its arguments"
    parser.add_argument("program", metavar="SCRIPT ...", nargs=argparse.REMAINDER, help=script)
    return parser


def _seconds(text: str) -> int:
    digits = text.isascii() and text.isdecimal() and len(text) <= DIGITS
    if not (digits and 1 <= int(text) <= LONGEST_HOLD_SECONDS):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of seconds from 1 to {LONGEST_HOLD_SECONDS}")
    return int(text)
