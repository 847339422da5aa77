"""Runs a program as a rank, in a process that was started or forked for it, until it has an exit code."""

import atexit
import contextlib
import dataclasses
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any, NoReturn

from ddpjob_rank.console import complain, write_whole_lines
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_rank.failure import traps
from ddpjob_rank.failure.failure_report import known_failure, report_of, report_path, write_report
from ddpjob_rank.failure.spawning import spawning_mistake
from ddpjob_rank.failure.taken_port import taken_port
from ddpjob_rank.failure.whose import starts_programs
from ddpjob_rank.machine.parent_death import die_with
from ddpjob_rank.machine.scheduling import run_as_batch
from ddpjob_rank.reporting import bars_seen, evaluations_seen, hugging_face, request, spawned, steps_seen
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.stopping import leave_at_once

from . import answering, attaching, stderr
from .program import Program, program_of

TELLING = frozenset({*range(SIGNAL_BASE + 1, SIGNAL_BASE + 65), *filter(ExitCode.BAD_INPUT.__lt__, ExitCode)})
"""Exit codes that need no explanation: those of signals, and those that mean something to DDPJob."""


def main() -> None:
    """Starts a rank in a new process: `python -m ddpjob_rank.running.rank SUPERVISOR'S_PID PROGRAM`."""
    die_with(int(sys.argv[1]))
    program = program_of(sys.argv[2:])
    sys.path.insert(0, program.directory)
    become(program)


def become(program: Program) -> NoReturn:
    """Runs a program in this process, then ends the process.

    If the program raises an exception, or exits with a message, the failure report contains it.
    """
    write_whole_lines()
    if not attaching.attach():
        stderr.redirect()
    faulthandler.enable(file=2)
    sys.excepthook = partial(_report, os.environ.get(Env.MASTER_PORT, ""))
    run_as_batch(os.environ.get(Env.BACKEND))
    steps_seen.install()
    evaluations_seen.install()
    bars_seen.install()
    hugging_face.install()
    spawned.install()
    answering.install()
    try:
        code = _exit_code_of(program)
    finally:
        reporting.tell_end()
    # A program that stopped because it was told to must be resumed later, although it exits with 0 as if it had
    # finished.
    _end(ExitCode.SAVED_AND_STOPPED if code == ExitCode.DONE and request.stop_noticed() else code)


def _exit_code_of(program: Program) -> int:
    """Runs the program as the interpreter would, and returns its exit code."""
    try:
        try:
            program.run()
        finally:
            _let_handlers_raise_nothing()
    except SystemExit as leaving:
        return _exit_code_by(leaving)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (the interpreter catches every error, too)
        sys.excepthook(type(error), error, error.__traceback__)
        return SIGNAL_BASE + signal.SIGINT if isinstance(error, KeyboardInterrupt) else ExitCode.APPLICATION_ERROR
    return 0


def _let_handlers_raise_nothing() -> None:
    """Suppresses exceptions of signal handlers from now on, because the program's exit code is already decided.

    Threads that are not daemons may still run for a long time, and this process waits for them. A handler that raises
    an exception can no longer end this wait; SIGKILL can.
    """
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, partial(_quietly, handler))


def _quietly(handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(BaseException):
        handler(number, frame)


def _exit_code_by(leaving: SystemExit) -> int:
    """The exit code of a program that calls exit.

    Reports the reason: a message, or the error that was being handled.
    """
    if leaving.code is None or isinstance(leaving.code, int):
        code = (leaving.code or 0) & 0xFF
        reason = traps.wrong_arguments(leaving) or _handled(leaving)
        if reason is not None and code and code not in TELLING:
            _leave_report(known_failure(reason) or reason, code)
        return code
    sys.stderr.write(f"{leaving.code}\n")
    _leave_report(leaving)
    return ExitCode.APPLICATION_ERROR


def _handled(leaving: SystemExit) -> Exception | None:
    """The error that a program was handling when it exited, unless the program suppressed it (`from None`)."""
    error = leaving.__cause__ or (None if leaving.__suppress_context__ else leaving.__context__)
    return error if isinstance(error, Exception) and str(error) else None


def _end(code: int) -> NoReturn:
    """Ends the process: waits for threads and runs exit handlers, but skips the rest of the interpreter's shutdown.

    If a PyTorch thread requests the GIL while the interpreter shuts down, Python ends the thread by unwinding its C++
    frames, which do not allow this. So a program that has already done its work would abort (SIGABRT, "terminate
    called without an active exception"). multiprocessing ends its forked children in the same way as this function.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    leave_at_once(code)


def _report(port: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints the traceback as Python does, but without DDPJob's frames, and writes the failure report.

    `port` is the MASTER_PORT with which the program was started.
    """
    program_frames = _without_ours(trace)
    if isinstance(error, ConfigError) and program_frames and _is_ours(program_frames.tb_frame.f_code.co_filename):
        complain(str(error))  # It says what DDPJob has found, and DDPJob's frames would not say more.
        _leave_report(error)
        return
    sys.__excepthook__(kind, error.with_traceback(program_frames), program_frames)
    if not isinstance(error, Exception):
        return
    try:
        explained = (
            spawning_mistake(error) or known_failure(error) or taken_port(error, port) or traps.known_mistake(error)
        )
    except Exception:  # noqa: BLE001  (the error may have a __str__ of the program's own, which fails)
        explained = None
    if explained:
        complain(str(explained))
    # TrainerError itself only adds an explanation, so the report names the error that the program raised.
    _leave_report(explained or error, named=error if type(explained) is TrainerError else None)


def _leave_report(
    error: BaseException, code: int = ExitCode.APPLICATION_ERROR, named: BaseException | None = None
) -> None:
    """Writes the failure report.

    Args:
        error: The failure.
        code: The program's exit code or, after an exception, the interpreter's.
        named: The error whose type is reported; None if it is `error`.
    """
    rank = os.environ.get(Env.RANK, "0")
    report = report_of(error, int(rank) if rank.isdecimal() else 0, None)
    exception = report.exception if named is None else type(named).__qualname__
    write_report(dataclasses.replace(report, exit_code=code, exception=exception), report_path(os.environ))


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback, beginning with the program's first frame."""
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(file: str) -> bool:
    return starts_programs(file) or file.startswith("<frozen")


if __name__ == "__main__":
    main()
