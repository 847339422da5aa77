"""A handle of a job on a cluster."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ddpjob_operator.api import BadInputError, DDPJob, DDPJobStatus, Incident
from ddpjob_operator.api.status import Progress
from ddpjob_operator.cli.cluster.job_logs import followed_lines, lines_of, past_pods
from ddpjob_operator.cli.cluster.kept import keeps_history, opened_history
from ddpjob_operator.cli.cluster.life import Life
from ddpjob_operator.cli.cluster.shown_job import ShownJob
from ddpjob_operator.cli.cluster.submit import say_how_to_go_on
from ddpjob_operator.cli.durations import seconds_of
from ddpjob_operator.cli.from_history import kept_lines, run_data
from ddpjob_operator.cli.last_lines import MOST_LINES, last_lines
from ddpjob_operator.cli.phrases import check_node, nothing_ran, writer
from ddpjob_operator.cli.printed_records import records_of
from ddpjob_operator.cli.report import written_page
from ddpjob_operator.cli.run_logs import Line, Which
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.summary import advice
from ddpjob_operator.client import ClusterError, Document, Jobs, as_job, present, when
from ddpjob_operator.engine import called
from ddpjob_operator.history import JobHistory
from ddpjob_operator.text import visible
from ddpjob_operator.view_model import Records

from .failures import JobFailed, failure
from .notebook import JobInNotebook, publisher
from .public_calls import public_call
from .results import result_of
from .tracebacks import at_callers_line

if TYPE_CHECKING:
    from ddpjob_operator.report import RunData

POLL_SECONDS = 0.2
TRACEBACK_LINES = 400
"""How many of the last lines of a log are searched for a traceback."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log.

        for line in job.logs():
            print(line.time, line.node, line.text)

    `Job.logs` yields such lines.
    """

    time: datetime
    """When it was written."""
    node: int
    """The number of the node in the job."""
    rank: int | None
    """The rank that wrote it; None if several ranks of the node write to its log."""
    attempt: int
    """The attempt for which the pod was created. The log has a line where a restart in place begins."""
    text: str
    """The line, without its end."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A Kubernetes event about a job.

        for event in job.events():
            print(event.time, event.reason, event.message)

    `Job.events` returns such events.
    """

    time: datetime
    """When it last happened."""
    type: str
    """`Normal` or `Warning`."""
    reason: str
    """What happened, in one word."""
    message: str
    """What happened, in a sentence."""


@dataclass(eq=False, repr=False)
class Job:
    """A job on a cluster, as `submit` and `connect` return it.

        job = ddpjob.connect("resnet")
        job.wait(timeout="2h")
        print(job.name, job.status().state)

    In a `with` statement, the job is cancelled if the block is left by an exception, also by Ctrl-C or by the
    TimeoutError of `wait` and `result`. If the block ends normally or by `sys.exit(0)`, nothing happens to the job.

        with ddpjob.connect("resnet") as job:
            for progress in job.progress():
                if progress.loss is not None and progress.loss > 10:
                    raise ValueError("the loss is too high")

    Once the job's pods are gone, `logs` and `report` read what its history keeps. Once the job itself is gone, they
    still do, and `events` returns what Kubernetes still has; `cancel` and `delete` do nothing, and all others raise
    BadInputError.

    All methods use the rights of the kubeconfig's user. A job that was deleted and made anew under the same name is
    another job: then they raise BadInputError.
    """

    _jobs: Jobs
    _document: Document
    """The job as it was when this was made. Its metadata says which job it is, and its spec where its history is."""
    _in_with: bool = field(default=False, init=False)
    """Whether an exception will cancel the job."""

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self._document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return str(self._document["metadata"]["namespace"])

    def __repr__(self) -> str:
        return f"<DDPJob {self.name} in namespace {self.namespace} of {self._jobs.cluster}>"

    def __enter__(self) -> Self:
        self._in_with = True
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._in_with = False
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            return
        try:
            cancelled = self._cancel()
        except (BadInputError, ClusterError) as problem:  # The user's own error is worth more.
            error.add_note(f"{self.name} could not be cancelled, and goes on: {problem}")
        else:
            if cancelled:  # Mostly the error says that the job has failed.
                error.add_note(f"{self.name} was cancelled because of this")

    def status(self) -> DDPJobStatus:
        """What the job is doing now, with the names of the type's status in snake case.

            print(job.status().state, job.status().message)

        Raises:
            BadInputError: The job no longer exists.
            ClusterError: The cluster cannot be reached, or refuses.
        """
        return as_job(self._present()).status

    @public_call
    def wait(self, timeout: float | str | None = None, *, quiet: bool = False) -> DDPJobStatus:
        """Shows the job's events and logs until it has ended; returns its last status, also if it has failed.

            if job.wait("2h").succeeded:
                print("trained")

        In a notebook it shows one picture, which changes while the job runs: the state, the curve of the loss, and
        the last events and lines.

        Ctrl-C ends only this call: the job goes on, and a message says how to come back. In a `with` statement,
        Ctrl-C also cancels the job, unless the block handles it. Each call shows the logs from their beginning.

        Args:
            timeout: The longest time to wait: seconds, or a duration such as `90s` or `2h`.
            quiet: Whether to show nothing.

        Raises:
            TimeoutError: The job has not ended yet. It goes on, unless the error leaves its `with` statement.
            BadInputError: The job no longer exists, or `timeout` is no duration.
            ClusterError: The cluster cannot be reached any more, or the job was deleted.
            KeyboardInterrupt: Somebody has pressed Ctrl-C.
        """
        return self._ended(timeout, quiet=quiet).status

    @public_call
    def result(self, timeout: float | str | None = None) -> Any:
        """Waits until the job has ended, without showing anything; returns its result.

            try:
                print(job.result(timeout="2h"))
            except ddpjob.RankFailed as failed:
                print(failed.rank, failed.step, failed.cause, failed.remote_traceback)

        The result is what rank 0's function has returned, or what a script has set with `ddpjob.set_result`; None if
        there is none. It can be had for as long as the job exists and, if it is larger than 2 KiB, its history.

        Args:
            timeout: The longest time to wait: seconds, or a duration such as `90s` or `2h`.

        Raises:
            RankFailed: A rank has failed.
            JobFailed: The job has failed for another reason, such as a deadline.
            TimeoutError: The job has not ended yet. It goes on, unless the error leaves its `with` statement.
            BadInputError: The job no longer exists, `timeout` is no duration, or the history with the result cannot
                be read.
            ClusterError: The cluster cannot be reached any more, or the job was deleted.
        """
        job = self._ended(timeout, quiet=True)
        if not job.status.succeeded:
            raise self._failure(job)
        return result_of(job, self._jobs.cluster)

    @public_call
    def logs(
        self,
        *,
        rank: int | None = None,
        node: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[LogLine]:
        """Yields the lines of the job's logs, node by node or, with `follow`, as they come.

            for line in job.logs(rank=3, follow=True):
                print(line.time, line.rank, line.text)

        Once the pods are gone, the lines come from the job's history (`history` of `submit`), also if the job itself
        is gone. An object store is read with your credentials, and a volume claim by a pod that exists for as long as
        you read. A job without a history loses its logs with its pods.

        Args:
            rank: Only the log of this rank or, if its node has several processes, of its node. Where ranks follow
                placement, of the node on which it runs now.
            node: Only the log of this node.
            attempt: Only lines of this attempt, not of the present one. They are never followed.
            tail: Only so many of the last lines of each log.
            follow: Whether to wait for more lines until the job has ended. While there are none because the job
                waits, a message on stderr says for what. Without `rank` and `node`, only the first 64 nodes are
                followed.

        Raises:
            BadInputError: The job has no such rank, node or attempt; or its pods are gone, and it has no history that
                can be read.
            ClusterError: The cluster cannot be reached any more, refuses, or the job was deleted.
        """
        document = self._jobs.find(self._document)
        if document is None:
            job = as_job(self._document)
            yield from self._kept_lines(job, _checked(job, Which(node, rank, attempt, tail=tail)).of_job(job))
            return
        job = as_job(document)
        asked = _checked(job, Which(node, rank, attempt, tail=tail))
        which = asked.of_job(job, lambda rank: self._jobs.node_of_rank(document, self._jobs.pods(document), rank))
        pods = self._jobs.pods(document)
        if follow and attempt is None and not job.status.finished:
            say = Screen(stderr=True).print
            for line in followed_lines(self._jobs, document, pods, which, lambda text: say(f"ddpjob: {text}")):
                yield _log_line(job, line)
            return
        if not pods and not nothing_ran(job.status):
            yield from self._kept_lines(job, which)
            return
        if attempt is None:
            found = [pod for pod in present(pods, job.status) if which.node is None or pod.node == which.node]
        else:
            try:
                _, found = past_pods(job, pods, which)
            except BadInputError:
                if keeps_history(job) is None:
                    raise
                yield from self._kept_lines(job, which)
                return
        for pod in found:
            for moment, text in lines_of(self._jobs, job, pod, which, attempt):
                yield _log_line(job, Line(pod.node, attempt or pod.attempt, text, moment=moment))

    def progress(self) -> Iterator[Progress]:
        """Yields how far training has come, now and whenever that changes, until the job has ended.

            for progress in job.progress():
                print(progress.step, progress.loss)

        The status, and with it the progress, is updated every ten seconds at most.

        Raises:
            BadInputError: The job no longer exists.
            ClusterError: The cluster cannot be reached any more, or the job was deleted.
        """
        before: Progress | None = None
        for document in self._jobs.watch(self._present()):
            if document is None:
                raise ClusterError(f"{self.name} was deleted")
            status = as_job(document).status
            if status.progress is not None and status.progress != before:
                before = status.progress
                yield status.progress
            if status.finished:
                return

    def events(self) -> list[JobEvent]:
        """Kubernetes' events about the job, the oldest first. Kubernetes usually keeps them for an hour.

            for event in job.events():
                print(event.time, event.reason, event.message)

        Raises:
            ClusterError: The cluster cannot be reached, or refuses.
        """
        return [
            JobEvent(
                datetime.fromisoformat(when(event)),
                event.get("type", ""),
                event.get("reason", ""),
                event.get("message", ""),
            )
            for event in self._jobs.events(self._document)
        ]

    @public_call
    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page of `ddpjob report` about the job: curves, incidents, spec. Returns its absolute path.

            print("written:", job.report("resnet.html"))

        The curves come from the job's history or, without one, from the last pods' logs. So a job without a history
        has no curves once its pods are gone, and no report once it is gone itself.

        Args:
            path: The file to write.

        Raises:
            BadInputError: The file cannot be written, a library that the page needs is missing, the history cannot be
                read, or the job is gone and has none.
            ClusterError: The cluster cannot be reached, or refuses.
        """
        document = self._jobs.find(self._document)
        if keeps_history(as_job(document or self._document)) is None:
            job = as_job(document or self._present())
            return self._written(path, lambda now: self._seen(job, now))
        with self._opened_history(as_job(document or self._document)) as history:
            known = as_job(document) if document is not None else None
            return self._written(path, lambda now: run_data(history, now, known))

    def suspend(self) -> None:
        """Lets the job save and stop. `resume` lets it go on.

            job.suspend()

        Raises:
            BadInputError: The job no longer exists, has ended, or was cancelled.
            ClusterError: The cluster cannot be reached, or refuses.
        """
        self._jobs.suspend(self._unfinished())

    def resume(self) -> None:
        """Lets a suspended job go on.

            job.resume()

        Raises:
            BadInputError: The job no longer exists, has ended, or was cancelled.
            ClusterError: The cluster cannot be reached, or refuses.
        """
        self._jobs.suspend(self._unfinished(), suspended=False)

    @public_call
    def scale(self, nodes: int) -> None:
        """Changes the job's number of nodes. It saves, and goes on with the new number.

            job.scale(4)

        Args:
            nodes: The new number of nodes, at least 1.

        Raises:
            BadInputError: The job no longer exists, has ended, was cancelled, or may not have that many nodes.
            ClusterError: The cluster cannot be reached, or refuses.
        """
        if nodes < 1:
            raise BadInputError(f"scale({nodes!r}): the number of nodes must be a whole number above 0")
        self._jobs.scale(self._unfinished(), nodes)

    def cancel(self) -> None:
        """Ends the job for good, and keeps it as Failed, with reason `Cancelled`. Its pods save, and keep their logs.

            job.cancel()

        Does nothing if the job has ended, or no longer exists.

        Raises:
            BadInputError: The DDPJob in the cluster is of an older release, which cannot cancel jobs.
            ClusterError: The cluster cannot be reached, or refuses.
        """
        self._cancel()

    def _cancel(self) -> bool:
        """Does the same; returns whether the job had not ended before.

        Raises:
            BadInputError, ClusterError: As in `cancel`.
        """
        document = self._jobs.find(self._document)
        if document is None or as_job(document).status.finished:
            return False
        try:
            self._jobs.cancel(document)
        except BadInputError:
            if self._jobs.find(document) is not None:
                raise
            return False
        return True

    def delete(self) -> None:
        """Ends the job, and deletes it with everything that belongs to it. Does nothing if it no longer exists.

            job.delete()

        Raises:
            ClusterError: The cluster cannot be reached, or refuses.
        """
        self._jobs.delete(self._document)

    def _present(self) -> Document:
        document = self._jobs.find(self._document)
        if document is None:
            raise BadInputError(f"{self.name} no longer exists in namespace {self.namespace} of {self._jobs.cluster}")
        return document

    def _written(self, path: str | os.PathLike[str], found: Callable[[datetime], "RunData"]) -> Path:
        return written_page(Path(path), found, whole=False, instead="choose another path")

    def _seen(self, job: DDPJob, now: datetime) -> "RunData":
        """The data of a page, as far as the job and its pods have them."""
        from ddpjob_operator.report import RunData  # noqa: PLC0415  Its libraries may be missing.

        try:
            printed = records_of(self.logs(node=0), now)
        except (BadInputError, ClusterError):
            printed = Records()  # The logs are gone with the pods.
        said = None
        if incident := job.status.last_incident:
            with suppress(BadInputError, ClusterError):
                lines = self.logs(node=incident.node, attempt=incident.attempt, tail=MOST_LINES)
                said = last_lines(lines, incident, writer(job.status.procs_per_node))
        return RunData(self.name, job, Records(), printed=printed, last_lines=said)

    @contextmanager
    def _opened_history(self, job: DDPJob) -> Iterator[JobHistory]:
        with opened_history(self._jobs.cluster, job) as history:
            try:
                yield history
            finally:
                for problem in history.problems:
                    Screen(stderr=True).print(f"ddpjob: {visible(problem)}")

    def _kept_lines(self, job: DDPJob, which: Which) -> Iterator[LogLine]:
        """The lines in the job's history."""
        with self._opened_history(job) as history:
            for line in kept_lines(history, which):
                yield _log_line(job, line)

    def _unfinished(self) -> Document:
        document = self._present()
        job = as_job(document)
        if job.status.finished:
            raise BadInputError(f"{self.name} has {job.status.state.lower()} and cannot be changed")
        if job.spec.cancel:
            raise BadInputError(f"{self.name} was cancelled and cannot be changed")
        return document

    def _ended(self, timeout: float | str | None, *, quiet: bool) -> DDPJob:
        """The job when it has ended, even if it is deleted immediately afterwards."""
        deadline, document, screen = _deadline(timeout), self._present(), Screen()
        life = Life(self._jobs, document) if quiet else None
        try:
            if life is None:
                publish = publisher()
                shown = (
                    ShownJob.on(screen, self._jobs, document)
                    if publish is None
                    else JobInNotebook.on(publish, self._jobs, document)
                )
                shown.follow(deadline)
                life = shown.life
                if not life.over and time.monotonic() < deadline:  # The output was closed; the wait goes on.
                    life = Life(self._jobs, document)
            while not life.over and time.monotonic() < deadline:
                for _ in life.news(POLL_SECONDS):
                    pass
        except KeyboardInterrupt:
            if not (quiet or self._in_with):
                screen.print(f"\n{self.name} goes on in the cluster")
                say_how_to_go_on(screen, self.name, self._jobs.cluster)
            raise
        finally:
            if life is not None:
                life.stop()
        if not life.over:
            goes_on = "" if self._in_with else ", and goes on"
            raise at_callers_line(TimeoutError(f"{self.name} has not ended yet{goes_on}: {life.job.status.message}"))
        return life.job

    def _failure(self, job: DDPJob) -> JobFailed:
        def log(incident: Incident) -> list[str]:
            which = Which(tail=TRACEBACK_LINES)
            try:
                pods = [pod for pod in self._jobs.pods(self._document) if pod.name == incident.pod and pod.has_log]
                return [text for pod in pods for _, text in lines_of(self._jobs, job, pod, which, None)]
            except ClusterError:
                return []  # The failure is worth more than its log.

        return failure(job, "\n".join(advice(job, f" -n {self.namespace}")), log)


def _deadline(timeout: float | str | None) -> float:
    """When the monotonic clock has reached the timeout.

    Raises:
        BadInputError: it is no duration.
    """
    if timeout is None:
        return math.inf
    try:
        seconds = seconds_of(timeout) if isinstance(timeout, str) else float(timeout)
    except (ValueError, OverflowError) as error:
        raise BadInputError(f"timeout={timeout!r:.64}: {error}") from None
    if math.isnan(seconds):
        raise BadInputError("timeout=nan: must be a number of seconds, or a duration such as '2h'")
    return time.monotonic() + seconds


def _checked(job: DDPJob, which: Which) -> Which:
    """The same.

    Raises:
        BadInputError: there is no such node, or both a rank and a node are given.
    """
    if which.rank is not None and which.node is not None:
        raise BadInputError(f"rank={which.rank} and node={which.node}: give only one of them")
    check_node(job.metadata.name, which.node, job.status.nodes or job.spec.nodes)
    return which


def _log_line(job: DDPJob, line: Line) -> LogLine:
    rank = line.node if called(job) == "rank" else None
    return LogLine(datetime.fromisoformat(line.moment), line.node, rank, line.attempt, line.text)
