"""`ddpjob run`: runs a script, a module, a command or a DDPJob on this machine, or goes on with an earlier run."""

import argparse
import contextlib
import itertools
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ddpjob_operator.api import Backend, BadInputError, DDPJob, State
from ddpjob_operator.api.job import renewed
from ddpjob_operator.api.job_file import read, written
from ddpjob_operator.api.option_names import in_python, option
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.api.words import world
from ddpjob_operator.engine import Event
from ddpjob_operator.local import (
    REQUEST_SIGNAL,
    Lock,
    RunDirectory,
    Runner,
    Runs,
    check_runs_here,
    choose_backend,
    differences,
    find_run,
    names_in_use,
    open_job,
    register,
    visible_gpus,
)
from ddpjob_operator.view_model import LoggedProgress

from . import program
from .attached import Attached, check_attach
from .checkout import git_state, with_git_state
from .detach import Leave, detachable
from .display import Display
from .invocation import itself
from .mistakes import AS_STARTED
from .packed import PackedProgram
from .phrases import INTERRUPTED, exit_code, file_path, how_to_resume, writer
from .run_logs import RunLogs
from .screen import Screen, complain, ignoring_closed_output, is_of_output
from .summary import advise, summarise
from .traced import trace_context_here, with_trace


@dataclass(frozen=True)
class Wanted:
    """The job to run, and where it comes from."""

    job: DDPJob
    document: dict[str, Any]
    others: tuple[str, ...] = ()
    """Kinds of the other objects in the YAML file."""
    file: Path | None = None
    """The YAML file; None if the job was made from a program or an earlier run."""
    program: str = ""
    """The script, module or command, as the user named it; empty if the job was not made from a program."""
    directory: RunDirectory | None = None
    """The directory of the run that --resume continues; None if the directory is to be found by the job's name."""
    new: bool = False
    """Whether to start a new run instead of continuing a run of the same name."""
    numbered: bool = False
    """Whether to add a number to the name if the name is taken."""
    packed: PackedProgram | None = None
    """The program, if it exists only in memory."""
    folder: Path = Path()
    """The folder that the program or the YAML file comes from."""
    noted: dict[str, str] = field(default_factory=dict)
    """Annotations about this start: its trace context and its git commit, as far as they are known."""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.metadata.name

    @property
    def begun(self) -> dict[str, str]:
        """The YAML file or the program, as the run directory stores it."""
        return {"file": str(self.file)} if self.file else {"program": self.program}

    @property
    def again(self) -> str:
        """The arguments with which `ddpjob run --fresh` trains the job from the beginning."""
        return str(self.file) if self.file else f"--resume {self.name}"

    def named(self, name: str) -> "Wanted":
        """A copy under another name."""
        metadata = self.job.metadata.model_copy(update={"name": name})
        document = {**self.document, "metadata": {**self.document["metadata"], "name": name}}
        return replace(self, job=self.job.model_copy(update={"metadata": metadata}), document=document)


@dataclass(frozen=True)
class Ended:
    """How a run has ended."""

    code: int
    """The exit code of the command."""
    job: DDPJob
    directory: RunDirectory


def run(arguments: argparse.Namespace, runs: Runs) -> int:
    """Runs the job that the arguments describe, and returns the job's exit code.

    Raises:
        BadInputError: the program, file or run does not exist, the job is invalid or already running, or the run
            directory cannot be written.
    """
    program.refuse_options(arguments, ("watch",), "is for --on JOB")
    program.refuse_options(
        arguments, ("pip", "requirements"), "is for --on JOB; a run here uses the packages of this environment"
    )
    program.refuse_options(arguments, ("source", "include"), "is for --on JOB; here a script finds its folder anyway")
    ended = run_to_its_end(arguments, runs)
    return ended if isinstance(ended, int) else ended.code


