"""`ddpjob run --on JOB SCRIPT`: runs a program on held nodes, shows its output, and stops it at Ctrl-C."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.entrypoint import variables
from ddpjob_operator.api.option_names import option
from ddpjob_operator.api.words import duration
from ddpjob_operator.cli import program
from ddpjob_operator.cli.phrases import say
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.client import Cluster, Document, Jobs
from ddpjob_operator.client.archive import BY_EXEC, pack
from ddpjob_operator.client.source import Source, Stamps, read_file, read_folder, stamp, stamps
from ddpjob_operator.text import visible

from .held_run import HeldRun, Ran, SentProgram, started
from .packages import Packages, with_packages, within
from .parcel import beside, packed_files
from .saves import Saves

OF_THE_HOLD = ("nodes", "procs_per_node", "name", "max_restarts", "start_method", "checkpoint", "history")
"""Options of `run` that a held job already has an answer to."""
OF_THIS_MACHINE = ("resume", "attach", "output", "run_dir", "fresh", "detach", "dry_run")
"""Options of `run` that are for runs on this machine."""

POLL_SECONDS = 0.05


def run_on(connected: Callable[[], Cluster], given: argparse.Namespace) -> int:
    """Runs the program on the held job, and returns its exit code. With --watch, runs it again at each save.

    `connected` is called only after the arguments were checked, because a cluster may answer late.

    Raises:
        BadInputError: there is no such job or program, the job is not held, or it runs another program.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    refuse_options(given)
    saves = Saves(lambda: _stamps(given)) if given.watch else None
    wanted = sent_program(given)
    jobs = Jobs(connected())
    document = jobs.get(given.on)
    while True:
        ran, interrupted = _run(jobs, document, wanted, given, saves)
        if saves is None or interrupted:
            return ran.exit_code
        wanted = _saved(given, saves)


Program = tuple[list[str], Source, Packages]
"""A command line to run in the folder of the code, the code, and the packages that it needs."""


def _run(
    jobs: Jobs, document: Document, wanted: Program, given: argparse.Namespace, saves: Saves | None
) -> tuple[Ran, bool]:
    """Runs the program to its end. Returns how it has ended, and whether the person has interrupted it."""
    words, source, packages = wanted
    for line in (*packed_files(source, whole=False), *beside(given)):
        say(line)
    sent = SentProgram(words, pack(source.files, BY_EXEC), variables(given.env), packages)
    with started(jobs, document, sent, say) as run, _terminated_as_interrupted():
        ran, interrupted = follow(run, given.on, _show, saves=saves)
        took = duration(round(run.seconds))
    say(f"attempt {ran.attempt}: {ran.message or 'done'} ({took}); {given.on} is held")
    return ran, interrupted


def follow(run: HeldRun, name: str, show: Callable[[Line], None], *, saves: Saves | None = None) -> tuple[Ran, bool]:
    """Shows the output until the run is over, which a save of a file ends too. Returns the same as `_run`.

    The first Ctrl-C lets the ranks save, whatever is edited meanwhile; the second one ends them, and the third one
    does not wait for that.
    """
    ran, interruptions, saved = None, 0, False
    while ran is None or not run.is_read:
        try:
            ran = ran or run.over()
            for line in run.lines():
                show(line)
            if ran is None and not (saved or interruptions) and saves is not None and saves.happened():
                saved = True
                run.end()
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            interruptions += 1
            if ran is not None:
                break
            _interrupt(run, name, interruptions)
    return ran, interruptions > 0


def _show(line: Line) -> None:
    print(line, flush=True)


def _interrupt(run: HeldRun, name: str, time_of: int) -> None:
    match time_of:
        case 1:
            say(f"the ranks may save and end; {name} keeps its pods. Ctrl-C again ends them at once")
            run.stop()
        case 2:
            say("ending the ranks")
            run.end()
        case _:
            raise KeyboardInterrupt


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does while the block runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _saved(given: argparse.Namespace, saves: Saves) -> Program:
    """The program, as it is after the next save that leaves one without mistakes."""
    while True:
        if not saves.happened():
            say("waiting for the next save; Ctrl-C ends")
        saves.wait()
        try:
            return sent_program(given)
        except BadInputError as error:
            print(f"error: {visible(str(error))}", file=sys.stderr, flush=True)


def _stamps(given: argparse.Namespace) -> Stamps:
    """What shows whether a file that is sent was saved."""
    try:
        if given.source is None:
            alone = (given.target, given.requirements)
            return {str(file): stamp(Path(file)) for file in alone if file is not None}
        return stamps(given.source, given.include)
    except BadInputError as error:  # Another file may be the remedy.
        return {str(error): (0, 0, 0)}


def refuse_options(given: argparse.Namespace) -> None:
    """Checks that no option is given that the hold has an answer to, and the variables that are.

    Raises:
        BadInputError: one is given, or a variable is wrong.
    """
    why = f"cannot be given with {option('on')}: it"
    here = [name for name in OF_THIS_MACHINE if getattr(given, name) is not False]
    program.refuse_options(given, OF_THE_HOLD, f"{why} was chosen when {given.on} was held")
    program.refuse_options(given, here, f"{why} is for runs on this machine")
    variables(given.env)
    if given.include and given.source is None and given.target is None:
        raise BadInputError(
            f"{option('include')} is for files of the {option('source')} folder; add {option('source', 'FOLDER')}"
        )


def sent_program(given: argparse.Namespace) -> Program:
    """The program that the arguments name.

    Raises:
        BadInputError: there is no such program, it cannot be sent, or a package is named wrongly.
    """
    words, code = _named(given)
    source, packages = with_packages(given, code)
    assert source is not None, "it has the program"
    return words, source, packages


def _named(given: argparse.Namespace) -> tuple[list[str], Source]:
    program.is_program(given)
    arguments = given.program or []
    if given.module is not None:
        if given.source is None:
            module, folder = option("module", given.module), option("source", ".")
            raise BadInputError(f"{module}: the module has to be sent; name its folder: {folder}")
        return ["-m", given.module, *arguments], read_folder(given.source, given.include, BY_EXEC)
    if given.target is None:
        raise BadInputError(
            f"held nodes run scripts and modules; name a script, or a module: {option('module', 'NAME')}"
        )
    program.entrypoint(given)  # Checks the script.
    script = Path(given.target)
    if given.source is None:
        return [script.name, *arguments], read_file(script, given.include)
    return [within(script, given.source), *arguments], read_folder(given.source, given.include, BY_EXEC)
