"""What is there: one moment of a job and all that belongs to it, as data. Adapters fill it, the engine reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from ddpjob_operator.api import DDPJob

from .reports import Heard
from .settings import DEFAULTS, Settings

CLOCKS_DIFFER = timedelta(seconds=5)
"""An end is told by a node's clock, a deletion by the API server's, both in whole seconds."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a trainer container ended."""

    code: int | None
    """Its exit code, 128+n for signal n; None where it ended without one."""
    reason: str = ""
    """The container runtime's word for it: `OOMKilled`, `Error`, `StartError`."""
    message: str = ""
    """The termination message: a failure report as JSON or, without one, the end of the log."""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a trainer does not run yet."""

    reason: str
    """The word of the scheduler or the kubelet for it: `Unschedulable`, `ImagePullBackOff`."""
    message: str = ""
    busy: bool = False
    """Whether something of the pod itself runs meanwhile: what it fetches may take its time."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.reason, self.message) if part)


@dataclass(frozen=True, slots=True)
class Disruption:
    """That the cluster takes a pod away (its condition DisruptionTarget), and why."""

    reason: str
    """`PreemptionByScheduler`, `EvictionByEvictionAPI`, …"""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job, as much of it as decisions need."""

    name: str
    uid: str
    rank: int
    """The node's rank."""
    incarnation: int
    running: bool = False
    """Whether the trainer container runs."""
    exit: Exit | None = None
    """Set once the trainer container has ended, for good: pods are never restarted in place."""
    deleting: bool = False
    told_at: datetime | None = None
    """When a pod that is being deleted was told to end, where somebody says so."""
    told_by: datetime | None = None
    """And where nobody does, by when it had been."""
    node: str | None = None
    address: str | None = None
    """Its IP, once it has one."""
    waiting: Waiting | None = None
    """Why the trainer does not run yet, where somebody says so."""
    created_at: datetime | None = None
    scheduled_at: datetime | None = None
    """When it was given its node."""
    started_at: datetime | None = None
    """When its trainer began to run."""
    reason: str = ""
    """The kubelet's word for why the pod as a whole has failed: `Evicted`, `OutOfcpu`; empty where it has not."""
    message: str = ""
    """And its sentence."""
    disruption: Disruption | None = None
    sandbox_lost: bool = False
    """Whether its sandbox, which its containers need, was gone while the trainer still ran."""
    stopped: bool = False
    """Whether it was told to end and to stay."""
    gone_by: datetime | None = None
    """When a pod that is being deleted has to be gone, its grace period included; None where nobody says."""
    forced: bool = False
    """Whether it was deleted without any grace, and is there only because somebody's finalizer keeps it."""
    lingering: bool = False
    """Whether other containers of the pod still run although the trainer has ended."""

    @property
    def active(self) -> bool:
        """Whether the trainer runs or may still come to run."""
        return self.exit is None

    @property
    def stopping(self) -> bool:
        """Whether it was told to end and to stay, and something of it still runs."""
        return self.stopped and (self.active or self.lingering)

    @property
    def succeeded(self) -> bool:
        """Whether the trainer ended well, and by itself: told to end, many a program saves and exits with 0."""
        ended = self.exit
        taken = self.disruption is not None or self.sandbox_lost
        by_itself = not taken and ended is not None and not self.was_told_before(ended.finished_at)
        return ended is not None and ended.code == 0 and by_itself

    def was_told_before(self, moment: datetime | None) -> bool:
        """Whether it was told to end before a moment, as far as anybody knows.

        In doubt it was: a job that seems to have succeeded never goes on.
        """
        if moment is None or self.told_at is None:
            return self.deleting
        return self.told_at < moment + CLOCKS_DIFFER

    @property
    def failed(self) -> bool:
        """Whether the trainer ended badly."""
        return self.exit is not None and not self.succeeded


class Service(Enum):
    """The Service under the job's name."""

    MISSING = "missing"
    OURS = "ours"
    FORMER = "former"
    """Left over from a deleted job of the same name; it goes by itself."""
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the cluster said when something of the job could not be made: a quota, a policy, a name that is taken."""

    reason: str
    """One CamelCase word for programs."""
    message: str
    """The cluster's own words."""
    retry_at: datetime
    """When to try again: nothing that we watch changes when the cause goes away."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a supervisor serves its status, if there is one."""

    pod: str
    """The pod's name: the answer is about the gang that this one is of."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What is to be found out about a job before anything is decided, or was."""

    pods: bool = False
    """That its pods are listed anew: a watch may have missed one."""
    nodes: frozenset[str] = frozenset()
    """What is wrong with these nodes, if anything."""
    supervisor: Asked | None = None
    """What rank 0's supervisor says, who is listened to from now on."""
    witness: Asked | None = None
    """The same of another supervisor."""

    def __bool__(self) -> bool:
        return self != NOTHING

    def __or__(self, more: "Needs") -> "Needs":
        return Needs(
            pods=self.pods or more.pods,
            nodes=self.nodes | more.nodes,
            supervisor=more.supervisor or self.supervisor,
            witness=more.witness or self.witness,
        )


NOTHING = Needs()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole present state of one job."""

    now: datetime
    job: DDPJob
    pods: tuple[Pod, ...] = ()
    service: Service = Service.MISSING
    refusal: Refusal | None = None
    """Set since the last attempt to make what is missing was refused."""
    settings: Settings = DEFAULTS
    node_problems: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with nodes that were asked about, in a sentence; empty where nothing is."""
    network_policy: bool = False
    """Whether the job's own NetworkPolicy exists."""
    mark: str | None = None
    """The state in which the job's metadata says that it has finished; empty where it says nothing. None: nobody
    marks it, since its status cannot get lost alone."""
    heard: Heard | None = None
    """What rank 0's supervisor said last; None where it was never asked, or has never answered."""
    witness: Heard | None = None
    """What another supervisor of the present gang says of itself, where rank 0's is silent."""
    answered: Needs = NOTHING
    """What of this was asked for since a decision needed it, be it in vain."""


Manifest = dict[str, Any]
"""A Kubernetes object as JSON has it."""
