"""A cluster that is made up: it remembers what it was asked, and gives the answers that it was told to, in turn."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ddpjob_operator.client import Cluster, Document, JobPod, Jobs
from ddpjob_operator.client.cluster import Query
from ddpjob_operator.client.errors import refusal
from kubernetes.client.api_client import ApiClient

JOBS = "/apis/ddpjob.dev/v1alpha2/namespaces/team/ddpjobs"
PODS = "/api/v1/namespaces/team/pods"


@dataclass(frozen=True)
class Scripted(Cluster):
    """A cluster without a server."""

    answers: list[Any] = field(default_factory=list)
    """Documents, lists of lines, and errors, which are raised."""
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    """Method, path, body and query of each request."""

    def call(self, method: str, path: str, body: Document | None = None, query: Query | None = None) -> Document:
        return self._next(method, path, body, query)

    def ask_pod(self, name: str, port: int, path: str) -> Document:
        return self._next(name, port, path)

    def metadata(self, path: str, query: Query) -> list[Document]:
        return self._next("GET", path, None, query)

    def lines(self, path: str, query: Query, silence_seconds: float | None = None) -> Iterator[bytes]:
        yield from self._next("GET", path, silence_seconds, query)

    def _next(self, *request: Any) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_cluster(*answers: Any) -> Scripted:
    return Scripted(ApiClient(), "here", "team", list(answers))


def jobs_of(*answers: Any) -> tuple[Jobs, list[tuple[Any, ...]]]:
    """The jobs on a cluster with these answers, and what it will have been asked."""
    cluster = a_cluster(*answers)
    return Jobs(cluster), cluster.asked


def jobs_with(**calls: Any) -> Any:
    """Jobs of which only these methods can be called."""
    jobs = SimpleNamespace(**{"cluster": a_cluster(), **calls})
    jobs.apart = lambda: jobs
    return jobs


def a_job(name: str = "digits", uid: str = "uid-1") -> Document:
    made = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {"name": name, "namespace": "team", "uid": uid, **made}}


def a_list(*items: Document) -> Document:
    return {"items": list(items), "metadata": {"resourceVersion": "7"}}


def refused(code: int, reason: str = "", **details: str) -> Exception:
    """The API server's no."""
    return refusal(code, {"reason": reason, "message": "no", "details": details}, "the cluster of context here")


A_POD = JobPod(
    name="digits-0", namespace="team", uid="pod-1", node=0, incarnation=1, attempt=1, started=True, ended=False
)
