"""The measured controllers: how each is started, what its jobs look like, and how it reports success."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import ip_address
from socket import AF_INET
from types import MappingProxyType

import psutil
from ddpjob_operator.api.contract import API_VERSION, SUPERVISE

from tests.plant import Plant
from tests.plant.api import ADMINS
from tests.plant.webhooks import create_all
from tests.support.crd import install_crd
from tests.support.jobs import a_job, steered
from tests.support.operators import Operator, an_operator

from .client import BenchError, Manifest
from .others import JOBSET, TRAINING_OPERATOR, Foreign, installed, trainer

RUNS = steered(runs_for="1s")
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
MANAGER, SERVER = "kube-controller-manager", "kube-apiserver"
UNLIMITED = ("--kube-api-qps=10000", "--kube-api-burst=10000")
TRAINER, UNLIMITED_TRAINER = trainer(50, 100), trainer(10_000, 10_000)
"""Kubeflow's trainer with its default limits on requests, and without limits."""
TRAINER_API = "trainer.kubeflow.org/v1alpha1"


@dataclass
class Running:
    """A running contestant."""

    processes: tuple[psutil.Process, ...]
    """The contestant's processes. The one that does most of the work comes first."""
    operator: Operator | None = None
    """The operator, if the contestant is DDPJob."""


@dataclass(frozen=True)
class Contestant:
    """A controller to measure."""

    title: str
    api: str
    plural: str
    done: str
    """The condition that the controller sets when a job has succeeded."""
    users: frozenset[str]
    """The users whose requests count as the contestant's."""
    job: Callable[[str, int, dict[str, str]], Manifest]
    """Builds a job from its name, its number of pods and the annotations of its pods."""
    start: Callable[[Plant], AbstractContextManager[Running]]
    manager_flags: tuple[str, ...] = field(default=())
    """Flags for the controller manager."""
    at_most: dict[str, int] = field(default_factory=dict)
    """The largest number of repeats, for scenarios that take this contestant minutes."""

    def path(self, namespace: str) -> str:
        """The API path of the contestant's jobs in a namespace."""
        return f"/apis/{self.api}/namespaces/{namespace}/{self.plural}"

    def is_done(self, job: Manifest) -> bool:
        """Whether a job's status says that it has succeeded."""
        conditions = job.get("status", {}).get("conditions", ())
        return any(one["type"] == self.done and one["status"] == "True" for one in conditions)


@contextmanager
def our_operator(plant: Plant, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Operator]:
    """Runs a replica of our operator as its own user and, like the other contestants, without leader election."""
    kubeconfig = plant.kubeconfig_for("ddpjob", ADMINS)
    with an_operator(plant, "--no-leader-elect", kubeconfig=kubeconfig, environment=environment) as operator:
        yield operator


@contextmanager
def _ours(plant: Plant) -> Iterator[Running]:
    install_crd(plant)
    with our_operator(plant) as operator:
        yield Running((psutil.Process(operator.program.process.pid),), operator)


def _foreign(operator: Foreign, *flags: str, binary: str = "") -> Callable[[Plant], AbstractContextManager[Running]]:
    @contextmanager
    def start(plant: Plant) -> Iterator[Running]:
        with installed(plant, operator, *flags, binary=binary) as found:
            yield Running((psutil.Process(found.program.process.pid),))

    return start


def _trainer(operator: Foreign, *flags: str) -> Callable[[Plant], AbstractContextManager[Running]]:
    """Starts the trainer with JobSet, which the trainer's own manifests also install. `flags` are for JobSet."""

    @contextmanager
    def start(plant: Plant) -> Iterator[Running]:
        with (
            installed(plant, JOBSET, *flags) as jobset,
            installed(plant, operator, authority=jobset.authority) as found,
        ):
            create_all(plant, [_RUNTIME])
            yield Running(tuple(psutil.Process(one.program.process.pid) for one in (found, jobset)))

    return start


@contextmanager
def _manager_alone(plant: Plant) -> Iterator[Running]:
    yield Running((psutil.Process(plant.programs.running[MANAGER].process.pid),))


@cache
def _nobody_listens() -> dict[str, str]:
    """An annotation that gives pods this machine's address, where requests for a status are refused immediately.

    A pod without a supervisor also refuses such requests. A loopback address would not do: the API server rejects it
    in endpoints, and the controller would retry forever.
    """
    known = [one.address for some in psutil.net_if_addrs().values() for one in some if one.family == AF_INET]
    usable = [one for one in map(ip_address, known) if not (one.is_loopback or one.is_link_local)]
    if not usable:
        raise BenchError("this machine has no address that could be a pod's")
    return steered(address=str(usable[0]))


def _ddpjob(name: str, pods: int, annotations: dict[str, str]) -> Manifest:
    """A DDPJob as `ddpjob submit` creates it, with the supervisor as its command."""
    job = _plain_ddpjob(name, pods, annotations)
    [trainer] = job["spec"]["template"]["spec"]["containers"]
    trainer |= {"command": [SUPERVISE], "args": ["train.py"]}
    return job


