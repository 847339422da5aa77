"""Where `ddpjob top` and `ddpjob dashboard` get their jobs from: this machine, a cluster, and histories."""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Protocol

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.cluster.pod_view import GangSeen, pod_seen, pods_and_page
from ddpjob_operator.cli.from_history import kept_detail
from ddpjob_operator.cli.last_loss import logged_last
from ddpjob_operator.cli.phrases import about_a_file
from ddpjob_operator.cli.status import row_here
from ddpjob_operator.client import ClusterError, Document, JobPod, Jobs, UnreachableError, as_job
from ddpjob_operator.history import MOST_JOBS, HistoryPlace, Unreadable, find_history, kept_jobs, namespaces_of
from ddpjob_operator.local import RunDirectory, Runs, all_runs, page_of
from ddpjob_operator.local.record_files import SEEN_NAME, read
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import (
    Around,
    JobDetail,
    JobKey,
    JobRow,
    LoggedProgress,
    Origin,
    Records,
    job_detail,
    job_row,
    kept_row,
    last_loss_alone,
    loss_in,
    unreadable_row,
)

from .job_points import JobPoints
from .printed_points import PrintedHere, PrintedThere

RETRY_SECONDS = 10.0
"""How long to wait before a cluster is asked again that did not answer, or refused a request."""

LIST_AGAIN_SECONDS = 30.0
"""How often a place of histories is listed: each time takes requests, and new jobs are rare."""
UNSEEN_SECONDS = 15.0
"""The pods of a job are watched for so long after somebody has looked at it last."""
OUTAGE_SECONDS = 5.0
"""How long a cluster may be away before the screen says so."""

Mark = tuple[int, int, int]


class Feed(Protocol):
    """A source of jobs. Its methods may be called from different threads."""

    @property
    def origin(self) -> Origin:
        """Where its jobs are known from."""
        ...

    @property
    def problem(self) -> str:
        """Why its jobs cannot be read now, in a sentence; empty if they can be."""
        ...

    def follow(self, changed: Callable[[], None]) -> None:
        """Calls `changed` whenever a job has changed, from a thread of its own, until `stop`."""
        ...

    def fetch(self) -> None:
        """Reads the jobs once, in place of `follow`.

        Raises:
            ClusterError: the cluster does not answer, or refuses to.
            BadInputError: there is nothing that can be read.
        """
        ...

    def rows(self, now: datetime) -> list[JobRow]:
        """The jobs that are known at the time `now`. Returns at once."""
        ...

    def detail(self, key: JobKey, now: datetime) -> JobDetail | None:
        """A job in full; None if it is gone. May take seconds."""
        ...

    def job(self, key: JobKey) -> DDPJob | None:
        """The job itself; None if it is gone."""
        ...

    def events(self, key: JobKey) -> list[Document]:
        """Kubernetes' events about a job, the oldest first. May take seconds."""
        ...

    def stop(self) -> None:
        """Ends what `follow` has begun."""
        ...


class JobsHere:
    """The runs on this machine. Their files are looked at each time, because not every system can watch files."""

    origin = Origin.HERE
    problem = ""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._read: dict[Path, tuple[Mark, DDPJob | str, str]] = {}
        self._printed = PrintedHere()

    def follow(self, changed: Callable[[], None]) -> None:
        """Does nothing: looking costs less than being told."""

    def fetch(self) -> None:
        """Does nothing: `rows` reads."""

    def rows(self, now: datetime) -> list[JobRow]:
        """The runs. A run whose files cannot be read has a row that says why.

        Raises:
            BadInputError: the user has named a directory that does not exist.
        """
        return [row for run in all_runs(self._runs) if (row := self._row(run, now))]

    def detail(self, key: JobKey, now: datetime) -> JobDetail | None:
        """A run in full, with its status page and its recorded training."""
        run = RunDirectory(Path(key.uid))
        if (job := run.load()) is None:
            return None
        records = Records()
        with suppress(OSError):
            records = read(run.metrics / SEEN_NAME)
        printed = None if records.has("loss") else self._printed.read(run)
        around = Around(run.made, {"Directory": str(run.root)}, logged=logged_last(run))
        return job_detail(job, key, now, around, page=page_of(run, job), recorded=records, printed=printed)

    def job(self, key: JobKey) -> DDPJob | None:
        """The job of a run."""
        return RunDirectory(Path(key.uid)).load()

    def events(self, key: JobKey) -> list[Document]:  # noqa: ARG002  As others have it.
        """None: Kubernetes knows nothing of a run on this machine."""
        return []

    def stop(self) -> None:
        """Does nothing."""

    def _row(self, run: RunDirectory, now: datetime) -> JobRow | None:
        try:
            found = run.job_file.stat()
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            if run.root not in self._read or self._read[run.root][0] != mark:
                self._read[run.root] = (mark, *_loaded(run))
        except FileNotFoundError:
            return None
        except OSError as error:
            return unreadable_row(_key_of(run), about_a_file(error))
        _, job, loss = self._read[run.root]
        return unreadable_row(_key_of(run), job) if isinstance(job, str) else row_here(run, job, now, loss or None)


