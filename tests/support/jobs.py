"""Jobs for the plant's nodes, and functions with which tests change and observe them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from urllib.parse import quote

from ddpjob_operator.api.contract import API_VERSION, KIND, Label
from ddpjob_operator.engine import SCHEDULING_API

from tests.plant import Plant, audit
from tests.plant.fake import ALIVE
from tests.support.api_client import collection
from tests.support.operators import Operator, an_operator
from tests.support.waiting import wait_for

GROUPS = {
    "ddpjobs": f"/apis/{API_VERSION}",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "podgroups": f"/apis/{SCHEDULING_API}",
    "pods": "/api/v1",
    "resourcequotas": "/api/v1",
    "secrets": "/api/v1",
    "services": "/api/v1",
    "workloads": f"/apis/{SCHEDULING_API}",
}
"""The API path of each resource."""
OWN = ("ddpjobs", "pods", "services", "networkpolicies", "secrets")
"""The resources of a job and of the objects that the operator creates for it."""


def steered(**how: Any) -> dict[str, Any]:
    """Annotations that control how the plant plays a pod, such as `runs_for="2h"`."""
    return {f"plant.ddpjob.dev/{key.replace('_', '-')}": value for key, value in how.items()}


FOR_LONG = steered(runs_for="2h")
SAVING = FOR_LONG | steered(saves="true")
STUBBORN = FOR_LONG | steered(ignores_sigterm="true")
WHOLE_NODES = {"limits": {"nvidia.com/gpu": 8}}
"""The resources of a trainer that fills a node, so that no other trainer fits on the same node."""


def a_job(
    name: str = "digits", nodes: int = 2, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A job whose pods run for a second, unless annotations for the plant say otherwise."""
    container = {"name": "trainer", "image": "nothing"}
    template = {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"nodes": nodes, "template": template, **spec},
    }


def on_whole_nodes(job: dict[str, Any]) -> dict[str, Any]:
    """Changes the job so that each of its pods needs a whole machine."""
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = WHOLE_NODES
    return job


@dataclass
class Team:
    """A namespace, and the actions of its users."""

    plant: Plant
    namespace: str = field(default="")

    def __post_init__(self) -> None:
        self.namespace = self.namespace or self.plant.new_namespace()

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002  As subprocess.run calls it.
        """Runs kubectl in this namespace, and returns its output."""
        return self.plant.kubectl("--namespace", self.namespace, *arguments, input=input)

    @contextmanager
    def operator(self, *flags: str, **how: Any) -> Iterator[Operator]:
        """Runs an operator for this namespace only. All other arguments are those of `an_operator`."""
        alone = (f"--namespace={self.namespace}", "--no-leader-elect")
        with an_operator(self.plant, *alone, *flags, forked=True, **how) as operator:
            yield operator

    def path(self, resource: str, name: str = "") -> str:
        """The API path of an object in this namespace or, as in `path("pods")`, of all objects of a resource."""
        return f"{GROUPS[resource]}/namespaces/{self.namespace}/{resource}{'/' * bool(name)}{name}"

    def apply(self, *documents: dict[str, Any]) -> None:
        """Creates or changes objects, so that they match these documents."""
        for document in documents:
            self.plant.api.apply(document, self.namespace)

    def create(self, document: dict[str, Any]) -> dict[str, Any]:
        """Creates an object that must not exist yet, and returns it."""
        return self.plant.api.create(collection(document, self.namespace), document)

    def change(self, name: str = "digits", **spec: Any) -> None:
        """Changes fields of the job's spec. None removes a field."""
        self.plant.api.patch(self.path("ddpjobs", name), {"spec": spec})

    def say(self, name: str = "digits", **status: Any) -> None:
        """Writes the job's status, as an operator does."""
        self.plant.api.patch(f"{self.path('ddpjobs', name)}/status", {"status": status})

    def scale(self, nodes: int, name: str = "digits") -> None:
        """Scales a job as an autoscaler does."""
        self.plant.api.patch(f"{self.path('ddpjobs', name)}/scale", {"spec": {"replicas": nodes}})

    def delete(
        self, resource: str, name: str, *, wait: bool = False, cascade: str = "Background", grace: int | None = None
    ) -> None:
        """Deletes an object, with the API's options. With `wait`, returns only when the object is gone."""
        path = self.path(resource, name)
        self.plant.api.delete(path, cascade=cascade, grace=grace)
        if wait:
            wait_for(f"{resource}/{name} to go", lambda: self.plant.get(path) is None)

    def delete_all(self, resource: str) -> None:
        """Deletes all objects of a resource, and returns when they are gone."""
        self.plant.api.delete(self.path(resource))
        wait_for(f"all {resource} to go", lambda: not self.all(resource))

    def tell(self, *pods: str, **how: str | None) -> None:
        """Controls pods with annotations. None removes an annotation."""
        for pod in pods:
            self.plant.api.patch(self.path("pods", pod), {"metadata": {"annotations": steered(**how)}})

    def finish(self) -> None:
        """Makes all running pods finish now, except for pods that are being deleted."""
        pods = (pod["metadata"] for pod in self.all("pods"))
        self.tell(*(one["name"] for one in pods if "deletionTimestamp" not in one), runs_for="0s")

    def all(self, resource: str, label: str = "") -> list[dict[str, Any]]:
        """All objects of a resource or, with a label `key=value`, all objects that have this label."""
        query = f"?labelSelector={quote(label)}" if label else ""
        items: list[dict[str, Any]] = self.plant.get(f"{self.path(resource)}{query}")["items"]
        return items

    def job(self, name: str = "digits") -> dict[str, Any] | None:
        """The job as it is now; None if it does not exist."""
        job: dict[str, Any] | None = self.plant.get(self.path("ddpjobs", name))
        return job

    def status(self, name: str = "digits") -> dict[str, Any]:
        return (self.job(name) or {}).get("status", {})

    def pods(self, name: str = "digits") -> list[dict[str, Any]]:
        return self.all("pods", f"{Label.JOB_NAME}={name}")

    def pod(self, rank: int, name: str = "digits") -> str:
        """The name of a rank's present pod."""
        labels = {pod["metadata"]["name"]: pod["metadata"]["labels"] for pod in self.pods(name)}
        own = [pod for pod, label in labels.items() if label[Label.NODE] == str(rank)]
        return max(own, key=lambda pod: int(labels[pod][Label.INCARNATION]))

    def fails(self, rank: int, **how: str) -> str:
        """Makes a rank's present pod fail now, in the way that `how` describes. Returns the pod's name."""
        pod = self.pod(rank)
        self.tell(pod, runs_for="0s", **({"exit_code": "1"} | how))
        return pod

    def limit(self, resource: str, most: int | str) -> None:
        """Creates a quota of at most `most` of a resource.

        Waits until the quota counts the existing objects.
        """
        name, spec = resource.replace("/", "."), {"hard": {resource: str(most)}}
        self.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
        quota = self.path("resourcequotas", name)
        counted = lambda: self.plant.get(quota).get("status", {}).get("hard", {}).get(resource)  # noqa: E731
        self.plant.wait("the quota to be counted", lambda: counted() == str(most))

    def empty(self) -> bool:
        """Whether neither a job nor any object of a job exists."""
        return not any(map(self.all, OWN))

    def events(self, name: str = "digits") -> Counter[str]:
        """How many events of each reason the job has."""
        counts: Counter[str] = Counter()
        for event in self.all("events"):
            if event["involvedObject"]["name"] == name and event["involvedObject"]["kind"] == KIND:
                counts[event["reason"]] += event["count"]
        return counts

    def wait(self, state: str, name: str = "digits", seconds: int = 60) -> dict[str, Any]:
        """Waits until the job is in this state. Returns the job's status."""
        self.until(f"{{.status.state}}={state}", name, seconds)
        return self.status(name)

    def until(self, path: str, name: str = "digits", seconds: int = 60) -> None:
        """Waits until a JSONPath of the job has a value, as in `{.status.display.ready}=2/2`."""
        way, _, value = path.partition("}=")
        keys = way.removeprefix("{.").split(".")
        self._until(path, lambda job: str(reduce(_at, keys, job)) == value, name, seconds)

    def condition(self, kind: str, status: str = "True", name: str = "digits", seconds: int = 60) -> dict[str, Any]:
        """Waits until the job's condition has this status. Returns the condition."""
        self._until(
            f"{kind}={status}",
            lambda job: any(
                (one["type"], one["status"]) == (kind, status) for one in job.get("status", {}).get("conditions", ())
            ),
            name,
            seconds,
        )
        return condition(self.status(name), kind)

    def _until(self, what: str, holds: Callable[[dict[str, Any]], bool], name: str, seconds: int) -> None:
        def comes() -> bool:
            return any(map(holds, self.plant.api.watch(self.path("ddpjobs"), name, seconds=5)))

        wait_for(f"{what} of {name}", comes, seconds, story=lambda: json.dumps(self.status(name), indent=1))