def _plain_ddpjob(name: str, pods: int, annotations: dict[str, str]) -> Manifest:
    return a_job(name, pods, RUNS | _nobody_listens() | annotations)


def _pytorchjob(name: str, pods: int, annotations: dict[str, str]) -> Manifest:
    def replicas(count: int) -> Manifest:
        return {"replicas": count, "restartPolicy": "Never", "template": _template("pytorch", annotations)}

    specs = {"Master": replicas(1), "Worker": replicas(pods - 1)}
    return _manifest("kubeflow.org/v1", "PyTorchJob", name, {"pytorchReplicaSpecs": specs})


def _jobset(name: str, pods: int, annotations: dict[str, str]) -> Manifest:
    inner = {"spec": _job(name, pods, annotations)["spec"]}
    spec = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": inner}]}
    return _manifest("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec)


def _trainjob(name: str, pods: int, annotations: dict[str, str]) -> Manifest:
    if annotations:
        raise BenchError("what a TrainJob's pods do stands in its runtime")
    spec = {"runtimeRef": {"name": _RUNTIME["metadata"]["name"]}, "trainer": {"numNodes": pods}}
    return _manifest(TRAINER_API, "TrainJob", name, spec)


def _job(name: str, pods: int, annotations: dict[str, str]) -> Manifest:
    template = _template("trainer", annotations)
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": 0,
        "template": template,
    }
    return _manifest("batch/v1", "Job", name, spec)


def _template(container: str, annotations: dict[str, str]) -> Manifest:
    return {
        "metadata": {"annotations": RUNS | annotations},
        "spec": {"containers": [{"name": container, "image": "nothing"}]},
    }


def _manifest(api: str, kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _runtime() -> Manifest:
    """The trainer's own runtime for PyTorch, with annotations that tell kwok what the pods do."""
    inner = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": _template("node", {})},
    }
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": inner}]}},
    }
    labels = {"trainer.kubeflow.org/framework": "torch"}
    runtime = _manifest(TRAINER_API, "ClusterTrainingRuntime", "torch-distributed", spec)
    return runtime | {"metadata": runtime["metadata"] | {"labels": labels}}


_RUNTIME = _runtime()

DDPJOB = Contestant("DDPJob", API_VERSION, "ddpjobs", "Complete", frozenset({"ddpjob"}), _ddpjob, _ours)
_PLAIN = replace(DDPJOB, title="DDPJob, plain image", job=_plain_ddpjob)
_PYTORCHJOB = Contestant(
    "PyTorchJob",
    "kubeflow.org/v1",
    "pytorchjobs",
    "Succeeded",
    frozenset({TRAINING_OPERATOR.user}),
    _pytorchjob,
    _foreign(TRAINING_OPERATOR),
    at_most={"burst500": 1},
)
_JOBSET = Contestant(
    "JobSet",
    "jobset.x-k8s.io/v1alpha2",
    "jobsets",
    "Completed",
    frozenset({JOBSET.user, JOB_CONTROLLER}),
    _jobset,
    _foreign(JOBSET),
)
_TRAINJOB = Contestant(
    "TrainJob",
    TRAINER_API,
    "trainjobs",
    "Complete",
    frozenset({TRAINER.user, JOBSET.user, JOB_CONTROLLER}),
    _trainjob,
    _trainer(TRAINER),
    at_most={"burst500": 1},
)
_JOB = Contestant(
    "Indexed Job",
    "batch/v1",
    "jobs",
    "Complete",
    frozenset({JOB_CONTROLLER}),
    _job,
    _manager_alone,
    ("--kube-api-qps=20", "--kube-api-burst=30"),
    at_most={"burst500": 0},
)


def _lifted(contestant: Contestant, start: Callable[[Plant], AbstractContextManager[Running]]) -> Contestant:
    title = f"{contestant.title}, limits lifted"
    return replace(contestant, title=title, start=start, manager_flags=UNLIMITED, at_most={})


CONTESTANTS = {
    "ddpjob": DDPJOB,
    "ddpjob-plain": _PLAIN,
    "pytorchjob": _PYTORCHJOB,
    "pytorchjob-lifted": _lifted(
        _PYTORCHJOB, _foreign(TRAINING_OPERATOR, *UNLIMITED, binary="training-operator-unlimited")
    ),
    "jobset": _JOBSET,
    "jobset-lifted": _lifted(_JOBSET, _foreign(JOBSET, *UNLIMITED)),
    "trainjob": _TRAINJOB,
    "trainjob-lifted": _lifted(_TRAINJOB, _trainer(UNLIMITED_TRAINER, *UNLIMITED)),
    "job": _JOB,
    "job-lifted": _lifted(_JOB, _manager_alone),
}