def run_to_its_end(
    arguments: argparse.Namespace, runs: Runs, packed: PackedProgram | None = None, screen: Screen | None = None
) -> Ended | int:
    """As `run`; returns how the run has ended, or only an exit code if this process has not run the job.

    `packed` is the program, if the arguments do not name it; `screen` is where to print, if not on stdout.

    Raises:
        BadInputError: as `run`.
    """
    gpus = visible_gpus()
    wanted = _wanted(arguments, runs, gpus, packed)
    if arguments.attach is not None:
        check_attach(arguments.attach, wanted.job)
    trace, git = trace_context_here(), git_state(wanted.folder)
    document = with_git_state(with_trace(wanted.document, trace), git)
    wanted = replace(wanted, noted=trace | (git.annotations if git else {}), document=document)
    if arguments.dry_run:
        return _dry_run(wanted, runs.directory, gpus, arguments.output)
    terminal = None if arguments.attach is None else Attached(arguments.attach)
    leave = detachable() if arguments.detach else None
    if isinstance(leave, int):
        return leave
    try:
        screen = screen or Screen(force_terminal=False if leave else None)
        return _run(wanted, runs.directory, gpus, leave, screen, fresh=arguments.fresh, terminal=terminal)
    except OSError as error:
        if is_of_output(error):
            raise  # Writing the output failed, and nothing was started yet. The caller handles this.
        raise BadInputError(f"{error.strerror}: {error.filename}; nothing was started or stopped") from None


def _wanted(arguments: argparse.Namespace, runs: Runs, gpus: list[str], packed: PackedProgram | None) -> Wanted:
    if arguments.output and not arguments.dry_run:
        raise BadInputError(f"-o {arguments.output} works only with --dry-run; add it")
    if arguments.attach is not None and arguments.detach:
        raise BadInputError("--attach needs this terminal, but --detach leaves it: use only one of them")
    if arguments.resume is not None:
        return _former(arguments, runs)
    if packed is None and not program.is_program(arguments):
        return _in_file(arguments)
    found = None if packed is None else packed.entrypoint(arguments.start_method)
    document = program.document(arguments, len(gpus), program.checkpoint_in(arguments.checkpoint), found)
    program.check_can_run(document)
    document = document if packed is None else packed.here(document)
    return Wanted(
        DDPJob.from_dict(document),
        document,
        program=program.named(arguments) if packed is None else packed.name,
        new=not arguments.fresh,
        numbered=not (arguments.name or arguments.fresh),
        packed=packed,
        folder=Path(arguments.target or "").parent if packed is None else packed.origin,
    )


def _in_file(arguments: argparse.Namespace) -> Wanted:
    file = Path(arguments.target)
    program.refuse_options(arguments, program.OPTIONS, f"is for scripts; {file} says what to run: edit it instead")
    job_file = read(file)
    return Wanted(job_file.job, job_file.document, job_file.others, file, folder=file.parent)


def _former(arguments: argparse.Namespace, runs: Runs) -> Wanted:
    """The run that --resume continues, with the job with which it was started.

    Raises:
        BadInputError: there is no such run, or an option would change it.
    """
    if arguments.target is not None:
        raise BadInputError(f"{arguments.target} {AS_STARTED}")
    program.refuse_options(arguments, program.OPTIONS, AS_STARTED)
    directory = find_run(runs, arguments.resume)
    going = _going_on(directory)
    return Wanted(going, going.to_document(), directory=directory, folder=directory.work or Path())


def _going_on(directory: RunDirectory) -> DDPJob:
    """The job of a run, with `spec.suspend` set to false.

    Raises:
        BadInputError: the run was removed, or its file is damaged.
    """
    job = directory.load()
    if job is None:
        raise BadInputError(f"{directory.root.name} no longer exists")
    return job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": False})})


def _dry_run(wanted: Wanted, runs: Path, gpus: list[str], output: str | None) -> int:
    if wanted.new:
        wanted = wanted.named(next(_free_names(wanted, runs)))
    if output is None:
        spec = wanted.job.spec
        backend, reason = choose_backend(spec, gpus)
        size = world(spec.nodes, spec.resolved_procs_per_node())
        print(f"{wanted.name}: {size}, backend {backend.lower()} ({reason}) (dry run)")
    else:
        print(written(wanted.document) if output == "yaml" else json.dumps(wanted.document, indent=4), end="")
    return 0


