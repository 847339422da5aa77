"""`ddpjob-train`: finds out which rank this process is, trains, and exits as the contract describes."""

import dataclasses
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from ddpjob_rank.console import complain, say
from ddpjob_rank.environment import TORCHRUN, Env
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.failure import traps
from ddpjob_rank.failure.failure_report import clear, known_failure, report_of, report_path, write_report
from ddpjob_rank.importing import uncollected
from ddpjob_rank.machine import memory
from ddpjob_rank.machine.scheduling import run_as_batch
from ddpjob_rank.machine.storage import check_temporary
from ddpjob_rank.parsing import unpack_variables
from ddpjob_rank.places.variables import place_variables, rank_and_world_size
from ddpjob_rank.running.program import TRAINER, Program
from ddpjob_rank.stopping import StoppedOnRequest, StopRequest, leave_at_once
from ddpjob_rank.world import Node, World, read_world

from .config import TrainConfig, read_config
from .inference import commands
from .recording.position import Position

LIBRARIES = frozenset({"torch", "numpy"})
"""Modules that every training needs. If another module is missing, a traceback shows where it is needed."""


def main() -> None:
    """Trains, or runs the command with which the command line begins. Exits with one of the contract's codes."""
    argv, position, world, killed_before = sys.argv[1:], Position(), World(), memory.kills()
    # A command may run in a pod that is training, and must not touch the training's failure report.
    report_file = None if commands.is_command(argv) else report_path(os.environ)
    # The processes of a node share this file. If there are several, one could delete another's report.
    if os.environ.get(Env.LOCAL_WORLD_SIZE, "1") == "1":
        clear(report_file)
    try:
        unpack_variables(os.environ)
        if commands.is_command(argv):
            commands.run(argv)
            leave_at_once(ExitCode.DONE)
        config = read_config(argv, os.environ)
        if steps := config.loading.explain_steps:
            _explain_shards(config, steps)
            leave_at_once(ExitCode.DONE)
        meets_at_master = config.place.init_file is None and config.group.backend != "mpi"
        os.environ.update(place_variables(config.place, os.environ, needs_master=meets_at_master))
        if config.place.secret_file is not None:
            os.environ[Env.SECRET_FILE] = str(config.place.secret_file)
        place = read_world(os.environ, needs_master=meets_at_master)
        config.mode.check_world(place.world_size)
        if isinstance(place, Node) or _is_alone_in_a_pod(os.environ):
            # Imported here, because a rank does not need the supervisor.
            from ddpjob_supervisor.main import supervise  # noqa: PLC0415

            program = Program(module=True, name=TRAINER, arguments=tuple(argv))
            leave_at_once(supervise(program, joining_seconds=config.group.joining_seconds))
        world = place
        _train(config, world, position)
        leave_at_once(ExitCode.DONE)  # PyTorch's threads may crash when the interpreter shuts down.
    except StoppedOnRequest as stopped:
        say(str(stopped))
        leave_at_once(ExitCode.SAVED_AND_STOPPED)
    except Exception as error:  # noqa: BLE001  (the last resort: every error is reported)
        leave_at_once(_explain(error, world, position, killed_before, report_file))


def _explain_shards(config: TrainConfig, steps: int) -> None:
    """Prints the shards of all ranks once, however many processes were started."""
    rank, world_size = rank_and_world_size(config.place, os.environ)
    if rank == 0:
        # Imported here, because it imports torch, which takes seconds.
        from .data.explaining import explain_shards  # noqa: PLC0415

        explain_shards(config, world_size, steps)


def _is_alone_in_a_pod(env: Mapping[str, str]) -> bool:
    """Whether this is the first process of a job's pod: neither a supervisor nor torchrun has started it."""
    return Env.CONTROL_PORT in env and not {Env.HEARTBEAT, TORCHRUN} & env.keys()


def _train(config: TrainConfig, world: World, position: Position) -> None:
    check_temporary()
    run_as_batch(config.group.backend)
    stop = StopRequest()
    stop.listen()
    # Imported only after the flags have been checked, because importing torch takes seconds.
    with uncollected():
        from .train import train  # noqa: PLC0415

    train(config, world, position, stop)


def _explain(
    error: Exception, world: World, position: Position, killed_before: int, report_file: Path | None
) -> ExitCode:
    """Reports on stderr and in the failure report why the run ends; returns the exit code.

    `killed_before` is the number of processes of this container that had been killed for lack of memory before the
    run began.
    """
    if not isinstance(error, TrainerError):
        error = known_failure(error, f" in {position.activity} at step {position.step}") or error
    if isinstance(error, ModuleNotFoundError) and error.name in LIBRARIES:
        error = ConfigError(
            f"{sys.executable} lacks {error.name}: ddpjob was installed without the extra `trainer`; install"
            " ddpjob[trainer] from the same source"
        )
    if not isinstance(error, TrainerError):
        traceback.print_exception(error)
        error = traps.known_mistake(error) or error
    if isinstance(error, TrainerError):
        complain(str(error))
    report = report_of(error, world.rank, position.step or None)
    if memory.lost_a_process(error) and memory.kills() > killed_before:
        report = dataclasses.replace(report, cause=memory.CAUSE)
    write_report(report, report_file)
    return ExitCode(report.exit_code)
