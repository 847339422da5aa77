"""Conversations with rank 0's supervisor, through an exec into its pod: to send a program, or new code."""

import base64
import getpass
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import TRAINER_CONTAINER
from ddpjob_operator.cli.phrases import say
from ddpjob_operator.client import ClusterError, Conversation, Document, JobPod, Jobs, as_job, present
from ddpjob_operator.text import visible
from ddpjob_operator.text.foreign_json import parsed_object

SPEAK = ("python", "-m", "ddpjob_supervisor.hold.speak")
"""The program in rank 0's pod that passes our lines on to the supervisor."""
VERSION = 3
"""The version of the lines, as in `ddpjob_supervisor.hold.words`."""

PIECE_BYTES = 1 << 19
"""How many bytes of code are in one line."""

NO_MODULE = "No module named"
"""What Python says if the image lacks the module of SPEAK."""

AGAIN_SECONDS = 1.0
"""Seconds between two tries while the supervisors are not ready."""

Line = dict[str, Any]

FIELDS: dict[str, dict[str, type]] = {"Begun": {"attempt": int}, "Over": {"exit_code": int, "message": str}}
"""What an answer of a kind must have. What others may have is not relied on."""

Check = Callable[[DDPJob | None], None]
"""Raises BadInputError if a job, which may no longer exist, is not of the kind that is spoken to."""


class LostError(ClusterError):
    """The connection to rank 0's supervisor is lost."""


class NotNowError(BadInputError):
    """Rank 0's supervisor refuses, and asking again does not help."""


def who() -> str:
    """Who asks. Everybody who may see the job reads it."""
    with suppress(OSError, KeyError):
        return f"{getpass.getuser()}@{socket.gethostname()}"
    return socket.gethostname()


@dataclass
class Talk:
    """A conversation with rank 0's supervisor, in JSON."""

    conversation: Conversation
    _heard: "queue.SimpleQueue[Line | None]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._listen, daemon=True, name="conversation").start()

    def tell(self, kind: str, **words: Any) -> None:
        """Says a line, which needs no answer."""
        self.conversation.send(json.dumps({"kind": kind, **words}).encode() + b"\n")

    def ask(self, kind: str, **words: Any) -> Line:
        """The answer to a line.

        Raises:
            ClusterError: there is none.
        """
        self.tell(kind, **words)
        return self._checked(self._heard.get())

    def give(self, code: bytes) -> Line:
        """Sends code in pieces; the last one is empty. Returns the answer.

        Raises:
            ClusterError: there is none.
        """
        with suppress(ClusterError):  # A supervisor that refuses, because its disk is full, does not hear the rest.
            for begin in (*range(0, len(code), PIECE_BYTES), len(code)):
                self.tell("TheCode", data=base64.b64encode(code[begin : begin + PIECE_BYTES]).decode())
        return self._checked(self._heard.get())

    def outcome(self, kind: str) -> Line:
        """The next answer of this kind, however long it takes.

        Raises:
            ClusterError: the connection broke before.
        """
        while (answer := self._checked(self._heard.get()))["kind"] != kind:
            pass
        return answer

    def over(self) -> Line | None:
        """How the program has ended; None if it still runs.

        Raises:
            ClusterError: the connection broke, and the program was ended.
        """
        with suppress(queue.Empty):
            while (answer := self._checked(self._heard.get_nowait()))["kind"] != "Over":
                pass
            return answer
        return None

    def _checked(self, answer: Line | None) -> Line:
        if answer is not None:
            needed = FIELDS.get(answer["kind"], {})
            if all(isinstance(answer.get(name), kind) for name, kind in needed.items()):
                return answer
            raise ClusterError(
                "rank 0's supervisor answers in words of its own: use the ddpjob of the image's release"
            )
        problem = visible(self.conversation.problem) or "the connection was closed"
        if NO_MODULE in problem or self.conversation.is_missing:
            raise ClusterError(f"the image lacks what this needs: ddpjob {version('ddpjob')} or later ({problem})")
        raise LostError(f"lost rank 0's supervisor: {problem}")

    def _listen(self) -> None:
        try:
            for line in self.conversation.lines():
                if (answer := parsed_object(line)) is not None and isinstance(answer.get("kind"), str):
                    self._heard.put(answer)
        finally:
            self._heard.put(None)


@contextmanager
def agreed(
    jobs: Jobs, document: Document, question: Line, code: bytes, check: Check, *, tell: Callable[[str], None] = say
) -> Iterator[tuple[Talk, Line]]:
    """Asks rank 0's supervisor, again and again until it is ready, and sends the code if it lacks it.

    `tell` is called with what is waited for.

    Yields the conversation, and the answer, which is not NotRun.

    Raises:
        BadInputError: the job does not pass `check`, or the supervisor refuses.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    said = ""
    while True:
        pod, why = first_pod(jobs, document, check)
        if pod is not None:
            with jobs.cluster.start_in_pod(pod.name, TRAINER_CONTAINER, SPEAK) as conversation:
                talk = Talk(conversation)
                answer = talk.ask(**question, by=who(), version=VERSION)
                if answer["kind"] == "SendCode":
                    answer = talk.give(code)
                if answer["kind"] != "NotRun":
                    yield talk, answer
                    return
                why = str(answer.get("why"))
                if not answer.get("later"):
                    raise NotNowError(f"{document['metadata']['name']}: {why}")
        if why != said:
            tell(f"{document['metadata']['name']} is not ready: {why}")
            said = why
        time.sleep(AGAIN_SECONDS)


def first_pod(jobs: Jobs, document: Document, check: Check) -> tuple[JobPod | None, str]:
    """The pod of rank 0; None if it does not run yet, and the reason.

    Raises:
        BadInputError: the job does not pass `check`, or no longer exists.
    """
    found = jobs.find(document)
    job = None if found is None else as_job(found)
    check(job)
    if job is None:
        raise BadInputError(f"{document['metadata']['name']} no longer exists")
    pods = present(jobs.pods(document), job.status)
    first = next((pod for pod in pods if pod.node == 0 and pod.runs), None)
    return first, job.status.message or "its pods have not started"
