"""Jobs for the plant's nodes, and what became of them."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ddpjob_operator.api.contract import API_VERSION, KIND, Label

from tests.plant import Plant, audit
from tests.plant.fake import ALIVE

JOBS = f"/apis/{API_VERSION}/namespaces"


def steered(**how: str) -> dict[str, str]:
    """Annotations by which the plant steers a pod: `runs_for="2h"`."""
    return {f"plant.ddpjob.dev/{key.replace('_', '-')}": value for key, value in how.items()}


FOR_LONG = steered(runs_for="2h")
STUBBORN = FOR_LONG | steered(ignores_sigterm="true")
WHOLE_NODES = {"limits": {"nvidia.com/gpu": 8}}
"""Resources of a trainer beside which no other finds room on a node."""


def a_job(
    name: str = "digits", nodes: int = 2, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A job whose pods run for a second, unless annotations of the plant say something else."""
    container = {"name": "trainer", "image": "nothing"}
    template = {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"nodes": nodes, "template": template, **spec},
    }


def on_whole_nodes(job: dict[str, Any]) -> dict[str, Any]:
    """The job, with a machine to itself for each pod."""
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = WHOLE_NODES
    return job


@dataclass
class Team:
    """A namespace, and those who work in it."""

    plant: Plant
    namespace: str = field(default="")

    def __post_init__(self) -> None:
        self.namespace = self.namespace or self.plant.new_namespace()

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002  As subprocess.run calls it.
        """kubectl in this namespace."""
        return self.plant.kubectl("--namespace", self.namespace, *arguments, input=input)

    def apply(self, *documents: dict[str, Any]) -> None:
        """`kubectl apply` of these documents."""
        self.kubectl("apply", "-f", "-", input="\n---\n".join(json.dumps(document) for document in documents))

    def change(self, name: str = "digits", **spec: Any) -> None:
        """Changes fields of the job's spec; None removes one."""
        self.kubectl("patch", "ddpjob", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def tell(self, *pods: str, **how: str) -> None:
        """Steers pods, or with `--all` all pods that there are."""
        self.kubectl(
            "annotate", "pod", *pods, "--overwrite", *(f"{key}={value}" for key, value in steered(**how).items())
        )

    def finish(self) -> None:
        """The pods that run are done now; those that are about to go are left alone."""
        pods = self.plant.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        staying = (pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
        self.tell(*(metadata["name"] for metadata in staying), runs_for="0s")

    def job(self, name: str = "digits") -> dict[str, Any] | None:
        """The job as it is now."""
        job: dict[str, Any] | None = self.plant.get(f"{JOBS}/{self.namespace}/ddpjobs/{name}")
        return job

    def status(self, name: str = "digits") -> dict[str, Any]:
        """The job's status."""
        return (self.job(name) or {}).get("status", {})

    def pods(self, name: str = "digits") -> list[dict[str, Any]]:
        """The job's pods."""
        selector = f"{Label.JOB_NAME}%3D{name}"
        items: list[dict[str, Any]] = self.plant.get(
            f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}"
        )["items"]
        return items

    def pod(self, rank: int, name: str = "digits") -> str:
        """The name of a rank's present pod."""
        labels = {pod["metadata"]["name"]: pod["metadata"]["labels"] for pod in self.pods(name)}
        own = [pod for pod, label in labels.items() if label[Label.RANK] == str(rank)]
        return max(own, key=lambda pod: int(labels[pod][Label.INCARNATION]))

    def fails(self, rank: int, **how: str) -> str:
        """Lets a rank's present pod fail now, as told; returns its name."""
        pod = self.pod(rank)
        self.tell(pod, runs_for="0s", **({"exit_code": "1"} | how))
        return pod

    def limit_pods(self, most: int) -> None:
        """Has a quota that admits no more pods than that, and waits until it counts those that there are."""
        spec = {"hard": {"pods": str(most)}}
        self.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": spec})
        counted = ("get", "quota", "pods", "-o", "jsonpath={.status.hard.pods}")
        self.plant.wait("the quota to be counted", lambda: self.kubectl(*counted) == str(most))

    def empty(self) -> bool:
        """Whether nothing is there of any job."""
        return not self.kubectl("get", "ddpjobs,pods,services,networkpolicies", "-o", "name")

    def events(self, name: str = "digits") -> Counter[str]:
        """The job's events: reasons and how often."""
        items = self.plant.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        counts: Counter[str] = Counter()
        for event in items:
            if event["involvedObject"]["name"] == name and event["involvedObject"]["kind"] == KIND:
                counts[event["reason"]] += event["count"]
        return counts

    def wait(self, state: str, name: str = "digits", seconds: int = 60) -> dict[str, Any]:
        """Until the job is in this state; returns its status."""
        self.until(f"{{.status.state}}={state}", name, seconds)
        return self.status(name)

    def until(self, path: str, name: str = "digits", seconds: int = 60) -> None:
        """Until a JSONPath of the job has a value: `{.status.ready}=2/2`."""
        self.kubectl("wait", f"--for=jsonpath={path}", f"ddpjob/{name}", f"--timeout={seconds}s")


def created(team: Team, name: str = "digits") -> bool:
    """Whether the job says that all of its pods exist."""
    return any(
        one["type"] == "Created" and one["status"] == "True" for one in team.status(name).get("conditions", ())
    )


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition that was set."""
    return next(one for one in status["conditions"] if one["type"] == kind)


def meanwhile(team: Team) -> None:
    """When it returns, the operator has looked at all that was changed before: another job has come and gone."""
    team.apply(a_job("meanwhile", nodes=1))
    team.wait("Succeeded", "meanwhile")
    team.kubectl("delete", "ddpjob", "meanwhile", "--timeout=60s")


@contextmanager
def silent(plant: Plant, node: str) -> Iterator[None]:
    """A node of which nobody hears anything meanwhile."""
    plant.kubectl("label", "node", node, f"{ALIVE}-")
    try:
        yield
    finally:
        plant.kubectl("label", "node", node, f"{ALIVE}=true")


def writes(plant: Plant, namespace: str) -> Counter[str]:
    """The operator's writes in a namespace by verb and resource, from the audit log."""
    return Counter(
        f"{event['verb']} {audit.kind(event)}"
        for event in audit.writes(plant, namespace=namespace)
        if event.get("userAgent", "").startswith("ddpjob-operator/")
    )