def _loaded(run: RunDirectory) -> tuple[DDPJob | str, str]:
    """A run's job, or why it cannot be read, and the loss that only its log shows."""
    try:
        job = run.load()
    except BadInputError as error:
        return str(error), ""
    if job is None:
        raise FileNotFoundError
    return job, "" if loss_in(job.status) else last_loss_alone(job.status, logged_last(run))


def _key_of(run: RunDirectory) -> JobKey:
    return JobKey(Origin.HERE, "", one_line(run.root.name), str(run.root))


@dataclass(frozen=True)
class NoCluster:
    """Stands for the jobs of a cluster that cannot even be asked, for example because of a broken kubeconfig."""

    problem: str
    origin = Origin.CLUSTER

    def follow(self, changed: Callable[[], None]) -> None:
        """Does nothing: there is nothing to follow."""

    def fetch(self) -> None:
        """Says what the problem is.

        Raises:
            BadInputError: always.
        """
        raise BadInputError(self.problem)

    def rows(self, now: datetime) -> list[JobRow]:  # noqa: ARG002  As the other feeds.
        """No jobs."""
        return []

    def detail(self, key: JobKey, now: datetime) -> JobDetail | None:  # noqa: ARG002  As the other feeds.
        """None: there are no jobs."""
        return None

    def job(self, key: JobKey) -> DDPJob | None:  # noqa: ARG002  As the other feeds.
        """None: there are no jobs."""
        return None

    def events(self, key: JobKey) -> list[Document]:  # noqa: ARG002  As the other feeds.
        """None: there are no jobs."""
        return []

    def stop(self) -> None:
        """Does nothing."""


