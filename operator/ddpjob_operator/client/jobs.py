"""Creates, changes, watches and deletes DDPJobs in a cluster, and reads their pods, events and logs."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Self

from pydantic import ValidationError

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import (
    API_VERSION,
    CHECKPOINT_REQUEST,
    DEFAULT_STATUS_PORT,
    KIND,
    TRAINER_CONTAINER,
    Label,
)
from ddpjob_operator.api.git_state import GIT_ANNOTATIONS
from ddpjob_operator.api.job import domain_key
from ddpjob_operator.api.trace_context import TRACE_ANNOTATIONS
from ddpjob_operator.api.words import listed

from .cluster import Cluster, Document, Query
from .errors import ClusterError, ExistsError, NoNamespaceError, RefusedError
from .pods import INSTALL_CONTAINER, JobPod, of_job, owner_of, present
from .watch import OUTAGE_SECONDS, watch

PLURAL = "ddpjobs"
GROUP_PATH = f"/apis/{API_VERSION}"
WRONG = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
OF_A_SUBMISSION = GIT_ANNOTATIONS | {*TRACE_ANNOTATIONS.values()}
"""Annotations that another submission replaces as a whole."""
STAMP = re.compile(r"\d{4}-\d\d-\d\dT")


@dataclass(frozen=True)
class Jobs:
    """The DDPJobs of a cluster's namespace."""

    cluster: Cluster

    def apart(self) -> Self:
        """The same jobs over connections of their own, which another thread can close with `cluster.close()`."""
        return replace(self, cluster=self.cluster.apart())

    def of_namespace(self, namespace: str) -> Self:
        """The jobs of another namespace of the same cluster, over the same connections."""
        return replace(self, cluster=replace(self.cluster, namespace=namespace))

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """Creates a job. With `dry_run` the API server only checks the job, and answers as if it had created it.

        Raises:
            ExistsError: there is a job of this name.
            BadInputError: the API server finds the job invalid, or there is no such namespace.
            ClusterError: the job cannot be created for another reason.
        """
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        try:
            return self._call("POST", self._path(), document, query)
        except RefusedError as error:
            name, namespace = document["metadata"]["name"], self.cluster.namespace
            if error.reason == "AlreadyExists":
                raise ExistsError(f"{name} exists already in namespace {namespace}") from None
            if error.details.get("kind") == "namespaces":
                raise NoNamespaceError(namespace, str(self.cluster)) from None
            if error.code in WRONG:
                raise BadInputError(f"the API server refuses {name}: {error.said}") from None
            raise

    def replace(self, job: Document, document: Document, *, dry_run: bool = False) -> Document:
        """Replaces the spec of exactly this job by that of `document`, whose labels and annotations are added too.

        The trace context and the git commit are replaced too.

        Raises:
            BadInputError: the job no longer exists, or the API server finds the change invalid.
            ClusterError: the job cannot be changed for another reason.
        """
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        while True:
            found = self.get(name)
            if found["metadata"]["uid"] != uid:
                raise BadInputError(f"{name} no longer exists")
            body = {**found, "metadata": _merged(found["metadata"], document["metadata"]), "spec": document["spec"]}
            try:
                return self._call("PUT", self._path(name), body, query)
            except RefusedError as error:
                if error.code == HTTPStatus.CONFLICT:
                    continue  # The job (usually its status) was changed after it was read.
                if error.code in WRONG:
                    raise BadInputError(f"the API server refuses to change {name}: {error.said}") from None
                raise

    def replace_code(
        self, job: Document, config_map: str, former: str | None, annotations: dict[str, str]
    ) -> Document:
        """Makes this ConfigMap the code of new pods of exactly this job. Returns the changed job.

        `former` is the ConfigMap with the code that runs again if the new code fails before its first step; None for
        the code of the template. The revision grows, unless the job names this code already. The trace context and
        the git commit are replaced too.

        Raises:
            BadInputError: the job no longer exists, or somebody else has replaced its code since `job` was read.
            ClusterError: the job cannot be changed for another reason.
        """
        name, uid, known = job["metadata"]["name"], job["metadata"]["uid"], job["spec"].get("code")
        while True:
            found = self.get(name)
            if found["metadata"]["uid"] != uid:
                raise BadInputError(f"{name} no longer exists")
            if any(found["spec"].get(part) != job["spec"].get(part) for part in ("code", "template")):
                raise BadInputError(
                    f"somebody else has replaced the code of {name} meanwhile; look at it, and try again"
                )
            revision = known["revision"] if known else 0
            if known is None or known["configMap"] != config_map:
                revision += 1
            elif known.get("former") == former:
                return found
            code = {"configMap": config_map, "former": former, "revision": revision}
            outdated = dict.fromkeys(OF_A_SUBMISSION & found["metadata"].get("annotations", {}).keys())
            metadata = {
                "resourceVersion": found["metadata"]["resourceVersion"],
                "annotations": {**outdated, **annotations},
            }
            try:
                return self._call(
                    "PATCH",
                    self._path(name),
                    {"metadata": metadata, "spec": {"code": code}},
                    {"fieldValidation": "Strict"},
                )
            except RefusedError as error:
                if error.code == HTTPStatus.CONFLICT:
                    continue  # The job (usually its status) was changed after it was read.
                if error.code in WRONG:
                    raise BadInputError(f"the API server refuses to change {name}: {error.said}") from None
                raise

    def get(self, name: str) -> Document:
        """The job of that name.

        Raises:
            BadInputError: there is no such job.
        """
        try:
            return self._call("GET", self._path(name))
        except RefusedError as error:
            if not error.missing:
                raise
        names = [job["metadata"]["name"] for job in self.all()]
        close = difflib.get_close_matches(name, names)
        guess = f"did you mean {close[0]}?" if close else f"there is {listed(names)}"
        raise BadInputError(f"no DDPJob {name} in namespace {self.cluster.namespace} of {self.cluster}; {guess}")

    def only(self) -> Document:
        """The only job of the namespace.

        Raises:
            BadInputError: there is no job, or a name is needed to choose one.
        """
        jobs = self.all()
        if len(jobs) == 1:
            return jobs[0]
        where = f"namespace {self.cluster.namespace} of {self.cluster}"
        if not jobs:
            raise BadInputError(f"no DDPJobs in {where}; start one with: ddpjob submit FILE")
        raise BadInputError(f"which job of {where}? {', '.join(job['metadata']['name'] for job in jobs[:20])}")

    def has(self, name: str | None) -> bool:
        """Whether there is a job of this name (for None: any job). False if the cluster lacks the CRD."""
        path, query = (self._path(name), None) if name else (self._path(), {"limit": "1"})
        try:
            found = self.cluster.call("GET", path, query=query)
        except RefusedError as error:
            if error.missing:
                return False
            raise
        return bool(found["items"]) if name is None else True

    def find(self, job: Document) -> Document | None:
        """The present object of exactly this job; None if the job no longer exists."""
        try:
            found = self._call("GET", self._path(job["metadata"]["name"]))
        except RefusedError as error:
            if error.missing:
                return None
            raise
        return found if found["metadata"]["uid"] == job["metadata"]["uid"] else None

    def all(self, *, everywhere: bool = False) -> list[Document]:
        """The jobs of this namespace or, with `everywhere`, of all namespaces, sorted by name."""
        path = f"{GROUP_PATH}/{PLURAL}" if everywhere else self._path()
        return _by_name({"apiVersion": API_VERSION, "kind": KIND, **job} for job in self._call("GET", path)["items"])

    def suspend(self, job: Document, *, suspended: bool = True) -> None:
        """Makes exactly this job save and stop or, with `suspended=False`, go on.

        Raises:
            BadInputError: the job no longer exists, or the API server finds the change invalid.
            ClusterError: the job cannot be changed for another reason.
        """
        metadata = job["metadata"]
        self._change(job, self._path(metadata["name"]), {"metadata": {"uid": metadata["uid"]}}, suspend=suspended)

    def cancel(self, job: Document) -> None:
        """Ends exactly this job for good, and keeps it.

        Raises:
            BadInputError: the job no longer exists, or the API server finds the change invalid.
            ClusterError: the job cannot be changed for another reason.
        """
        metadata = job["metadata"]
        self._change(job, self._path(metadata["name"]), {"metadata": {"uid": metadata["uid"]}}, cancel=True)

    def scale(self, job: Document, nodes: int) -> None:
        """Changes a job's number of nodes as `kubectl scale` does, which needs only the right to scale.

        Raises:
            BadInputError: the job no longer exists, or may not have that many nodes.
            ClusterError: the job cannot be changed for another reason.
        """
        self._change(job, self._path(job["metadata"]["name"], "scale"), {}, replicas=nodes)

    def request_checkpoint(self, job: Document, request: str) -> None:
        """Requests a checkpoint of exactly this job. `request` is a word that differs from all former requests.

        Raises:
            BadInputError: the job no longer exists.
            ClusterError: the job cannot be changed for another reason.
        """
        metadata = job["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "annotations": {CHECKPOINT_REQUEST: request}}}
        self._patch(job, self._path(metadata["name"]), body)

    def _change(self, job: Document, path: str, precondition: Document, **spec: Any) -> None:
        self._patch(job, path, {**precondition, "spec": spec})

    def _patch(self, job: Document, path: str, body: Document) -> None:
        name = job["metadata"]["name"]
        try:
            self._call("PATCH", path, body, {"fieldValidation": "Strict"})
        except RefusedError as error:
            if error.missing or error.code == HTTPStatus.CONFLICT:
                raise BadInputError(f"{name} no longer exists") from None
            if error.code in WRONG:
                raise BadInputError(f"the API server refuses to change {name}: {error.said}") from None
            raise

    def delete(self, job: Document) -> None:
        """Deletes exactly this job, not a newer job of its name, and everything that belongs to it.

        Does nothing if the job no longer exists.
        """
        metadata = job["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
        try:
            self._call("DELETE", self._path(metadata["name"]), body)
        except RefusedError as error:
            if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def watch(self, job: Document) -> Iterator[Document | None]:
        """Yields exactly this job now and after every change, and None when it no longer exists."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        for found in watch(self.cluster, self._path(), {"fieldSelector": f"metadata.name={name}"}):
            yield found.get(uid)

    def watch_all(
        self, name: str | None, *, everywhere: bool, outage_seconds: float = OUTAGE_SECONDS
    ) -> Iterator[list[Document]]:
        """Yields the jobs of this or of all namespaces, or only the job `name`, now and after every change.

        Raises:
            BadInputError: the cluster has no DDPJobs installed.
            ClusterError: the cluster does not answer, later on for `outage_seconds`, or refuses to.
        """
        path = f"{GROUP_PATH}/{PLURAL}" if everywhere else self._path()
        with self._installed():
            query = {"fieldSelector": f"metadata.name={name}"} if name else {}
            for found in watch(self.cluster, path, query, outage_seconds):
                yield _by_name(found.values())

    def pods(self, job: Document) -> list[JobPod]:
        """The pods of a job, including those of former attempts that still exist."""
        answer = self.cluster.call("GET", self._core("pods"), query=_of(job))
        return of_job(answer["items"], job)

    def watch_pods(self, job: Document) -> Iterator[list[JobPod]]:
        """Yields the pods of a job, now and after every change."""
        for found in watch(self.cluster, self._core("pods"), _of(job)):
            yield of_job(found.values(), job)

    def look(self, job: Document) -> Document:
        """What each rank of a job is doing now, as rank 0's supervisor reports it.

        Raises:
            BadInputError: rank 0 is not running.
            UnreachableError: there is no answer; the image may have no supervisor, or an older one.
            RefusedError: the user may not forward ports to pods.
        """
        answer = self._asked(job, self.pods(job), "/stacks")
        if answer is None:
            raise BadInputError(f"rank 0 of {job['metadata']['name']} is not running, so there are no stacks")
        return answer

    def status_page(self, job: Document, pods: Iterable[JobPod]) -> Document | None:
        """The document of the status page of rank 0's supervisor; None if rank 0 is not running.

        Raises:
            UnreachableError: there is no answer; the image may have no supervisor.
            RefusedError: the user may not forward ports to pods.
        """
        return self._asked(job, pods, "/status")

    def curve(self, job: Document, pods: Iterable[JobPod], after: int) -> Document | None:
        """The records of the gang's curve after number `after`, as `/curve` of the status page has them.

        None if rank 0 is not running.

        Raises:
            UnreachableError: there is no answer; the supervisor may be of an older release.
            RefusedError: the user may not forward ports to pods.
        """
        return self._asked(job, pods, f"/curve?after={after}")

    def node_of_rank(self, job: Document, pods: Iterable[JobPod], rank: int) -> int:
        """The number of the node that has a rank of a job that has started, at present.

        If ranks follow placement, only rank 0's supervisor knows.

        Raises:
            BadInputError: rank 0 is not running, or its supervisor does not know the node.
            UnreachableError: there is no answer.
            RefusedError: the user may not forward ports to pods.
        """
        known = as_job(job)
        place = rank // (known.status.procs_per_node or 1)
        if domain_key(known) is None:
            return place
        page = self.status_page(job, pods)
        order = None if page is None else page.get("order") or [*range(place + 1)]  # Left out: in numerical order.
        node = order[place] if isinstance(order, list) and place < len(order) else None
        if not isinstance(node, int):
            raise BadInputError(
                f"the ranks of {known.metadata.name} follow placement, and rank 0's supervisor, which knows the node"
                f" of rank {rank}, does not say so now; give the number of a node instead"
            )
        return node

    def _asked(self, job: Document, pods: Iterable[JobPod], path: str) -> Document | None:
        """What rank 0's supervisor answers; None if rank 0 is not running."""
        status = as_job(job).status
        first = next((pod for pod in present(pods, status) if pod.node == 0 and pod.runs), None)
        if first is None:
            return None
        return self.cluster.ask_pod(first.name, status.network.status_port or DEFAULT_STATUS_PORT, path)

    def events(self, job: Document) -> list[Document]:
        """Kubernetes' events about a job, the oldest first. Kubernetes usually keeps them for an hour."""
        selector = {"fieldSelector": f"involvedObject.uid={job['metadata']['uid']}"}
        found = self.cluster.call("GET", self._core("events"), query=selector)["items"]
        return sorted(found, key=when)

    def pod(self, pod: JobPod) -> JobPod | None:
        """The present state of a pod; None if the pod no longer exists."""
        try:
            now = self.cluster.call("GET", self._core("pods", pod.name))
        except RefusedError as error:
            if error.missing:
                return None
            raise
        same = now["metadata"]["uid"] == pod.uid and owner_of(now) is not None
        return JobPod.of(now) if same else None

    def log(
        self, pod: JobPod, after: str | None = None, *, tail: int | None = None, since_seconds: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Lines of the trainer's log, each with the time at which it was written.

        If packages were installed for the trainer, the log of their installation comes first. Until the trainer
        starts, there is no other log.

        Without `after`, yields the lines that exist. With `after`, yields the lines after that time (`""`: all), and
        waits for further lines until the trainer or the connection ends. `tail` limits the number of lines,
        `since_seconds` limits their age; both are ignored if `after` is a time.

        Raises:
            UnreachableError: the connection broke.
            RefusedError: there is no such pod, or it has no log yet.
        """
        only_installed = pod.installs and not pod.started
        query = {"container": INSTALL_CONTAINER if only_installed else TRAINER_CONTAINER, "timestamps": "true"}
        if pod.installs and pod.started and not after and tail is None and since_seconds is None:
            with suppress(RefusedError):  # The installation's log may be gone while the trainer's still exists.
                yield from self._lines(pod, query | {"container": INSTALL_CONTAINER})
        if not after:
            limits = {"tailLines": tail, "sinceSeconds": since_seconds}
            query |= {name: str(limit) for name, limit in limits.items() if limit is not None}
        if after is not None:
            query |= {"follow": "true"} | ({"sinceTime": after} if after else {})
        passing = bool(after)  # sinceTime is in whole seconds, so some lines come twice.
        for stamp, text in self._lines(pod, query):
            passing = passing and stamp <= str(after)
            if not passing:
                yield stamp, text

    def _lines(self, pod: JobPod, query: Query) -> Iterator[tuple[str, str]]:
        for line in self.cluster.lines(self._core("pods", pod.name, "log"), query):
            stamp, _, text = line.decode(errors="replace").rstrip("\n").partition(" ")
            if STAMP.match(stamp):  # A line without a time is not from the log: it is a message of the kubelet.
                yield stamp, text

    def _call(self, method: str, path: str, body: Document | None = None, query: Query | None = None) -> Document:
        with self._installed():
            return self.cluster.call(method, path, body, query)

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """If a request fails because the cluster lacks the CRD, raises an error that explains this."""
        try:
            yield
        except RefusedError as error:
            if error.missing and not error.details.get("name"):
                how = "helm install ddpjob-cluster charts/ddpjob-cluster, and ddpjob-operator likewise"
                raise BadInputError(f"DDPJob is not installed in {self.cluster}: {how}") from None
            raise

    def _path(self, *parts: str) -> str:
        return "/".join((GROUP_PATH, "namespaces", self.cluster.namespace, PLURAL, *parts))

    def _core(self, *parts: str) -> str:
        return "/".join(("/api/v1/namespaces", self.cluster.namespace, *parts))


def as_job(document: Document) -> DDPJob:
    """The job in a document from the API server.

    Raises:
        ClusterError: the document has fields of a newer version.
    """
    try:
        return DDPJob.from_dict(document)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        message = (
            f"{document['metadata']['name']} has fields that this version of ddpjob does not know: {fields}. "
            "Update ddpjob"
        )
        raise ClusterError(message) from None


def when(event: Document) -> str:
    """When an event last happened, in Kubernetes' format."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def _by_name(jobs: Iterable[Document]) -> list[Document]:
    return sorted(jobs, key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"]))


def _merged(metadata: Document, more: Document) -> Document:
    """An object's metadata with the labels and annotations of `more` in place of those of its own submission."""
    annotations = metadata.get("annotations", {})
    kept = {key: text for key, text in annotations.items() if key not in OF_A_SUBMISSION}
    maps = {"labels": metadata.get("labels", {}), "annotations": kept}
    added = {kind: {**own, **more.get(kind, {})} for kind, own in maps.items()}
    return {**metadata, **{kind: marks for kind, marks in added.items() if marks or kind in metadata}}


def _of(job: Document) -> Query:
    return {"labelSelector": f"{Label.JOB_UID}={job['metadata']['uid']},{Label.NODE}"}
