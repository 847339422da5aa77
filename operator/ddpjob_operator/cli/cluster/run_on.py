"""`ddpjob run --on JOB SCRIPT`: runs a program on held nodes, shows its output, and ends it at Ctrl-C."""

import argparse
import base64
import getpass
import json
import math
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import ATTEMPT_BEGINS, ATTEMPT_ENDED, TRAINER_CONTAINER
from ddpjob_operator.api.words import duration
from ddpjob_operator.cli import program
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.logs import Which
from ddpjob_operator.cli.phrases import INTERRUPTED
from ddpjob_operator.cli.run_logs import Line, attempt_of
from ddpjob_operator.client import (
    Cluster,
    ClusterError,
    Conversation,
    Document,
    JobPod,
    Jobs,
    as_job,
    present,
)
from ddpjob_operator.client.archive import Archive, pack
from ddpjob_operator.client.source import Source, read_file, read_folder
from ddpjob_operator.engine import called
from ddpjob_operator.text import visible

from .packages import within
from .parcel import beside, packed_files
from .pod_logs import FOLLOWED, PodLogs

OF_THE_HOLD = (
    *("nodes", "procs_per_node", "name", "env", "max_restarts", "start_method", "checkpoint", "history"),
    *("resume", "attach", "output", "run_dir"),
)
"""Options of `run` that a held job already has an answer to, or that concern runs on this machine."""

SPEAK = ("python", "-m", "ddpjob_supervisor.hold.speak")
"""The program in rank 0's pod that passes our lines on to the supervisor."""
VERSION = 1
"""The version of the lines, as in `ddpjob_supervisor.hold.words`."""

LACKING = ("No module named", "executable file not found", "no such file")
"""What Python and container runtimes say if the image lacks SPEAK."""

AGAIN_SECONDS = 1.0
"""Seconds between two tries while the held nodes are not ready."""
POLL_SECONDS = 0.05
LAST_LINES_SECONDS = 5.0
"""How long to wait for the last lines of each node's log after the program has ended."""
MARGIN_SECONDS = 5
"""Logs are read from this long before the start of the program, and what is older than the start is skipped."""


def run_on(cluster: Cluster, given: argparse.Namespace) -> int:
    """Runs the program on the held job, and returns its exit code.

    Raises:
        BadInputError: there is no such job or program, the job is not held, or it runs another program.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    _refuse_options(given)
    words, source = _program(given)
    archive = pack(source.files)
    for line in (*packed_files(source, whole=False), *beside(given)):
        _say(line)
    jobs = Jobs(cluster)
    document = jobs.get(given.on)
    run = {"kind": "RunProgram", "words": words, "digest": archive.digest, "by": _who(), "version": VERSION}
    asked = time.monotonic()
    with _begun(jobs, document, run, archive) as (talk, attempt):
        return _Shown(jobs, document, talk, attempt, asked).follow()


def _refuse_options(given: argparse.Namespace) -> None:
    why = f"cannot be given with --on: {given.on} was held with it, or without it"
    program.refuse_options(given, OF_THE_HOLD, why)
    program.refuse_options(given, [flag for flag in ("fresh", "detach", "dry_run") if getattr(given, flag)], why)
    if given.include and given.source is None and given.target is None:
        raise BadInputError("--include is for files of the --source folder; add --source FOLDER")


def _program(given: argparse.Namespace) -> tuple[list[str], Source]:
    """The command line to run in the folder of the code, and the code.

    Raises:
        BadInputError: there is no such program, or it cannot be sent.
    """
    program.is_program(given)
    arguments = given.program or []
    if given.module is not None:
        if given.source is None:
            raise BadInputError(f"-m {given.module}: the module has to be sent; name its folder: --source .")
        return ["-m", given.module, *arguments], read_folder(given.source, given.include)
    if given.target is None:
        raise BadInputError("held nodes run scripts and modules; name a script, or a module after -m")
    program.entrypoint(given)  # Checks the script.
    script = Path(given.target)
    if given.source is None:
        return [script.name, *arguments], read_file(script, given.include)
    return [within(script, given.source), *arguments], read_folder(given.source, given.include)


def _who() -> str:
    """Who runs the program. Everybody who may see the job reads it."""
    with suppress(OSError, KeyError):
        return f"{getpass.getuser()}@{socket.gethostname()}"
    return socket.gethostname()


@contextmanager
def _begun(jobs: Jobs, document: Document, run: dict[str, Any], archive: Archive) -> Iterator[tuple["_Talk", int]]:
    """Starts the program as soon as the held nodes are ready; yields the conversation about it, and its attempt."""
    said = ""
    while True:
        pod, why = _first_pod(jobs, document)
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
            _say(f"{document['metadata']['name']} is not ready: {why}")
            said = why
        time.sleep(AGAIN_SECONDS)


def _first_pod(jobs: Jobs, document: Document) -> tuple[JobPod | None, str]:
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


class _Shown:
    """The output of one run, from its first line to its last one on each node."""

    def __init__(self, jobs: Jobs, document: Document, talk: _Talk, attempt: int, asked: float) -> None:
        job = as_job(document)
        self._name, self._talk, self._attempt, self._asked = job.metadata.name, talk, attempt, asked
        nodes = range(min(job.spec.nodes, FOLLOWED))
        since = math.ceil(time.monotonic() - asked) + MARGIN_SECONDS
        self._logs = PodLogs(jobs, document, nodes, called(job), Which(since_seconds=since))
        self._reached = dict.fromkeys(nodes, attempt - 1)
        self._ended = dict.fromkeys(nodes, False)
        self._logs.follow(begun=jobs.pods(document))

    def follow(self) -> int:
        """Prints the output until the program has ended. Ctrl-C ends it; a second Ctrl-C does not wait for that."""
        over, interrupted = None, False
        try:
            while over is None:
                try:
                    over = self._talk.over()
                    self._print()
                    time.sleep(0.0 if over else POLL_SECONDS)
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
                    self._talk.tell({"kind": "Interrupt"})
                    _say(f"ending the ranks; {self._name} keeps its pods")
            deadline = time.monotonic() + LAST_LINES_SECONDS
            while not all(self._ended.values()) and time.monotonic() < deadline:
                self._print()
                time.sleep(POLL_SECONDS)
        finally:
            self._logs.stop()
        return self._sum_up(over)

    def _sum_up(self, over: dict[str, Any]) -> int:
        code, message = int(over["exit_code"]), visible(str(over["message"]))
        took = duration(round(time.monotonic() - self._asked))
        _say(f"attempt {self._attempt}: {message or 'done'} ({took}); {self._name} is held")
        return INTERRUPTED if code == INTERRUPTED else code

    def _print(self) -> None:
        for line in self._logs.lines():
            if self._is_ours(line):
                print(line, flush=True)

    def _is_ours(self, line: Line) -> bool:
        """Whether a line is of this run's output. The supervisors' own lines around it are not shown."""
        before = self._reached[line.node]
        self._reached[line.node] = attempt_of(line.text, before, self._attempt)
        if line.text == ATTEMPT_ENDED.format(self._attempt):
            self._ended[line.node] = True
        begins = line.text == ATTEMPT_BEGINS.format(self._attempt)
        return before == self._attempt and not begins and not self._ended[line.node]


def _say(text: str) -> None:
    print(f"ddpjob: {visible(text)}", file=sys.stderr, flush=True)
