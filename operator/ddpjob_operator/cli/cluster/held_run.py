"""One run of a program on held nodes: the conversation with rank 0's supervisor, and the output of the ranks."""

import base64
import getpass
import json
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import ATTEMPT_BEGINS, ATTEMPT_ENDED, TRAINER_CONTAINER
from ddpjob_operator.api.job import called
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.run_logs import Line, Which, attempt_of
from ddpjob_operator.client import ClusterError, Conversation, Document, JobPod, Jobs, as_job, present
from ddpjob_operator.client.archive import Archive
from ddpjob_operator.text import visible

from .pod_logs import FOLLOWED, PodLogs

SPEAK = ("python", "-m", "ddpjob_supervisor.hold.speak")
"""The program in rank 0's pod that passes our lines on to the supervisor."""
VERSION = 1
"""The version of the lines, as in `ddpjob_supervisor.hold.words`."""

LACKING = ("No module named", "executable file not found", "no such file")
"""What Python and container runtimes say if the image lacks SPEAK."""

AGAIN_SECONDS = 1.0
"""Seconds between two tries while the held nodes are not ready."""
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


@contextmanager
def started(
    jobs: Jobs, document: Document, words: Sequence[str], archive: Archive, say: Callable[[str], None]
) -> Iterator["HeldRun"]:
    """Runs a program on held nodes as soon as these are ready. At the end of the block its ranks are ended.

    `words` is its command line, in the folder of the archive. `say` is called with what is waited for.

    Raises:
        BadInputError: the job has ended, is not held, or runs another program.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    run = {"kind": "RunProgram", "words": words, "digest": archive.digest, "by": _who(), "version": VERSION}
    asked = time.monotonic()
    with _begun(jobs, document, run, archive, say) as (talk, attempt):
        held_run = HeldRun(jobs, document, talk, attempt, asked)
        try:
            yield held_run
        finally:
            held_run.close()


class HeldRun:
    """The present run of a program on held nodes."""

    def __init__(self, jobs: Jobs, document: Document, talk: "_Talk", attempt: int, asked: float) -> None:
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
            ClusterError: the connection broke, and the ranks were ended.
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

    def lines(self) -> Iterator[Line]:
        """The ranks' output since the last call. The supervisors' own lines around it are left out."""
        return filter(self._is_ours, self._logs.lines())

    def stop(self) -> None:
        """Lets the ranks save and end. They are killed after the pods' grace period."""
        self._talk.tell({"kind": "LetFinish"})

    def end(self) -> None:
        """Ends the ranks at once."""
        self._talk.tell({"kind": "Interrupt"})

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


def _who() -> str:
    """Who runs the program. Everybody who may see the job reads it."""
    with suppress(OSError, KeyError):
        return f"{getpass.getuser()}@{socket.gethostname()}"
    return socket.gethostname()


@contextmanager
def _begun(
    jobs: Jobs, document: Document, run: dict[str, Any], archive: Archive, say: Callable[[str], None]
) -> Iterator[tuple["_Talk", int]]:
    """Starts the program as soon as the held nodes are ready; yields the conversation about it, and its attempt."""
    said = ""
    while True:
        pod, why = first_pod(jobs, document)
        if pod is not None:
            with jobs.cluster.start_in_pod(pod.name, TRAINER_CONTAINER, SPEAK) as conversation:
                talk = _Talk(conversation)
                answer = talk.ask(run)
                if answer["kind"] == "SendCode":
                    answer = talk.ask({"kind": "TheCode", "data": base64.b64encode(archive.data).decode()})
                if answer["kind"] == "Begun":
                    yield talk, answer["attempt"]
                    return
                why = str(answer.get("why"))
                if not answer.get("later"):
                    raise BadInputError(f"{document['metadata']['name']}: {why}")
        if why != said:
            say(f"{document['metadata']['name']} is not ready: {why}")
            said = why
        time.sleep(AGAIN_SECONDS)


def first_pod(jobs: Jobs, document: Document) -> tuple[JobPod | None, str]:
    """The pod of rank 0; None if it does not run yet, and the reason.

    Raises:
        BadInputError: the job has ended, is not held, or no longer exists.
    """
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    found = jobs.find(document)
    job = None if found is None else as_job(found)
    again = f"{itself()} hold {name} -n {namespace}"
    if job is None:
        raise BadInputError(f"{name} no longer exists; hold it again: {again}")
    if job.status.finished:
        end = f"{itself()} delete {name} -n {namespace}"
        raise BadInputError(f"{name} has ended: {job.status.message}; delete it: {end}; and hold it again: {again}")
    if not job.spec.held:
        raise BadInputError(f"{name} is not held: it has a program of its own; hold nodes with: {itself()} hold NAME")
    pods = present(jobs.pods(document), job.status)
    first = next((pod for pod in pods if pod.node == 0 and pod.runs), None)
    return first, job.status.message or "its pods have not started"


@dataclass
class _Talk:
    """A conversation with rank 0's supervisor, in JSON."""

    conversation: Conversation
    _heard: "queue.SimpleQueue[dict[str, Any] | None]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._listen, daemon=True, name="conversation").start()

    def tell(self, line: dict[str, Any]) -> None:
        self.conversation.send(json.dumps(line).encode() + b"\n")

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """The answer to a line.

        Raises:
            ClusterError: there is none.
        """
        self.tell(line)
        return self._checked(self._heard.get())

    def over(self) -> dict[str, Any] | None:
        """How the program has ended; None if it still runs.

        Raises:
            ClusterError: the connection broke, and the program was ended.
        """
        with suppress(queue.Empty):
            while (answer := self._checked(self._heard.get_nowait()))["kind"] != "Over":
                pass
            return answer
        return None

    def _checked(self, answer: dict[str, Any] | None) -> dict[str, Any]:
        if answer is not None:
            return answer
        problem = visible(self.conversation.problem) or "the connection was closed"
        if any(word in problem for word in LACKING):
            raise ClusterError(f"the image cannot be held: it needs ddpjob {version('ddpjob')} or later ({problem})")
        raise ClusterError(f"lost rank 0's supervisor, which then ends the program: {problem}")

    def _listen(self) -> None:
        for line in self.conversation.lines():
            with suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict) and "kind" in answer:
                    self._heard.put(answer)
        self._heard.put(None)
