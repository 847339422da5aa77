"""What a supervisor keeps of its node for when its pod is gone, if it was told where."""

import contextlib
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.machine.storage import directory_of
from ddpjob_rank.parsing import counting_from
from ddpjob_rank.recording.event import Event

from . import tee
from .journal import Journal, new_folder, save_result
from .secret_values import SecretValues
from .segments import FAILED, STOPPED, SUCCEEDED, HistoryWriter
from .targets import open_target

VERSIONS = ("ddpjob", "torch", "numpy")
CLOSING_SECONDS = 2.0
"""How long the end of the history may delay the end of the pod."""
FIRST_SECONDS = 120.0
"""How long an empty directory for checkpoints is left to the program when it starts."""
RESULTS = "results"
"""The folder of a local run's directory in which a large result is, unless the run has a history."""
STOPPING = "stopping"
"""The event that the node was told to stop."""
MOST_ATTEMPTS = 10**9 - 1
LEFT_SECONDS = 0.5
"""How long to wait for processes that were left behind to close their stdout."""


class NodeHistory:
    """The history of a node; without a journal, nothing is kept but a local run's result."""

    def __init__(
        self,
        journal: Journal | None = None,
        printed: tee.Tee | None = None,
        save_result: Callable[[Any, int], str] = lambda *_: "",
    ) -> None:
        """`save_result` keeps a result without a journal, and returns its place; empty if it cannot."""
        self._journal, self._printed, self._save_result = journal, printed, save_result
        self._last_words = b""

    def begin(self, attempt: int) -> None:
        """An attempt begins."""
        if self._journal is not None:
            self._journal.attempt = attempt
            self.note("begun", attempt)

    def hide(self, env: Mapping[str, str]) -> None:
        """The ranks have these variables, too: their secrets are masked from now on."""
        if self._journal is not None:
            self._journal.hide(env)

    def note(self, word: str, attempt: int, step: int | None = None, *, hurry: bool = False, **values: Any) -> None:
        """Something has happened. With `hurry`, it is saved as soon as possible."""
        self.add(Event(word, time.time(), attempt, step or 0, values), hurry=hurry)

    def add(self, event: Event, *, hurry: bool = False) -> None:
        """Takes an event that is recorded elsewhere, too."""
        if self._journal is not None:
            self._journal.note(event, hurry=hurry)

    def stop(self, attempt: int, signal: str) -> None:
        """The node was told to stop by a signal. Its job may go on in another pod."""
        self.note(STOPPING, attempt, hurry=True, signal=signal)
        if self._journal is not None:
            self._journal.end(STOPPED)

    def end(self, code: int, *, stopped: bool = False) -> None:
        """The gang has ended with an exit code. `stopped`: because it was told to stop."""
        if self._journal is not None:
            stopped = stopped or code == ExitCode.SAVED_AND_STOPPED
            result = SUCCEEDED if code == ExitCode.DONE else STOPPED if stopped else FAILED
            self.note("ended", self._journal.attempt, result=result, exitCode=code)
            self._journal.end(result)

    def keep_result(self, result: Any, attempt: int) -> str:
        """Saves the job's result, and returns its place in the history or in the run's directory; empty without both.

        Unlike the other methods, this waits.

        Raises:
            ERRORS: It cannot be saved.
        """
        return (self._save_result if self._journal is None else self._journal.keep_result)(result, attempt)

    def explain(self, lines: str) -> None:
        """Takes the lines by which this process will explain its end, when its output is no longer heard."""
        self._last_words = f"{lines}\n".encode(errors="backslashreplace")

    def close(self) -> None:
        """Saves the rest."""
        if self._printed is not None:
            self._printed.close(LEFT_SECONDS)
        if self._journal is not None:
            if self._last_words:
                self._journal.hear(0, self._last_words)
            self._journal.close(CLOSING_SECONDS)


OFF = NodeHistory()


