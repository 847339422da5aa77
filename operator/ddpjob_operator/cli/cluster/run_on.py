"""`ddpjob run --on JOB SCRIPT`: runs a program on held nodes, shows its output, and stops it at Ctrl-C."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.entrypoint import variables
from ddpjob_operator.api.option_names import option
from ddpjob_operator.api.words import duration
from ddpjob_operator.cli import program
from ddpjob_operator.cli.phrases import INTERRUPTED, say
from ddpjob_operator.client import Cluster, Document, Jobs
from ddpjob_operator.client.archive import BY_EXEC, pack
from ddpjob_operator.client.errors import UnreachableError
from ddpjob_operator.client.source import Source, Stamps, read_file, read_folder, stamp, stamps
from ddpjob_operator.text import visible

from .held_run import HeldRun, Ran, SentProgram, started
from .packages import Packages, with_packages, within
from .parcel import beside, packed_files
from .saves import Saves
from .talk import LostError, NotNowError

if TYPE_CHECKING:
    from .shown_run import ShownRun

OF_THE_HOLD = ("nodes", "procs_per_node", "name", "max_restarts", "start_method", "checkpoint", "history")
"""Options of `run` that a held job already has an answer to."""
OF_THIS_MACHINE = ("resume", "attach", "output", "run_dir", "fresh", "detach", "dry_run")
"""Options of `run` that are for runs on this machine."""

POLL_SECONDS = 0.05
RETRY_SECONDS = 3.0
"""With --watch: seconds between two tries to run a program that cannot run now."""

Program = tuple[list[str], Source, Packages]
"""A command line to run in the folder of the code, the code, and the packages that it needs."""


def run_on(connected: Callable[[], Cluster], given: argparse.Namespace) -> int:
    """Runs the program on the held job, and returns its exit code. With --watch, runs it again at each save.

    `connected` is called only after the arguments were checked, because a cluster may answer late.

    Raises:
        BadInputError: there is no such job or program, the job is not held, or it runs another program.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    refuse_options(given)
    watched = _Watched(given, Path.cwd()) if given.watch else None
    wanted = sent_program(given)
    jobs = Jobs(connected())
    document = jobs.get(given.on)
    ran, interrupted = _run(jobs, document, _packed(wanted, given), given.on, watched.saves if watched else None)
    while watched is not None and not interrupted:
        ran, interrupted = _run_saved(jobs, document, watched)
    assert ran is not None, "only --watch goes on without its end"
    return ran.exit_code


class _Watched:
    """The program of `--watch`, whose files are looked at again and again."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        """`folder` is the working directory, at which relative paths begin."""
        self.given = given
        self._folder = folder
        self.saves = Saves(self._look)

    def _look(self) -> Stamps:
        """What shows whether a file that is sent was saved."""
        try:
            self._enter()
            return _stamps(self.given)
        except BadInputError as error:  # Another file may be the remedy.
            return {str(error): (0, 0, 0)}

    def saved(self) -> Program:
        """The program, as it is after the next save that leaves one without mistakes."""
        while True:
            if not self.saves.happened():
                say("waiting for the next save; Ctrl-C ends")
            self.saves.wait()
            try:
                self._enter()
                return sent_program(self.given)
            except BadInputError as error:
                _complain(error)

    def _enter(self) -> None:
        """Enters the working directory, again if it was replaced: a process stays in the former one.

        Raises:
            BadInputError: it is gone.
        """
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise BadInputError(f"cannot use the folder {self._folder}: {error.strerror}") from None


def _run_saved(jobs: Jobs, document: Document, watched: _Watched) -> tuple[Ran | None, bool]:
    """Runs the program as it is after the next save. Returns the same as `follow`.

    If it cannot run now, it is tried again until it can, or until the next save: after a lost connection it may take
    minutes until the cluster is there again, and until the supervisors notice, and end the former ranks.
    """
    sent, said = _packed(watched.saved(), watched.given), ""
    while True:
        try:
            return _run(jobs, document, sent, watched.given.on, watched.saves)
        except (LostError, NotNowError, UnreachableError) as error:  # It was there, and may be there again.
            if str(error) != said:
                _complain(error)
                say("trying again until it can run, or until the next save; Ctrl-C ends")
            said = str(error)
        if watched.saves.within(RETRY_SECONDS):
            sent, said = _packed(watched.saved(), watched.given), ""


def _packed(wanted: Program, given: argparse.Namespace) -> SentProgram:
    """A program as it is sent. Says which files are."""
    words, source, packages = wanted
    for line in (*packed_files(source, whole=False), *beside(given)):
        say(line)
    return SentProgram(words, pack(source.files, BY_EXEC), variables(given.env), packages)


def _run(
    jobs: Jobs, document: Document, sent: SentProgram, name: str, saves: Saves | None
) -> tuple[Ran | None, bool]:
    """Runs the program to its end. Returns the same as `follow`."""
    with started(jobs, document, sent, say) as run, _terminated_as_interrupted():
        from .shown_run import ShownRun  # noqa: PLC0415  Imported while the ranks start, for it takes a while.

        ran, interrupted = follow(run, name, ShownRun.on(run, jobs, document), saves=saves)
        took = duration(round(run.seconds))
    if ran is not None:
        say(f"attempt {ran.attempt}: {ran.message or 'done'} ({took}); {name} is held")
    return ran, interrupted


def follow(run: HeldRun, name: str, shown: "ShownRun", *, saves: Saves | None = None) -> tuple[Ran | None, bool]:
    """Shows a run until it is over, which a save of a file ends too.

    The first Ctrl-C lets the ranks save, whatever is edited meanwhile; the second one ends them, and the third one
    does not wait for that.

    Returns how the run has ended, and whether the person has interrupted it. If there are `saves` to wait for, a lost
    connection only ends the run, and how it has ended is not known.

    Raises:
        LostError: the connection was lost.
        BrokenPipeError: nobody reads the output any more.
    """
    ran, interruptions, saved = None, 0, False
    with shown.following():
        while ran is None or not run.is_read:
            try:
                ran = ran or run.over()
                shown.look()
                if ran is None and not (saved or interruptions) and saves is not None and saves.happened():
                    saved = True
                    run.end()
                time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                interruptions += 1
                if ran is not None:
                    break
                _interrupt(run, name, interruptions, shown.tell)
            except LostError as error:
                if saves is None or interruptions:
                    raise
                shown.tell(str(error))
                break
    if ran is not None and saved and ran.exit_code == INTERRUPTED:
        ran = replace(ran, message="it was ended by a save")
    return ran, interruptions > 0


def _interrupt(run: HeldRun, name: str, time_of: int, tell: Callable[[str], None]) -> None:
    match time_of:
        case 1:
            tell(f"the ranks may save and end; {name} keeps its pods. Ctrl-C again ends them at once")
            run.stop()
        case 2:
            tell("ending the ranks")
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


def _complain(error: Exception) -> None:
    print(f"error: {visible(str(error))}", file=sys.stderr, flush=True)


def _stamps(given: argparse.Namespace) -> Stamps:
    """What shows whether a file that is sent was saved.

    Raises:
        BadInputError: as in `read_folder`.
    """
    if given.source is None:
        alone = (given.target, given.requirements)
        return {str(file): stamp(Path(file)) for file in alone if file is not None}
    return stamps(given.source, given.include)


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
