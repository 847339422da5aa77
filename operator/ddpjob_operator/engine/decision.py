"""What to do and what to say: the engine's answer to a snapshot."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJobStatus

from .snapshot import Manifest


@dataclass(frozen=True, slots=True)
class CreateService:
    """Make the headless Service by which rank 0 is found. That it exists already is success."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CreateNetworkPolicy:
    """Make the NetworkPolicy that keeps others out. That it exists already is success."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteNetworkPolicy:
    """Remove the job's NetworkPolicy. That it is gone already is success."""

    name: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a pod. That it exists already is success."""

    rank: int
    manifest: Manifest


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
class DeleteJob:
    """Delete the job itself, with all that belongs to it, if it is still as it was seen."""


Action = CreateService | CreateNetworkPolicy | DeleteNetworkPolicy | CreatePod | DeletePod | StopPod | DeleteJob


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

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do or say."""
        return self.status is None and not self.actions and not self.events
