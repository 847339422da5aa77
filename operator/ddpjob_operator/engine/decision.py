"""What to do and what to say: the engine's answer to a snapshot.

An action that makes something names what, and whoever carries it out builds it when it is sent: the manifests of a
large job, all at once, are hundreds of MiB and seconds of work.
"""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJob, DDPJobStatus

from .manifests.children import build_network_policy, build_pod, build_reserve, build_secret, build_service
from .manifests.names import present_pod_name
from .settings import Settings
from .snapshot import NOTHING, Manifest, Needs


@dataclass(frozen=True, slots=True)
class CreateService:
    """Make the headless Service by which rank 0 is found. That it exists already is success."""

    job: DDPJob
    """With the status that authorises it, as in all of these."""

    def build(self) -> Manifest:
        """The Service, as a cluster is asked for it."""
        return build_service(self.job)


@dataclass(frozen=True, slots=True)
class CreateNetworkPolicy:
    """Make the NetworkPolicy that keeps others out. That it exists already is success."""

    job: DDPJob
    settings: Settings

    def build(self) -> Manifest:
        """The NetworkPolicy, as a cluster is asked for it."""
        return build_network_policy(self.job, self.settings)


@dataclass(frozen=True, slots=True)
class DeleteNetworkPolicy:
    """Remove the job's NetworkPolicy. That it is gone already is success."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """Make the Secret by which the job's supervisors know each other, with a value that nobody knows.

    That it exists already is success.
    """

    job: DDPJob

    def build(self) -> Manifest:
        """The Secret, without its value."""
        return build_secret(self.job)


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make the present pod of a rank. That it exists already is success."""

    rank: int
    job: DDPJob
    living: tuple[str, ...] = ()
    """Addresses of pods of the gang that live already."""
    reserve: bool = False
    """Whether it only looks out for a place where the gang could grow to."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return present_pod_name(self.job, self.rank)

    def build(self) -> Manifest:
        """The pod, as a cluster is asked for it."""
        return build_reserve(self.job, self.rank) if self.reserve else build_pod(self.job, self.rank, self.living)


@dataclass(frozen=True, slots=True)
class DeletePod:
    """End a pod and remove it, if it is still the same one. That it is gone already is success."""

    name: str
    uid: str
    grace_period_seconds: int | None
    """Seconds between SIGTERM and SIGKILL; None: the pod's own."""


@dataclass(frozen=True, slots=True)
class StopPod:
    """End a pod, within its own grace period, and keep it with its logs. That it is gone already is success."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class MarkFinished:
    """Have the job's metadata say that it has finished: a backup may drop its status."""

    state: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, with all that belongs to it, if it is still as it was seen."""


Action = (
    CreateService
    | CreateNetworkPolicy
    | DeleteNetworkPolicy
    | CreateSecret
    | CreatePod
    | DeletePod
    | StopPod
    | MarkFinished
    | DeleteJob
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person wants to know."""

    warning: bool
    reason: str
    """The condition that came true."""
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A round's outcome, carried out in this order: status, actions, events.

    A status thus says only what was seen already or what authorises the actions that follow; and an action is never
    carried out unless its status was written.
    """

    status: DDPJobStatus | None = None
    """The whole new status; None when nothing changed."""
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: datetime | None = None
    """When to look again even if nothing happens."""
    can_wait: bool = False
    """Whether the status says nothing that matters at once: it may be written a moment later, with what comes."""
    needs: Needs = NOTHING
    """What has to be found out first; then there is nothing else in the decision."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do or say."""
        return self.status is None and not self.actions and not self.events