def _free_names(wanted: Wanted, runs: Path) -> Iterator[str]:
    """Free names for a new run: `train`, `train-2` and so on, or only the name that the user chose.

    Raises:
        BadInputError: the chosen name is taken.
    """
    name, in_use = wanted.name, names_in_use(runs)
    numbered = (f"{name}-{number}" for number in itertools.count(2)) if wanted.numbered else ()
    yield from (free for free in itertools.chain([name], numbered) if free not in in_use)
    raise BadInputError(
        f"there is a run named {name} already. Go on with it: {itself()} {RunDirectory(runs / name).resume}; or"
        f"{'' if in_python() else ' start it over with --fresh, or'} choose another {option('name')}"
    )


def _run(
    wanted: Wanted,
    runs: Path,
    gpus: list[str],
    leave: Leave | None,
    screen: Screen,
    *,
    fresh: bool,
    terminal: Attached | None,
) -> Ended:
    if wanted.directory:
        wanted, directory, lock = _found(wanted, runs)
    backend, reason = choose_backend(wanted.job.spec, gpus)
    if wanted.directory:  # The resumed run's spec holds the backend that was chosen for its first attempt.
        reason = "as before"
    before, spec = wanted.job, wanted.job.spec.model_copy(update={"backend": backend})
    metadata = before.metadata.model_copy(update={"annotations": renewed(before.metadata.annotations, wanted.noted)})
    wanted = replace(wanted, job=before.model_copy(update={"spec": spec, "metadata": metadata}))
    check_runs_here(RunDirectory((runs / wanted.name).absolute()), wanted.job)
    if not wanted.directory:
        wanted, directory, lock = _begun(wanted, runs) if wanted.new else _found(wanted, runs)
    with _undone_if_it_fails(directory, lock):
        register(directory)
        run_logs = RunLogs(directory.logs, writer=writer(wanted.job.spec.resolved_procs_per_node()))
        display = Display(screen, run_logs)
        display.catch_up()
        if terminal and not fresh:
            _check_not_left_behind(directory)
        others = (f"{kind} in {wanted.file} is not needed on this machine" for kind in wanted.others)
        for text in (*others, *differences(wanted.job.spec)):
            display.tell(Event(warning=False, reason="Notice", message=text))
        job = open_job(directory, wanted.job, gpus, display.tell, fresh=fresh)
        if not wanted.directory:
            directory.begin(**wanted.begun)
        if not job.status.attempt:
            display.forget()
        if job.status.succeeded:
            lock.release()
            return Ended(_succeeded_already(screen, job, before, wanted.again), job, directory)
        directory.attach(terminal.rank if terminal else None)
        if wanted.packed:
            directory.write_code(wanted.packed.files)
        _say_what_starts(screen, job, f"{backend.lower()} ({reason})", directory)
        if leave:
            _say_how_to_look(screen, wanted.name, directory)
            leave(directory.output)
    runner = Runner(directory, job, gpus, terminal.tell if terminal else display.tell, terminal)
    began = time.monotonic()
    stopped = _carry_on(runner, display, terminal)
    seconds = time.monotonic() - began
    code = INTERRUPTED if stopped else exit_code(runner.job.status)
    display.leave_if_blocked(code)
    with ignoring_closed_output():
        _say_what_came_of_it(screen, runner.job, display.progress, directory, seconds, terminal=terminal)
    lock.release()
    return Ended(code, runner.job, directory)


@contextlib.contextmanager
def _undone_if_it_fails(directory: RunDirectory, lock: Lock) -> Iterator[None]:
    """After an error, such as a failure to print, releases the lock, and removes a directory without a job."""
    try:
        yield
    except BaseException:
        directory.discard_unused()
        lock.release()
        raise


