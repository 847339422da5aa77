"""Builds the manifests of a job's Service, NetworkPolicy, PodDisruptionBudget, Secret and pods."""

import copy

from ddpjob_operator.api import (
    Backend,
    Checkpoint,
    DDPJob,
    InheritedMetadata,
    PodSecurity,
)
from ddpjob_operator.api.contract import (
    MANAGER,
    SECRET_DIRECTORY,
    TERMINATION_LOG_PATH,
    TRAINER_CONTAINER,
    Label,
)
from ddpjob_operator.api.launchers import Size, launcher_of
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.owned import DISRUPTION_BUDGET, NETWORK_POLICY, SECRET, SERVICE
from ddpjob_operator.engine.settings import Settings
from ddpjob_operator.engine.snapshot import Manifest, Placement

from .affinity import avoid, keep_together, spread
from .env import master_env, trainer_env
from .init_containers import WAIT_CONTAINER, reserve_container, wait_container
from .kueue_workload import place
from .names import (
    headed,
    job_labels,
    kueue_workload_name,
    owned,
    pod_name,
    secret_name,
    service_name,
)
from .pod_groups import join
from .pod_security import restrict
from .topology import show_annotations, shown_annotations
from .volumes import volumes_of

CHECKPOINT_VOLUME = "ddpjob-checkpoint"
SECRET_VOLUME = "ddpjob-secret"  # noqa: S105  (a name)
SHM_VOLUME = "ddpjob-shm"
SHM_PATH = "/dev/shm"  # noqa: S108  NCCL and DataLoader workers look for shared memory here and nowhere else

SILENT_SECONDS = 30
"""How many seconds pods stay on an unreachable node before they are evicted. The time that Kubernetes needs to find
the node unreachable (50 s) comes on top."""

NO_MESH = {
    "labels": {
        "sidecar.istio.io/inject": "false",
        "istio.io/dataplane-mode": "none",  # Ambient mode has no sidecar: a proxy on the node takes the connections.
        "kuma.io/sidecar-injection": "disabled",
    },
    "annotations": {"linkerd.io/inject": "disabled"},
}
"""Labels and annotations that disable service meshes, whose proxies would slow down or break the connections of NCCL
and gloo between ranks, and keep running after the trainer has ended."""


def build_service(job: DDPJob) -> Manifest:
    """Builds the headless Service of the master.

    Its selector matches rank 0's pod by the job's uid, which is the same in every attempt, so the Service never has
    to be patched and has only one endpoint, however large the gang is. It publishes the addresses of pods that are
    not ready, because rank 0 becomes ready only after all ranks have met.
    """
    return {
        **headed(SERVICE, job, service_name(job)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {Label.JOB_UID: job.metadata.uid, Label.NODE: "0"},
            "ports": [{"name": "master", "port": job.status.network.master_port, "protocol": "TCP"}],
        },
    }


