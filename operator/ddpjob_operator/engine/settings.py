"""What the operator's administrator decides for all jobs, as far as decisions depend on it."""

from dataclasses import dataclass

from ddpjob_operator.api import NetworkPolicy, PodSecurity


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own settings, the same for every job of it."""

    pod_security: PodSecurity = PodSecurity.RESTRICTED
    """For jobs that start from now on; a job that has started keeps what it started with."""
    network_policy: NetworkPolicy = NetworkPolicy.ENABLED
    """For jobs that say nothing and start for the first time."""
    monitoring_namespace: str = ""
    """Whose pods may read status ports, as the operator's may; empty: nobody else."""
    operator_namespace: str = ""
    """Where the operator's own pods are; empty where it is no pod."""
    trainer_image: str = ""
    """For containers that name none, of jobs that start for the first time; empty: such jobs wait."""
    force_delete_lost_pods: bool = False
    """Whether pods on nodes that do not answer are removed from the API. Their processes may still run there, so
    what has to be there only once (a volume that one node may mount) is in danger."""
    noun: str = "pod"
    """What people are told of a node's pod as: on this machine there are none."""


DEFAULTS = Settings()