def _begun(wanted: Wanted, runs: Path) -> tuple[Wanted, RunDirectory, Lock]:
    """Creates and locks the directory of a new run. Two runs that start at the same moment get different names."""
    for name in _free_names(wanted, runs):
        directory = RunDirectory((runs / name).absolute())
        if lock := directory.claim():
            return wanted.named(name), directory, lock
    raise AssertionError("the names ended without an error")


def _found(wanted: Wanted, runs: Path) -> tuple[Wanted, RunDirectory, Lock]:
    """Locks the directory of an earlier run, or creates it if there is none.

    With --resume the job is read again under the lock, because it may have changed before the lock was acquired.

    Raises:
        BadInputError: the run is already running, or is a run of another program.
    """
    directory = wanted.directory or RunDirectory((runs / wanted.name).absolute())
    # With --resume the directory must exist already. If it was just removed, it is not recreated.
    if not wanted.directory:
        directory.create()
    lock = directory.lock
    if not lock.acquire():
        raise BadInputError(
            f"{wanted.name} is running already (process {lock.holder()}); look at it with:"
            f" {itself()} status {wanted.name}"
        )
    try:
        if wanted.directory:
            return replace(wanted, job=_going_on(directory)), directory, lock
        _check_same(wanted, directory)
    except BadInputError:
        lock.release()
        raise
    return wanted, directory, lock


def _check_not_left_behind(directory: RunDirectory) -> None:
    """Refuses to attach to ranks that are running: a process gets its terminal when it starts.

    Raises:
        BadInputError: ranks are running.
    """
    if directory.left_behind:
        name = directory.root.name
        raise BadInputError(
            f"{name} is still running, without a terminal, because its ddpjob run was killed. Stop it first: "
            f"{itself()} stop {name}"
        )


def _check_same(wanted: Wanted, directory: RunDirectory) -> None:
    """Refuses to continue a program's run with the job of a YAML file, or vice versa, even if the names agree.

    Raises:
        BadInputError: the run was started from a program and a YAML file is given, or vice versa.
    """
    begun, wants = directory.begun, wanted.begun
    if not begun or begun.keys() == wants.keys():
        return
    name, (recorded,), (given,) = wanted.name, begun.values(), wants.values()
    other = f"give the job of {given} another metadata.name" if wanted.file else f"choose another {option('name')}"
    raise BadInputError(
        f"{name} is a run of {recorded}, not of {given}. Go on with it: {itself()} {directory.resume};"
        f" remove it, with its logs and checkpoints: {itself()} rm {name}; or {other}"
    )


def _succeeded_already(screen: Screen, job: DDPJob, wanted: DDPJob, again: str) -> int:
    """Reports that the job has already succeeded, and returns 0.

    It is an error if the file was edited afterwards: the user might believe that the edited job has run.

    Raises:
        BadInputError: the spec differs from the one that succeeded.
    """
    anew = f"Start over with: {itself()} run --fresh {again}"
    if kept := _kept_by_fresh(job):
        anew = f"To start over, save elsewhere: even with --fresh, a run goes on from the checkpoints in {kept}"
    before, now = job.spec.to_dict(), wanted.spec.to_dict()
    by_itself = {"suspend"} | ({"backend"} if wanted.spec.backend is Backend.AUTO else set())
    changed = [field for field in before | now if before.get(field) != now.get(field) and field not in by_itself]
    if changed:
        raise BadInputError(
            f"{job.metadata.name} has succeeded, and {again} has changed since: {', '.join(changed)}. {anew}"
        )
    screen.print(f"{job.metadata.name} has succeeded already. {anew}")
    return 0


def _kept_by_fresh(job: DDPJob) -> str:
    """Where the checkpoints are, if they are not in the run's own directory; empty if they are."""
    checkpoint = job.spec.checkpoint
    if checkpoint is None or is_url(checkpoint.path):
        return checkpoint.path if checkpoint else ""
    return str(((checkpoint.volume or {}).get("hostPath") or {}).get("path", ""))