def _at(place: Any, key: str) -> Any:
    """The value at a key; None if the key does not exist."""
    return place.get(key) if isinstance(place, dict) else None


def created(team: Team, name: str = "digits") -> bool:
    """Whether the job's status says that all of its pods exist."""
    return any(
        one["type"] == "Created" and one["status"] == "True" for one in team.status(name).get("conditions", ())
    )


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """The condition of a type, which must be set."""
    return next(one for one in status["conditions"] if one["type"] == kind)


def meanwhile(team: Team) -> None:
    """Waits until the operator has handled all earlier changes, by creating and deleting another job."""
    team.apply(a_job("meanwhile", nodes=1))
    team.wait("Succeeded", "meanwhile")
    team.delete("ddpjobs", "meanwhile", wait=True)


@contextmanager
def kept(team: Team) -> Iterator[None]:
    """Keeps the present pods in the API while the block runs, by a finalizer, even if they end or are deleted."""
    pods = [team.path("pods", pod["metadata"]["name"]) for pod in team.pods()]
    for pod in pods:
        team.plant.api.patch(pod, {"metadata": {"finalizers": ["example.com/keeps"]}})
    try:
        yield
    finally:
        for pod in pods:
            team.plant.api.patch(pod, {"metadata": {"finalizers": None}})


def exit_codes(team: Team) -> dict[str, int]:
    """The exit codes of the pods that have ended, by rank."""
    codes = {}
    for pod in team.pods():
        ended = pod["status"]["containerStatuses"][0]["state"].get("terminated")
        if ended:
            codes[pod["metadata"]["labels"][Label.NODE]] = ended["exitCode"]
    return codes


@contextmanager
def silent(plant: Plant, node: str) -> Iterator[None]:
    """Makes a node fall silent while the block runs."""
    heard(plant, node, None)
    try:
        yield
    finally:
        heard(plant, node, "true")


def heard(plant: Plant, node: str, alive: str | None) -> None:
    """Sets the label that makes kwok play a node. None removes the label."""
    plant.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {ALIVE: alive}}})


def writes(plant: Plant, namespace: str) -> Counter[str]:
    """The operator's writes in a namespace, by verb and resource, from the audit log."""
    return Counter(
        f"{event['verb']} {audit.kind(event)}"
        for event in audit.writes(plant, namespace=namespace)
        if event.get("userAgent", "").startswith("ddpjob-operator/")
    )
