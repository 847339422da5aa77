"""`ddpjob-supervise`: runs the ranks of this node, in front of any PyTorch training program."""

import argparse
import asyncio
import os
import sys
from typing import NoReturn

from ddpjob_trainer.config import Parser
from ddpjob_trainer.console import complain
from ddpjob_trainer.errors import ConfigError
from ddpjob_trainer.failure import clear, leave, report_of, report_path
from ddpjob_trainer.world import Node, read_world

from .cold import Cold
from .node import run_ranks
from .program import Program, program_of
from .ranks import Place, StartError
from .warm import Warm

START_METHODS = ("warm", "cold")


def main() -> NoReturn:
    """Runs the program that the command line names once for each process of this node."""
    clear(report_path(os.environ))
    try:
        flags = _parser().parse_args()
        program = program_of(flags.program if flags.module is None else ["-m", *flags.module])
        program.check()
        sys.exit(supervise(program, flags.start_method))
    except (ConfigError, StartError) as error:
        complain(str(error))
        leave(report_of(error, 0, None), report_path(os.environ))
        sys.exit(error.exit_code)


def supervise(program: Program, start_method: str = "warm") -> int:
    """Runs a program once for each process of this node, and returns the exit code that tells of all.

    Raises:
        ConfigError: The environment does not describe a place in a world.
        StartError: A process could not be started.
    """
    return asyncio.run(_supervise(program, start_method))


async def _supervise(program: Program, start_method: str) -> int:
    env, place = os.environ, read_world(os.environ)
    first_rank, environments = 0, [dict(env)]
    if isinstance(place, Node):
        first_rank = place.node_rank * place.processes
        environments = [{**env, **place.process_env(local)} for local in range(place.processes)]
    threads = None if "OMP_NUM_THREADS" in env else _threads(len(environments))
    places = [Place(program, environment, threads) for environment in environments]
    async with Warm() if start_method == "warm" else Cold() as starter:
        return await run_ranks(places, first_rank, starter, report_path(env))


def _threads(processes: int) -> int:
    """Each process's share of the cores that this container may use."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ddpjob-supervise",
        description=__doc__,
        usage="%(prog)s [--start-method {warm,cold}] {SCRIPT | -m MODULE} [ARGUMENT ...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--start-method",
        choices=START_METHODS,
        default="warm",
        help="warm: fork ranks from a process that has imported torch; cold: start each as a process of its own",
    )
    module = "a module to run, as `python -m` would, and its arguments"
    parser.add_argument("-m", dest="module", metavar="MODULE ...", nargs=argparse.REMAINDER, help=module)
    script = "a script to run, as `python` would, and its arguments"
    parser.add_argument("program", metavar="SCRIPT ...", nargs=argparse.REMAINDER, help=script)
    return parser
