"""One run of a program on held nodes: the conversation with rank 0's supervisor, and the output of the ranks."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import ATTEMPT_BEGINS, ATTEMPT_ENDED, SUPERVISE
from ddpjob_operator.api.job import called
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.run_logs import Line, Which, attempt_of
from ddpjob_operator.client import Document, Jobs, as_job
from ddpjob_operator.client.archive import Archive
from ddpjob_operator.client.errors import UnreachableError
from ddpjob_operator.client.pod_exec import NOT_FOUND
from ddpjob_operator.text import visible

from .packages import Packages
from .pod_logs import FOLLOWED, PodLogs
from .talk import Talk, agreed

LAST_LINES_SECONDS = 5.0
"""How long to wait for the last lines of each node's log after the program has ended."""
MARGIN_SECONDS = 5
"""Logs are read from this long before the start of the program, and what is older than the start is skipped."""


@dataclass(frozen=True)
class Ran:
    """How a run has ended."""

    attempt: int
    exit_code: int
    message: str
    """Why it ended, in a clause; empty if it is done."""
    incident: Mapping[str, Any] | None = None
    """Which rank failed first, and why, as the supervisors' status page has it; None if none has failed."""
    result: Any = None
    """What rank 0 has set as its result."""


@dataclass(frozen=True)
class SentProgram:
    """A program, as it is sent to held nodes."""

    words: Sequence[str]
    """Its command line, in the folder of the archive."""
    archive: Archive
    env: Mapping[str, str]
    """Variables for its ranks, beside those of the hold."""
    packages: Packages
    """Packages that it needs besides those of the image."""

    @property
    def question(self) -> dict[str, Any]:
        """What rank 0's supervisor is asked."""
        return {
            "kind": "RunProgram",
            "words": self.words,
            "digest": self.archive.digest,
            "env": {**self.env},
            "packages": self.packages.names,
            "requirements": self.packages.file,
        }


@contextmanager
def started(jobs: Jobs, document: Document, program: SentProgram, say: Callable[[str], None]) -> Iterator["HeldRun"]:
    """Runs a program on held nodes as soon as these are ready. At the end of the block its ranks are ended.

    `say` is called with what is waited for.

    Raises:
        BadInputError: the job has ended, is not held, or runs another program.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    check = partial(check_held, document["metadata"]["name"], document["metadata"]["namespace"])
    asked = time.monotonic()
    with agreed(jobs, document, program.question, program.archive.data, check, tell=say) as (talk, begun):
        held_run = HeldRun(jobs, document, talk, begun["attempt"], asked)
        try:
            yield held_run
        finally:
            held_run.close()


class HeldRun:
    """The present run of a program on held nodes."""

    def __init__(self, jobs: Jobs, document: Document, talk: Talk, attempt: int, asked: float) -> None:
        job = as_job(document)
        self.attempt = attempt
        self._talk, self._asked = talk, asked
        nodes = range(min(job.spec.nodes, FOLLOWED))
        since = math.ceil(time.monotonic() - asked) + MARGIN_SECONDS
        self._logs = PodLogs(jobs, document, nodes, called(job), Which(since_seconds=since))
        self._reached = dict.fromkeys(nodes, attempt - 1)
        self._ended = dict.fromkeys(nodes, False)
        self._deadline = math.inf
        self._logs.follow(begun=jobs.pods(document))

    @property
    def seconds(self) -> float:
        """How long ago the run was asked for."""
        return time.monotonic() - self._asked

    def over(self) -> Ran | None:
        """How the run has ended; None if it still goes on.

        Raises:
            LostError: the connection broke, and the supervisor ends the ranks.
        """
        if (over := self._talk.over()) is None:
            return None
        self._deadline = time.monotonic() + LAST_LINES_SECONDS
        message = visible(str(over["message"]))
        return Ran(self.attempt, int(over["exit_code"]), message, over.get("incident"), over.get("result"))

    @property
    def is_read(self) -> bool:
        """Whether the output of a run that is over was read to its end, or has taken too long."""
        return all(self._ended.values()) or time.monotonic() >= self._deadline

    def lines(self, *, last: bool = False) -> Iterator[Line]:  # noqa: ARG002  Lines are whole when they arrive.
        """The ranks' output since the last call. The supervisors' own lines around it are left out."""
        return filter(self._is_ours, self._logs.lines())

    def skip(self) -> None:
        """Skips the output so far."""
        for _ in self.lines():
            pass

    def unfinished(self) -> Iterator[Line]:
        """Yields nothing: lines are whole when they arrive."""
        return self._logs.unfinished()

    def stop(self) -> None:
        """Lets the ranks save and end. They are killed after the pods' grace period."""
        self._tell("LetFinish")

    def end(self) -> None:
        """Ends the ranks at once."""
        self._tell("Interrupt")

    def _tell(self, kind: str) -> None:
        with suppress(UnreachableError):  # `over` will say so, and the supervisor ends the ranks.
            self._talk.tell(kind)

    def close(self) -> None:
        """Ends the reading of the output."""
        self._logs.stop()

    def _is_ours(self, line: Line) -> bool:
        before = self._reached[line.node]
        self._reached[line.node] = attempt_of(line.text, before, self.attempt)
        if line.text == ATTEMPT_ENDED.format(self.attempt):
            self._ended[line.node] = True
        begins = line.text == ATTEMPT_BEGINS.format(self.attempt)
        return before == self.attempt and not begins and not self._ended[line.node]


def check_held(name: str, namespace: str, job: DDPJob | None) -> None:
    """Checks that the job of this name is held.

    Raises:
        BadInputError: it no longer exists, has ended, or has a program of its own.
    """
    again = f"{itself()} hold {name} -n {namespace}"
    if job is None:
        raise BadInputError(f"{name} no longer exists; hold it again: {again}")
    if not job.spec.held:
        raise BadInputError(f"{name} is not held: it has a program of its own; hold nodes with: {itself()} hold NAME")
    if job.status.finished:
        end = f"{itself()} delete {name} -n {namespace}"
        lacks = any(words in job.status.message for words in NOT_FOUND)
        how = f", with an image that has {SUPERVISE}" if lacks else ""
        raise BadInputError(
            f"{name} has ended: {job.status.message}; delete it: {end}; and hold it again{how}: {again}"
        )
