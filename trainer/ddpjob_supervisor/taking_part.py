"""Runs a supervisor as a member of its gang: starts its parts in the order in which they depend on each other."""

import asyncio
import ctypes
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.failure.failure_report import add_last_progress, report_path, write_final_status
from ddpjob_rank.recording.event import Event
from ddpjob_rank.reporting.copy_handover import SOCKET
from ddpjob_rank.running.program import Program, program_of

from .gang.control import control_port
from .gang.coordinator import PARTING_SECONDS
from .gang.coordinator_service import CoordinatorService
from .gang.link import LocalLink
from .gang.membership import Follower
from .gang.messages import HeldProgram
from .gang.node_attempt import NodeSetup
from .gang.rendezvous import Rendezvous
from .gang.secret import with_secret
from .gang.settings import DISABLED, Settings, read_settings
from .gang.states import RunEnd
from .history.history import OFF, NodeHistory, facts
from .hold.reception import reception
from .node import open_files
from .node.copy_holder import CopyHolder
from .node.directory import private_directory
from .node.run_packages import RunPackages
from .node.sent_code import SentCode
from .node.starters import Starter
from .node.strays import Strays
from .page.curve import directory_of, recording
from .page.kept_result import kept_result
from .page.server import Page
from .page.status import Status
from .preflight.findings import log, verdict
from .preflight.running import preflight
from .watch.heartbeats import Heartbeats
from .watch.learned_limits import kind_of_start

REQUESTS = {signal.SIGTERM: signal.SIGTERM, signal.SIGINT: signal.SIGINT, signal.SIGQUIT: signal.SIGINT}
"""Signals that tell this node to stop, each with the signal that is then sent to the ranks."""

OTHERS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that schedulers send to scripts."""

PR_SET_CHILD_SUBREAPER = 36

NAME_SECONDS = 300.0
"""How long to wait until this pod's own name resolves, which is usually soon after the pod gets an address."""

REAPING_SECONDS = 1.0
"""How long an ended child is not yet treated as a stray, so that the code that started it can record its process
ID."""

PROGRAM, PROGRAM_ENDED, HOLD_ENDED = "program", "program_ended", "hold_ended"
"""Events in the history of a held gang: a program begins, it ends, and nothing has run for the hold's idle time."""

DIGITS_OF_CODE = 12
"""How many digits of the digest of a program's files are told, as in the status."""

WELL = frozenset({ExitCode.DONE, ExitCode.SAVED_AND_STOPPED})


def settings_of(
    env: Mapping[str, str],
    max_restarts: int | None,
    joining_seconds: float | None,
    idle_seconds: float | None = None,
) -> Settings:
    """This supervisor's settings, from the environment and from arguments that are not None, which override it.

    `joining_seconds` applies only where no operator starts the nodes. `idle_seconds` is the limit of a hold.

    Raises:
        ConfigError: The environment does not describe a node of a gang, or a gang is to be held without an operator.
    """
    settings = replace(with_secret(read_settings(env, max_restarts), env), idle_seconds=idle_seconds)
    if idle_seconds is not None and not settings.in_a_job:
        raise ConfigError("--hold is for jobs on a cluster: hold one with ddpjob hold NAME")
    if None in (joining_seconds, settings.joining_seconds):
        return settings
    return replace(settings, joining_seconds=joining_seconds)


async def take_part(
    settings: Settings,
    program: Program | None,
    starter: Starter,
    env: Mapping[str, str],
    history: NodeHistory = OFF,
) -> int:
    """Runs this node's ranks as a part of its gang, and returns the exit code for all.

    `program` is None if the gang is held, and programs are sent to it.
    """
    open_files.raise_limit()
    async with AsyncExitStack() as stack:
        # Comes last: the event loop closes the descriptor for signals before it removes its handlers, and a signal
        # between the two would print a traceback.
        stack.callback(signal.set_wakeup_fd, -1)
        await stack.enter_async_context(starter)  # Entered first, because its zygote's imports take longest.
        packages = stack.enter_context(RunPackages())
        strays = Strays(starter, packages.pids)
        directory = stack.enter_context(private_directory())
        rendezvous = Rendezvous(settings)
        fit = asyncio.create_task(_try_this_node(settings, starter, env))
        stack.callback(fit.cancel)
        heartbeats = Heartbeats(directory, settings.processes)
        copy = stack.enter_context(CopyHolder(Path(f"{heartbeats.path(0)}{SOCKET}")))
        code = stack.enter_context(SentCode(_mounted(settings, env)))
        node = NodeSetup(
            settings, program, starter, rendezvous, fit, env, directory, heartbeats, strays, copy, code, packages
        )
        follower = Follower(node, history)
        known = facts(env)
        history.note("facts", settings.attempt, **known, nodes=settings.nodes, processes=settings.processes)
        service = None
        if settings.leads:
            service = CoordinatorService(settings, _kind_of_start(settings, program, starter), code)
        _listen_to_signals(follower, strays)
        status = Status(settings, follower, service, rendezvous, starter)
        if service is not None:
            service.on_beats = status.add
            service.on_incident = history.add
            service.on_run, service.on_run_end = partial(_keep_run, history), partial(_keep_end, history, status)
        if settings.in_a_job:
            await _open_page(stack, settings, status, service, heartbeats.path(0))
            status.curve = stack.enter_context(
                recording(directory_of(env), partial(_keep_point, history, status), known)
            )
        port = 0
        if settings.listens:
            port = await stack.enter_async_context(control_port(settings, rendezvous, follower, service))
        if service is None:
            return await follower.follow(port)
        if settings.in_a_job:
            await stack.enter_async_context(reception(directory, settings.uid, service, heartbeats.path(0)))
        exit_code = await _lead(settings, service, follower, port)
        result = {}
        if settings.in_a_job and exit_code == ExitCode.DONE:
            result = await kept_result(heartbeats.path(0), service.coordinator.attempt, history, settings.grace)
        if settings.idle_seconds is not None and exit_code == ExitCode.DONE:
            history.note(HOLD_ENDED, service.coordinator.attempt, idleSeconds=settings.idle_seconds)
        history.end(exit_code, stopped=follower.told_to_stop)
        status.finish(over=exit_code == ExitCode.DONE)
        if settings.in_a_job and exit_code in WELL:
            write_final_status(status.document(), report_path(env), result)
        elif settings.in_a_job:
            add_last_progress(status.document(), report_path(env))
        return exit_code