def build_network_policy(job: DDPJob, settings: Settings) -> Manifest:
    """Builds the NetworkPolicy, which opens all ports between the job's pods.

    It also opens their status ports to the operator and to monitoring. Outgoing connections are not restricted.
    """
    ours = {"matchLabels": {Label.JOB_UID: job.metadata.uid}}
    ingress: list[Manifest] = [{"from": [{"podSelector": ours}]}]
    readers = [*_operator(settings), *_monitoring(settings)]
    if readers:
        ingress.append({"from": readers, "ports": [{"port": job.status.network.status_port, "protocol": "TCP"}]})
    return {
        **headed(NETWORK_POLICY, job, name_beside(job.ref)),
        # This is a copy, because YAML would show the second use of the same object as an alias.
        "spec": {"podSelector": copy.deepcopy(ours), "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _operator(settings: Settings) -> list[Manifest]:
    if not settings.operator_namespace:
        return []
    itself = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": MANAGER}}}
    return [_pods_of(settings.operator_namespace) | itself]


def _monitoring(settings: Settings) -> list[Manifest]:
    return [_pods_of(settings.monitoring_namespace)] if settings.monitoring_namespace else []


def _pods_of(namespace: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def build_disruption_budget(job: DDPJob) -> Manifest:
    """Builds the PodDisruptionBudget that refuses every eviction of the job's running pods while it exists.

    Kubernetes gets the number of pods from the job's scale subresource, so the budget need not contain it.
    """
    return {
        **headed(DISRUPTION_BUDGET, job, name_beside(job.ref)),
        "spec": {
            "maxUnavailable": 0,
            "selector": {"matchLabels": {Label.JOB_UID: job.metadata.uid}},
            # There is no need to wait for a rank that fails its readiness probe, because it does nothing useful.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def build_secret(job: DDPJob) -> Manifest:
    """Builds the supervisors' Secret without its value, which the adapter generates when it creates the Secret."""
    return {**headed(SECRET, job, secret_name(job)), "immutable": True, "type": "Opaque"}


def build_pod(job: DDPJob, node: int, living: tuple[str, ...] = (), placement: Placement | None = None) -> Manifest:
    """Builds the present pod of a node: the template, and everything that makes the pod a member of the gang.

    `living` are the addresses of the gang's pods that already run. `placement` is what the queue's admission of the
    job adds to the pod.
    """
    incarnation = job.status.bookkeeping.incarnations.of(node)
    template = copy.deepcopy(job.spec.template)
    pod = template["spec"]
    pod["restartPolicy"] = "Never"
    if "volumes" in pod:
        pod["volumes"] = copy.deepcopy(volumes_of(job))
    # Hostname and subdomain form the pod's DNS name, by which ranks find rank 0.
    pod["hostname"] = pod_name(job, node, incarnation)
    pod["subdomain"] = service_name(job)
    if pod.get("hostNetwork"):  # With the default policy such a pod asks its node's name server, not the cluster's.
        pod.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    pod.setdefault("topologySpreadConstraints", spread(job))
    pod.setdefault("tolerations", []).extend(_tolerations(pod))
    # No node can be ruled out if the template names the Kubernetes node, or if Kueue chooses it by topology.
    chosen = "nodeName" in pod or (placement is not None and placement.topology)
    avoid(pod, job, strictly=not chosen)
    keep_together(pod, job)
    if not {"serviceAccountName", "serviceAccount"} & set(pod):  # If a template names an account, keep its token.
        pod.setdefault("automountServiceAccountToken", False)
    trainer = next(container for container in pod["containers"] if container["name"] == TRAINER_CONTAINER)
    _give_images(pod, trainer.get("image") or job.status.trainer_image)
    _equip(trainer, trainer_env(job, node, living), job.status.backend)
    _tell_launcher(trainer, job)
    _mount(trainer, job.spec.checkpoint)
    _add_volumes(pod, trainer, job)
    show_annotations(pod, trainer, shown_annotations(job, node))
    if job.status.pod_security not in {None, PodSecurity.NONE}:
        restrict(pod)
    # This comes after restrict(), because the wait container copies the trainer's security context but needs no home
    # directory.
    if node > 0 and job.spec.network.wait_for_master and job.spec.supervisor is None:
        _add_waiting(pod, trainer, job)
    labels = {**job_labels(job), Label.NODE: str(node), Label.INCARNATION: str(incarnation)}
    metadata = {
        **owned(job),
        "name": pod_name(job, node, incarnation),
        **_marks(template.get("metadata", {}), labels, job.status.inherited or InheritedMetadata()),
    }
    built = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}
    if job.status.pod_group:
        join(built, job)
    if placement is not None:
        place(built, kueue_workload_name(job), placement)
    return built


def build_reserve(job: DDPJob, node: int, placement: Placement | None = None) -> Manifest:
    """Builds a pod beyond the gang's present size, which is scheduled if there is room, pulls the image, and waits.

    Its trainer never starts. After it has been scheduled, the gang can grow, and starts again with a real pod
    instead. A reserve does not belong to the PodGroup, where it would count as one of the pods to be placed together.
    """
    pod = build_pod(job.with_status(changed(job.status, pod_group=None)), node, placement=placement)
    trainer = next(container for container in pod["spec"]["containers"] if container["name"] == TRAINER_CONTAINER)
    others = [init for init in pod["spec"].get("initContainers", ()) if init["name"] != WAIT_CONTAINER]
    # This container comes first, because the template's init containers should not run in a pod that never trains.
    pod["spec"]["initContainers"] = [reserve_container(trainer), *others]
    return pod


def _give_images(pod: Manifest, image: str | None) -> None:
    """Gives the trainer's image to containers that have none, so that no other image has to be pulled."""
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        if image and not container.get("image"):
            container["image"] = image


def _marks(own: Manifest, labels: Manifest, inherited: InheritedMetadata) -> Manifest:
    """Returns a pod's labels and annotations: ours, the template's, those inherited from the job, and NO_MESH.

    NO_MESH does not apply to a service mesh that the template mentions.
    """
    said = {**own.get("labels", {}), **own.get("annotations", {})}
    no = {kind: {mark: no for mark, no in marks.items() if mark not in said} for kind, marks in NO_MESH.items()}
    return {
        "labels": {**no["labels"], **inherited.labels, **own.get("labels", {}), **labels},
        "annotations": {**no["annotations"], **inherited.annotations, **own.get("annotations", {})},
    }


def _equip(container: Manifest, env: list[Manifest], backend: str | None) -> None:
    own = container.get("env", [])
    container["env"] = [*env, *_unless_said(own, backend), *own]
    container.setdefault("terminationMessagePath", TERMINATION_LOG_PATH)
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def _tell_launcher(container: Manifest, job: DDPJob) -> None:
    """Adds flags for a launcher that reads the node's place only from flags. The template's flags take precedence."""
    words = (*container.get("command", ()), *container.get("args", ()))
    launcher = launcher_of(words)
    if launcher is None or not launcher.told:
        return
    size = Size(job.status.nodes, job.status.procs_per_node)
    command, args = launcher.placed(words, size, on_gpus=job.status.backend is not Backend.GLOO)
    container["command"], container["args"] = [*command], [*args]


def _mount(container: Manifest, checkpoint: Checkpoint | None) -> None:
    mounts = container.setdefault("volumeMounts", [])
    mounts.append({"name": SECRET_VOLUME, "mountPath": SECRET_DIRECTORY, "readOnly": True})
    if all(mount["mountPath"] != SHM_PATH for mount in mounts):
        mounts.append({"name": SHM_VOLUME, "mountPath": SHM_PATH})
    if checkpoint is None or is_url(checkpoint.path):
        return
    if checkpoint.volume or not _is_on_a_volume(checkpoint.path, mounts):
        mounts.append({"name": CHECKPOINT_VOLUME, "mountPath": checkpoint.path})


def _is_on_a_volume(path: str, mounts: list[Manifest]) -> bool:
    """Whether a path is on a mounted volume. In the image itself, the pod's user may not be allowed to write."""
    return any(f"{path}/".startswith(f"{mount['mountPath'].rstrip('/')}/") for mount in mounts)


def _unless_said(own: list[Manifest], backend: str | None) -> list[Manifest]:
    """Returns variables with default values of ours, except those that the template sets."""
    values = {"PYTHONUNBUFFERED": "1"}  # Without it, Python's output reaches the log in blocks, minutes late.
    if backend is Backend.GLOO:
        # On machines without GPUs, Accelerate needs this, because otherwise it trains separately in each process.
        values["ACCELERATE_USE_CPU"] = "true"
    said = {variable["name"] for variable in own}
    return [{"name": name, "value": value} for name, value in values.items() if name not in said]


def _add_volumes(pod: Manifest, trainer: Manifest, job: DDPJob) -> None:
    volumes = pod.setdefault("volumes", [])
    # The file must be readable by all, because the trainer container's user is not always known: it may come from the
    # image. No other container mounts the Secret.
    volumes.append({"name": SECRET_VOLUME, "secret": {"secretName": secret_name(job), "defaultMode": 0o444}})
    if any(mount["name"] == SHM_VOLUME for mount in trainer["volumeMounts"]):
        volumes.append({"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", **_memory(pod, trainer)}})
    if any(mount["name"] == CHECKPOINT_VOLUME for mount in trainer["volumeMounts"]):
        assert job.spec.checkpoint is not None, "the name is reserved for it"
        volumes.append({"name": CHECKPOINT_VOLUME, **(job.spec.checkpoint.volume or {"emptyDir": {}})})


def _memory(pod: Manifest, trainer: Manifest) -> Manifest:
    """Returns the size limit of shared memory: the memory limit of trainer or pod, which includes shared memory."""
    limits = (one.get("resources", {}).get("limits", {}) for one in (trainer, pod))
    return next(({"sizeLimit": limit["memory"]} for limit in limits if "memory" in limit), {})


def _add_waiting(pod: Manifest, trainer: Manifest, job: DDPJob) -> None:
    """Adds the wait container after the template's own init containers, which need not wait for the master."""
    before = pod.setdefault("initContainers", [])
    # The template may have its own wait container.
    if all(container["name"] != WAIT_CONTAINER for container in before):
        before.append(wait_container(trainer, master_env(job)))


def _tolerations(pod: Manifest) -> list[Manifest]:
    """Returns tolerations with SILENT_SECONDS. With Kubernetes' default, a dead node blocks the gang for 300 s."""
    # A toleration without a key matches every taint. If several match, the shortest time counts.
    own = [toleration.get("key") for toleration in pod["tolerations"]]
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SILENT_SECONDS}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if key not in own and None not in own
    ]