@contextlib.contextmanager
def recorded(env: Mapping[str, str]) -> Iterator[NodeHistory]:
    """The history that an environment asks for, until the block ends. A mistake in it is only a warning."""
    history = _opened(env)
    try:
        yield history
    except TrainerError as error:
        history.explain(f"error: {error}")  # The caller prints it.
        history.end(error.exit_code)
        raise
    except BaseException as error:  # A bug, or Ctrl-C before a signal's handler is there. Python prints it.
        if not isinstance(error, SystemExit):
            history.explain(traceback.format_exc().rstrip())
            history.end(1)
        raise
    finally:
        history.close()


def _opened(env: Mapping[str, str]) -> NodeHistory:
    address = env.get(Env.HISTORY)
    if Env.STATUS_PORT not in env:  # Without an operator, other nodes have no common uid.
        return OFF
    if not address:
        return NodeHistory(save_result=partial(_save_in_run, env)) if env.get(Env.RUN_DIR) else OFF
    try:
        writer = _writer(env)
        attempt = counting_from(0, env.get(Env.ATTEMPT, "1"), Env.ATTEMPT)
        target = partial(open_target, address, writer)
        journal = Journal(address, writer, SecretValues(env), attempt, target, is_early=_is_early(env, address))
        return NodeHistory(journal, tee.Tee(journal.hear) if tee.is_wanted() else None)
    except (ConfigError, OSError) as error:
        warn(f"no history is kept: {error}")
        return OFF


def _save_in_run(env: Mapping[str, str], result: Any, attempt: int) -> str:
    """Saves the result of a run on this machine in the run's directory. As `NodeHistory.keep_result`."""
    writer = _writer(env)
    target = open_target(f"{env[Env.RUN_DIR]}/{RESULTS}", writer)
    return save_result(result, attempt, writer, new_folder(writer), target)


def _is_early(env: Mapping[str, str], address: str) -> Callable[[], bool]:
    """Whether a history that would be the first thing in the directory for checkpoints should wait for the program.

    Many scripts, such as Hugging Face's examples, look into the directory when they start: they resume if there is a
    checkpoint, and refuse to run if there is something else. Others make the directory, and do not expect it.
    """
    directory = directory_of(env.get(Env.CHECKPOINT_DIR))
    if directory is None or not Path(address).is_relative_to(directory):
        return lambda: False
    until = time.monotonic() + FIRST_SECONDS

    def is_early() -> bool:
        try:
            with os.scandir(directory) as entries:
                empty = next(entries, None) is None
        except OSError:  # It does not exist, or cannot be read now.
            empty = True
        return empty and time.monotonic() < until

    return is_early


def _writer(env: Mapping[str, str]) -> HistoryWriter:
    node, incarnation, ranks = (
        counting_from(0, env.get(name, default), name)
        for name, default in ((Env.NODE_RANK, "0"), (Env.INCARNATION, "0"), (Env.NPROC_PER_NODE, "1"))
    )
    return HistoryWriter(
        env.get(Env.NAMESPACE, ""), env.get(Env.NAME, ""), env.get(Env.UID, ""), node, incarnation, max(1, ranks)
    )


def seen_by_operator(incident: str) -> Event | None:
    """An incident that the operator describes in JSON, as an event of the attempt that it ended.

    None if the text is empty, or if a newer operator describes an incident in another way.
    """
    try:
        known = parsed(incident)
        attempt, step = int(known["attempt"]), int(known.get("step") or 0)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    if not 0 < attempt <= MOST_ATTEMPTS:  # It becomes a part of a file's name.
        return None
    return Event("incident", time.time(), attempt, step, {"incident": known})


def facts(env: Mapping[str, str]) -> dict[str, Any]:
    """Where and with what this node runs."""
    versions = {"python": platform.python_version()}
    for package in VERSIONS:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    git = {}
    with contextlib.suppress(ValueError):  # An image may have a variable of this name.
        git = {"git": parsed(env[Env.GIT])} if env.get(Env.GIT) else {}
    return {
        "host": platform.node(),
        "image": env.get(Env.IMAGE, ""),
        "cpus": os.cpu_count(),
        "versions": versions,
        **git,
    }
