"""The administrator's settings for all jobs, as far as decisions depend on them."""

from dataclasses import dataclass

from ddpjob_operator.api import NetworkPolicy, PodSecurity

from .claims import NOBODY, Holder


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own settings, which are the same for all jobs."""

    pod_security: PodSecurity = PodSecurity.RESTRICTED
    """Used for jobs that start from now on. A job that has started keeps its value."""
    network_policy: NetworkPolicy = NetworkPolicy.ENABLED
    """Used for jobs that do not set it, when they start for the first time."""
    gpu_resources: tuple[str, ...] = ()
    """Resources that count as GPUs besides the usual ones. A name that ends in a dash is a prefix. Used for jobs that
    start or resume from now on."""
    monitoring_namespace: str = ""
    """The namespace whose pods may read status ports, as the operator may; if empty, only the operator may."""
    operator_namespace: str = ""
    """The namespace of the operator's own pods; empty if the operator does not run in a pod."""
    trainer_image: str = ""
    """The image for a trainer container that has none when its job first starts. If this is empty, the job waits."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels for all objects of jobs that start from now on."""
    inherited_keys: tuple[str, ...] = ()
    """The keys of the labels and annotations that all objects of a job inherit from the job, and of the annotations
    that they inherit from its template. Used for jobs that start from now on."""
    force_delete_lost_pods: bool = False
    """Whether to delete pods from the API if their Kubernetes nodes do not answer. Their processes may still run
    there, which is dangerous for resources that must not be used twice, such as a ReadWriteOnce volume."""
    drain_protection_seconds: int = 3600
    """How long evictions of pods may be refused after the job last saved or began to run, whichever is later; 0:
    evictions are never refused."""
    avoid_broken_nodes_seconds: int = 60
    """How long pods wait for other Kubernetes nodes before they may be placed on a node that is known to be broken.
    0: pods do not wait, but only prefer other nodes."""
    holder: Holder = NOBODY
    """This operator, as the jobs that it runs name it; without a name, jobs name nobody."""
    host: str = "Kubernetes node"
    """The word that messages use for the machine that a node's pod runs on."""
    noun: str = "pod"
    """The word that messages use for a node's pod. A job that runs without a cluster has processes instead."""
    no_restarts: str = ""
    """If no job is ever restarted: the reason, which messages name instead of the limits in the spec; else empty."""


DEFAULTS = Settings()