class JobsThere:
    """The jobs of one or all namespaces of a cluster, known by a watch."""

    origin = Origin.CLUSTER

    def __init__(self, jobs: Jobs, *, everywhere: bool) -> None:
        self._jobs = jobs.apart()
        self._everywhere = everywhere
        self._documents: list[Document] = []
        self._listed = False
        self._old_since: datetime | None = None
        """Since when the cluster does not tell of changes; None: it does, or nothing is known of it yet."""
        self._parsed: dict[str, tuple[str, DDPJob | str]] = {}
        self._stopped = threading.Event()
        self._open: dict[str, OpenJob] = {}
        self._opening = threading.Lock()
        self.problem = ""

    def follow(self, changed: Callable[[], None]) -> None:
        """Watches the jobs in a thread. Trouble is a `problem` until it is over, and ends nothing."""
        self.problem = "The cluster has not answered yet"
        threading.Thread(target=self._follow, args=(changed,), daemon=True).start()

    def _follow(self, changed: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                for documents in self._jobs.watch_all(
                    None, everywhere=self._everywhere, outage_seconds=OUTAGE_SECONDS
                ):
                    self._documents, self._listed, self.problem, self._old_since = documents, True, "", None
                    changed()
            except (ClusterError, BadInputError) as error:
                if not self._stopped.is_set():
                    self.problem = one_line(f"{error}{self._age(error)}")
                    changed()
            self._stopped.wait(RETRY_SECONDS)

    def _age(self, error: Exception) -> str:
        """From when what is still shown is, as the end of a sentence; empty if nothing has been shown yet."""
        if self._listed and self._old_since is None:
            away = OUTAGE_SECONDS if isinstance(error, UnreachableError) else 0.0  # So long was tried again.
            self._old_since = datetime.now(UTC) - timedelta(seconds=away)
        return f". What is shown is of {self._old_since:%H:%M:%S} UTC" if self._old_since else ""

    def fetch(self) -> None:
        """Reads the jobs once.

        Raises:
            ClusterError: the cluster does not answer, or refuses to.
            BadInputError: the cluster has no DDPJobs installed.
        """
        self._documents = self._jobs.all(everywhere=self._everywhere)

    def rows(self, now: datetime) -> list[JobRow]:
        """The jobs. Only those that have changed are parsed again; one that cannot be has a row that says why."""
        documents, before = self._documents, self._parsed
        self._parsed = {document["metadata"]["uid"]: _parsed(document, before) for document in documents}
        return [self._row(document, now) for document in documents]

    def _row(self, document: Document, now: datetime) -> JobRow:
        key, (_, job) = _key(document), self._parsed[document["metadata"]["uid"]]
        return unreadable_row(key, job) if isinstance(job, str) else job_row(job, key, now, _made(document))

    def detail(self, key: JobKey, now: datetime) -> JobDetail | None:
        """A job in full, with its pods and its status page if the user may see them."""
        document = self._document(key)
        if document is None:
            return None
        job, jobs = as_job(document), self._jobs.of_namespace(key.namespace)
        opened = self._opened(document, jobs)
        gang = pods_and_page(jobs, document, job, opened.pods)
        recorded, no_curves = opened.points(document, job, gang)
        where = {"Namespace": f"{key.namespace} of context {jobs.cluster.context}"}
        if gang.problem:
            where["Not shown"] = f"what single ranks do: {gang.problem}"
        around = Around(_made(document), where, logged=LoggedProgress())
        return job_detail(
            job,
            key,
            now,
            around,
            page=gang.page,
            pods=map(pod_seen, gang.pods),
            recorded=recorded,
            printed=None if recorded.has("loss") or (gang.problem and not gang.pods) else opened.printed(),
            no_curves=no_curves,
        )

    def job(self, key: JobKey) -> DDPJob | None:
        """The job as it is known by the watch.

        Raises:
            ClusterError: it cannot be understood.
        """
        document = self._document(key)
        return None if document is None else as_job(document)

    def events(self, key: JobKey) -> list[Document]:
        """Kubernetes' events about a job.

        Raises:
            ClusterError: the cluster does not answer, or the user may not list events.
        """
        document = self._document(key)
        return [] if document is None else self._jobs.of_namespace(key.namespace).events(document)

    def _document(self, key: JobKey) -> Document | None:
        return next((one for one in self._documents if one["metadata"]["uid"] == key.uid), None)

    def stop(self) -> None:
        """Ends the watches."""
        self._stopped.set()
        with self._opening:
            while self._open:
                self._open.popitem()[1].close()
        self._jobs.cluster.close()

    def _opened(self, document: Document, jobs: Jobs) -> "OpenJob":
        """A job that is looked at from now on. Jobs that nobody has looked at for some time are closed."""
        now, uid = time.monotonic(), document["metadata"]["uid"]
        with self._opening:
            for other in [one for one, job in self._open.items() if one != uid and now > job.seen + UNSEEN_SECONDS]:
                self._open.pop(other).close()
            opened = self._open.setdefault(uid, OpenJob(document, jobs))
            opened.seen = now
        return opened


class OpenJob:
    """What is known of a job while somebody looks at it: its pods, and the points of its curves."""

    def __init__(self, document: Document, jobs: Jobs) -> None:
        self._document, self._jobs = document, jobs
        self._watched: WatchedPods | None = None
        self._printed: PrintedThere | None = None
        self._points, self._reading = JobPoints(jobs), threading.Lock()
        self.seen = 0.0
        """When somebody has looked at it last, by the monotonic clock."""

    def pods(self) -> list[JobPod]:
        """The pods of the job, which are watched from now on.

        Raises:
            ClusterError: they cannot be watched.
        """
        if self._watched is None or self._watched.failed:
            self._unwatch()
            self._watched = WatchedPods(self._jobs, self._document)
        return self._watched.pods()

    def points(self, document: Document, job: DDPJob, gang: GangSeen) -> tuple[Records, str]:
        """As `JobPoints.read`."""
        with self._reading:
            return self._points.read(document, job, gang)

    def printed(self) -> Records | None:
        """The progress that the log of rank 0 shows, which is followed from now on; None if there is no log."""
        with self._reading, suppress(ClusterError):
            if self._printed is None and any(pod.node == 0 and pod.started for pod in self.pods()):
                self._printed = PrintedThere(self._jobs, self._document, self.pods())
            return None if self._printed is None else self._printed.read()
        return None

    def close(self) -> None:
        """Ends the watch of the pods, and the reading of the log."""
        self._unwatch()
        printed, self._printed = self._printed, None
        if printed is not None:
            printed.close()

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.stop()


class WatchedPods:
    """The pods of a job that is open, known by a watch that ends with `stop` or with an error."""

    def __init__(self, jobs: Jobs, document: Document) -> None:
        self._jobs, self._document = jobs.apart(), document
        self._listed = threading.Event()
        self._pods: list[JobPod] = []
        self._error: ClusterError | None = None
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        try:
            for pods in self._jobs.watch_pods(self._document):
                self._pods = pods
                self._listed.set()
        except ClusterError as error:
            self._error = error
            self._listed.set()

    @property
    def failed(self) -> bool:
        """Whether the watch has ended with an error."""
        return self._error is not None

    def pods(self) -> list[JobPod]:
        """The pods as they are now. Waits until they are known for the first time.

        Raises:
            ClusterError: they cannot be watched.
        """
        self._listed.wait()
        if self._error is not None:
            raise self._error
        return self._pods

    def stop(self) -> None:
        """Ends the watch."""
        self._jobs.cluster.close()


def _key(document: Document) -> JobKey:
    metadata = document["metadata"]
    return JobKey(Origin.CLUSTER, metadata["namespace"], metadata["name"], metadata["uid"])


def _parsed(document: Document, before: dict[str, tuple[str, DDPJob | str]]) -> tuple[str, DDPJob | str]:
    """The version of a job and the job, or why it cannot be read."""
    metadata = document["metadata"]
    known = before.get(metadata["uid"])
    if known is not None and known[0] == metadata["resourceVersion"]:
        return known
    try:
        return metadata["resourceVersion"], as_job(document)
    except ClusterError as error:
        return metadata["resourceVersion"], str(error)


def _made(document: Document) -> datetime:
    return datetime.fromisoformat(document["metadata"]["creationTimestamp"])


class KeptJobs:
    """The jobs of which a history is left."""

    origin = Origin.HISTORY

    def __init__(self, place: HistoryPlace, namespace: str | None) -> None:
        self._place, self._namespace = place, namespace
        self._rows: dict[JobKey, JobRow] = {}
        self._stopped = threading.Event()
        self.problem = ""

    def follow(self, changed: Callable[[], None]) -> None:
        """Reads the jobs again and again, in a thread, because an object store may take seconds."""
        self.problem = "The history is being read"
        threading.Thread(target=self._follow, args=(changed,), daemon=True).start()

    def _follow(self, changed: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                self.fetch()
            except BadInputError as error:  # The jobs that are known stay.
                self.problem = one_line(str(error))
            changed()
            self._stopped.wait(LIST_AGAIN_SECONDS)

    def fetch(self) -> None:
        """Reads the names of the jobs.

        Raises:
            PlaceError: the place cannot be read.
        """
        unreadable: Unreadable = {}
        namespaces = [self._namespace] if self._namespace else namespaces_of(self._place)
        found = islice(kept_jobs(self._place, namespaces, unreadable), MOST_JOBS)
        keys = ((JobKey(Origin.HISTORY, job.namespace, job.name, job.uid), job) for job in found)
        self._rows = {key: kept_row(key, job.result, job.began) for key, job in keys}
        self.problem = one_line("; ".join(unreadable.values()))

    def rows(self, now: datetime) -> list[JobRow]:  # noqa: ARG002  Nothing of them changes with time.
        """The jobs that were read."""
        return [*self._rows.values()]

    def detail(self, key: JobKey, now: datetime) -> JobDetail | None:
        """What is kept of a job."""
        if (row := self._rows.get(key)) is None:
            return None
        return kept_detail(find_history(self._place, key.namespace, key.name, key.uid), row, now)

    def job(self, key: JobKey) -> DDPJob | None:  # noqa: ARG002  As others have it.
        """None: it is not kept."""
        return None

    def events(self, key: JobKey) -> list[Document]:  # noqa: ARG002  As above.
        """None: they are not kept."""
        return []

    def stop(self) -> None:
        """Ends the reading."""
        self._stopped.set()


def all_rows(feeds: Iterable[Feed], now: datetime) -> list[JobRow]:
    """The jobs of all feeds."""
    return [row for feed in feeds for row in feed.rows(now)]