def _carry_on(runner: Runner, display: Display, terminal: Attached | None = None) -> bool:
    """Runs the job until it ends or is stopped; returns True if it was stopped before its end."""
    tell = terminal.tell if terminal else display.tell
    if threading.current_thread() is threading.main_thread():
        _listen_to_signals(runner, tell)
    if terminal:
        with terminal.following(runner.stop, lambda: runner.interrupted, _greeting(runner.job, terminal.rank)):
            status = runner.run()
        display.catch_up()  # The rank's output was shown already, but the summary needs the progress in it.
    else:
        lost = partial(_stop_unread, runner)
        with display.following(lost, lambda: runner.job.status, lambda: runner.interrupted):
            status = runner.run()
    return runner.interrupted and not status.finished


def _listen_to_signals(runner: Runner, tell: Callable[[Event], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, lambda *_: runner.interrupt())
    signal.signal(REQUEST_SIGNAL, lambda *_: runner.look())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: _say_whose(signal.Signals(received), tell))
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP: leave it ignored.
        # A closing terminal may send SIGHUP several times, and a second call of interrupt() would kill the ranks.
        signal.signal(signal.SIGHUP, lambda *_: runner.stop())


def _stop_unread(runner: Runner) -> None:
    go_on = f"{itself()} run --resume {runner.job.metadata.name}"
    complain(f"ddpjob: the output was closed or is full, so the run stops; go on with: {go_on}")
    runner.stop()


def _say_whose(number: signal.Signals, tell: Callable[[Event], None]) -> None:
    text = f"ddpjob run does not pass {number.name} on to the ranks; send it to the process of a rank"
    tell(Event(warning=True, reason="Notice", message=text))


def _say_what_starts(screen: Screen, job: DDPJob, backend: str, directory: RunDirectory) -> None:
    nodes, procs = job.spec.nodes, job.spec.resolved_procs_per_node()
    again = f", going on from attempt {job.status.attempt}" if job.status.attempt else ""
    screen.print(f"{job.metadata.name}: {world(nodes, procs)}, backend {backend}{again}")
    root, checkpoint = file_path(directory.root), job.spec.checkpoint
    if checkpoint and is_url(checkpoint.path):
        screen.print(f"logs: {root}\ncheckpoints: {checkpoint.path}")
    else:
        screen.print(f"logs and checkpoints: {root}")


def _greeting(job: DDPJob, rank: int) -> Iterator[str]:
    """What the user is told when the rank has the terminal."""
    yield f"rank {rank} has this terminal, and Ctrl-C stops the run"
    if job.spec.nodes * job.spec.resolved_procs_per_node() > 1:
        yield f"output of the other ranks: {itself()} logs {job.metadata.name} --follow"


def _say_how_to_look(screen: Screen, name: str, directory: RunDirectory) -> None:
    screen.print(f"It runs in the background; its output goes to {file_path(directory.output)}")
    screen.print(f"Watch it with: {itself()} logs {name} --follow")
    screen.print(f"Stop it with: {itself()} stop {name}")


def _say_what_came_of_it(
    screen: Screen,
    job: DDPJob,
    progress: LoggedProgress,
    directory: RunDirectory,
    seconds: float,
    *,
    terminal: Attached | None = None,
) -> None:
    saved = progress.saved.values.get("checkpoint") if progress.saved else None
    checkpoint = file_path(Path(saved)) if saved and not is_url(saved) else saved
    report = f"{itself()} report {job.metadata.name}" if job.status.attempt else None
    where = {"checkpoint": checkpoint, "logs": file_path(directory.logs), "report": report}
    summarise(screen, job, progress, seconds, created=directory.made, **where)
    if job.status.state is State.SUSPENDED:
        for line in how_to_resume(f"{itself()} {directory.resume}", job.status):
            screen.print(line)
    advise(screen, job, attached=terminal.rank if terminal else None)
