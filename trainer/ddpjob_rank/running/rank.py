"""Becomes a rank: what a process does with the program that it was started, or forked, to run."""

import atexit
import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any, NoReturn

from ddpjob_rank.console import complain
from ddpjob_rank.environment import Env
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_rank.failure import traps
from ddpjob_rank.failure.failure_report import known_failure, leave, report_of, report_path
from ddpjob_rank.failure.whose import starts_programs
from ddpjob_rank.machine.parent_death import die_with
from ddpjob_rank.machine.scheduling import run_as_batch
from ddpjob_rank.reporting import bars_seen, hugging_face, request, spawned, steps_seen
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.stopping import leave_at_once

from . import answering, stderr
from .program import Program, program_of

TELLING = frozenset({*range(SIGNAL_BASE + 1, SIGNAL_BASE + 65), *filter(ExitCode.BAD_INPUT.__lt__, ExitCode)})
"""Exit codes that say enough: of signals, and those with a meaning for DDPJob."""


def main() -> None:
    """`python -m ddpjob_rank.running.rank SUPERVISOR'S_PID PROGRAM`, the way to start a rank cold."""
    die_with(int(sys.argv[1]))
    program = program_of(sys.argv[2:])
    sys.path.insert(0, program.directory)
    become(program)


def become(program: Program) -> NoReturn:
    """Runs a program in this process, and ends it. The failure report tells of the exception or sentence that did."""
    stderr.redirect()
    sys.excepthook = _report
    run_as_batch(os.environ.get(Env.BACKEND))
    steps_seen.install()
    bars_seen.install()
    hugging_face.install()
    spawned.install()
    answering.install()
    try:
        code = _exit_code_of(program)
    finally:
        reporting.tell_end()
    # What stops because it was told to has to resume later, though it ends as successfully as what is done.
    _end(ExitCode.SAVED_AND_STOPPED if code == ExitCode.DONE and request.heeded() else code)


def _exit_code_of(program: Program) -> int:
    """Runs it as the interpreter would, to its exit code."""
    try:
        try:
            program.run()
        finally:
            _let_handlers_raise_nothing()
    except SystemExit as leaving:
        return _exit_code_by(leaving)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (it is the interpreter's part that is played here)
        sys.excepthook(type(error), error, error.__traceback__)
        return SIGNAL_BASE + signal.SIGINT if isinstance(error, KeyboardInterrupt) else ExitCode.APPLICATION_ERROR
    return 0


def _let_handlers_raise_nothing() -> None:
    """From now on: how the program has ended is decided, whatever comes while that is told and threads end.

    Threads that are no daemons are waited for, and may go on for long. A handler that leaves by raising does not end
    that wait any more; SIGKILL does.
    """
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, partial(_quietly, handler))


def _quietly(handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(BaseException):
        handler(number, frame)


def _exit_code_by(leaving: SystemExit) -> int:
    """The exit code that a program has chosen. Its reason is reported, which may be the error that it handles."""
    if leaving.code is None or isinstance(leaving.code, int):
        code = (leaving.code or 0) & 0xFF
        why = traps.wrong_arguments(leaving) or _handled(leaving)
        if why is not None and code and code not in TELLING:
            _leave_report(known_failure(why) or why, code)
        return code
    sys.stderr.write(f"{leaving.code}\n")
    _leave_report(leaving)
    return ExitCode.APPLICATION_ERROR


def _handled(leaving: SystemExit) -> Exception | None:
    """The error that a program was handling when it left, unless it hides it. A known one is no verdict here."""
    error = leaving.__cause__ or (None if leaving.__suppress_context__ else leaving.__context__)
    return error if isinstance(error, Exception) and str(error) else None


def _end(code: int) -> NoReturn:
    """Does all that a program may rely on at its end, and spares it the interpreter's shutdown.

    A PyTorch thread that wants the lock of an interpreter that is shutting down is unwound through C++ that does not
    allow it, and a program that had done its work aborts (SIGABRT, "terminate called without an active exception").
    The children that multiprocessing forks end in the same way as here.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    leave_at_once(code)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints what Python prints, without our frames, and leaves a report."""
    ours_left_out = _without_ours(trace)
    sys.__excepthook__(kind, error.with_traceback(ours_left_out), ours_left_out)
    if not isinstance(error, Exception):
        return
    told = known_failure(error) or traps.known(error)
    if told:
        complain(str(told))
    _leave_report(told or error)


def _leave_report(error: BaseException, code: int = ExitCode.APPLICATION_ERROR) -> None:
    """Whatever the cause, the exit code is the program's own or, if an error ended it, the interpreter's."""
    rank = os.environ.get(Env.RANK, "0")
    report = report_of(error, int(rank) if rank.isdecimal() else 0, None)
    leave(dataclasses.replace(report, exit_code=code), report_path(os.environ))


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the program itself begins."""
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(file: str) -> bool:
    return starts_programs(file) or file.startswith("<frozen")


if __name__ == "__main__":
    main()
