"""What the operator's administrator has set for all jobs, as far as decisions depend on it."""

from dataclasses import dataclass

from ddpjob_operator.api import NetworkPolicy, PodSecurity


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own settings, the same for all its jobs."""

    pod_security: PodSecurity = PodSecurity.RESTRICTED
    """Used for jobs that start from now on. A job that has started keeps the value with which it started."""
    network_policy: NetworkPolicy = NetworkPolicy.ENABLED
    """Used for jobs that do not set it, when they start for the first time."""
    gpu_resources: tuple[str, ...] = ()
    """Resources that count as GPUs besides those that always do; one that ends in a dash is a prefix. For jobs that
    start or resume from now on."""
    monitoring_namespace: str = ""
    """The namespace whose pods, beside the operator's, may read status ports; empty: none."""
    operator_namespace: str = ""
    """Where the operator's own pods are; empty if it does not run in a pod."""
    trainer_image: str = ""
    """The image for containers that name none, of jobs that start for the first time; empty: such jobs wait."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of all objects of jobs that start from now on."""
    inherited_keys: tuple[str, ...] = ()
    """Keys of labels and annotations of a job, and of annotations of its template, that all its objects get, for jobs
    that start from now on."""
    force_delete_lost_pods: bool = False
    """Whether pods on Kubernetes nodes that do not answer are removed from the API. Their processes may still run
    there, which endangers whatever must not be used twice, such as a volume that only one node may mount."""
    drain_protection_seconds: int = 3600
    """For how long after a job has saved, or has begun to run, evictions of its pods may be refused; 0: never."""
    avoid_broken_nodes_seconds: int = 60
    """For how long pods wait for another Kubernetes node before they may be placed on one that is known to be broken;
    0: they do not wait, but only prefer others."""
    host: str = "Kubernetes node"
    """What messages call the machine that a node's pod runs on."""
    noun: str = "pod"
    """What messages call a node's pod; a job that runs without a cluster has no pods."""


DEFAULTS = Settings()