def _keep_point(history: NodeHistory, status: Status, point: Event) -> None:
    history.add(point)
    status.points.add(point)


def _keep_run(history: NodeHistory, attempt: int, program: HeldProgram) -> None:
    """Keeps which program runs in a held gang, without its arguments, which may be secret."""
    name = program_of(program.words).name
    history.note(PROGRAM, attempt, hurry=True, program=name, code=program.code[:DIGITS_OF_CODE], by=program.by)


def _keep_end(history: NodeHistory, status: Status, end: RunEnd) -> None:
    status.finish_run(end)
    history.note(PROGRAM_ENDED, end.attempt, hurry=True, exitCode=end.exit_code, message=end.message)


def _mounted(settings: Settings, env: Mapping[str, str]) -> Path | None:
    """The archive of the code with which this pod was made; None if it has none."""
    if settings.code_revision is None:
        return None
    archive = Path(env[Env.CODE_ARCHIVE])
    if archive.is_file():
        return archive
    warn(f"there is no archive of the code at {archive}, so the code cannot be replaced in place")
    return None


def _kind_of_start(settings: Settings, program: Program | None, starter: Starter) -> str:
    processes = (settings.nodes, settings.processes)
    return kind_of_start(settings.image, processes, type(starter).__name__, program.words if program else ())


async def _open_page(
    stack: AsyncExitStack, settings: Settings, status: Status, service: CoordinatorService | None, first: Path
) -> None:
    """Serves the status page. `first` is the path of the first rank's heartbeat file."""
    look, curve = (None, None) if service is None else (status.stacks, status.points.document)
    page = await stack.enter_async_context(Page(settings.status_port, settings.listen, status.document, look, curve))
    watching = asyncio.create_task(status.watch_memory())
    stack.callback(watching.cancel)
    if service is not None:
        service.on_change = page.changed
        if settings.checkpoint_request_file is not None:
            requests = status.watch_requests(settings.checkpoint_request_file, first, page.changed)
            stack.callback(asyncio.create_task(requests).cancel)


async def _try_this_node(settings: Settings, starter: Starter, env: Mapping[str, str]) -> None:
    """Runs the fast preflight while the gang gathers. The preflight ends long before the zygote is ready.

    Raises:
        PreflightError: This node is not fit for training.
    """
    if settings.preflight == DISABLED:
        return
    findings = await preflight(env, starter, settings.host_name, NAME_SECONDS)
    log(findings)
    if error := verdict(findings):
        raise error


async def _lead(settings: Settings, service: CoordinatorService, follower: Follower, port: int) -> int:
    link = LocalLink()
    following = asyncio.create_task(follower.follow(port, link))

    async def join() -> None:
        await service.inherit(port)
        await follower.locate()
        await service.serve(link.other_end(), follower.hello(port))

    leading = [asyncio.create_task(service.look_after()), asyncio.create_task(join())]
    try:
        # A coordinator's task that ends with an error has a bug. `result` raises the error again, because the gang
        # must not go on without a coordinator.
        for ended in (await asyncio.wait([following, *leading], return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()
        code = await following
        if code == ExitCode.DONE or (code == ExitCode.SAVED_AND_STOPPED and not settings.in_a_job):
            await service.finish()
        if follower.told_at is not None:
            await service.part(follower.told_at + _stays(settings.grace) - time.monotonic())
        return code
    finally:
        for task in (following, *leading):
            task.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await service.close()


def _stays(grace: float) -> float:
    """For how many seconds the supervisor of rank 0 stays for others that may be told to stop a moment later.

    It still has to write its final status within its grace period.
    """
    return min(PARTING_SECONDS, grace / 2)


def _listen_to_signals(follower: Follower, strays: Strays) -> None:
    """Passes signals on to the ranks. Also adopts processes that ranks leave behind, as PID 1 would."""
    loop = asyncio.get_running_loop()
    for number, passed_on in REQUESTS.items():
        loop.add_signal_handler(number, follower.request, passed_on)
    for other in OTHERS:
        if signal.getsignal(other) is signal.SIG_DFL:
            loop.add_signal_handler(other, _say_whose, other)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # If nohup has set SIGHUP to be ignored, it stays ignored.
        loop.add_signal_handler(signal.SIGHUP, _stop_once, follower, asyncio.Event())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        loop.add_signal_handler(signal.SIGCHLD, loop.call_later, REAPING_SECONDS, strays.reap)


def _stop_once(follower: Follower, stopped: asyncio.Event) -> None:
    # A closing terminal may send SIGHUP several times, and a second request would kill the ranks. The handler stays:
    # of two signals that arrive together, both calls are scheduled before the first of them runs.
    if not stopped.is_set():
        stopped.set()
        follower.request(signal.SIGTERM)


def _say_whose(number: signal.Signals) -> None:
    warn(f"ddpjob-supervise does not pass {number.name} on to the ranks; send it to the process of a rank")
