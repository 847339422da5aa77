"""What the operator's administrator decides for all jobs, as far as decisions depend on it."""

from dataclasses import dataclass

from ddpjob_operator.api import PodSecurity


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own settings, the same for every job of it."""

    pod_security: PodSecurity = PodSecurity.RESTRICTED
    """For jobs that start from now on; a job that has started keeps what it started with."""
    operator_namespace: str = ""
    """Where the operator's own pods are; empty where it is no pod."""
    force_delete_lost_pods: bool = False
    """Whether pods on nodes that do not answer are removed from the API. Their processes may still run there, so
    what has to be there only once (a volume that one node may mount) is in danger."""


DEFAULTS = Settings()
