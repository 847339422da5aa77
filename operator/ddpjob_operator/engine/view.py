"""A snapshot in the engine's terms: every pod classified once, every question that policies ask answered here."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from ddpjob_operator.api import ConditionType, DDPJobSpec, DDPJobStatus

from .snapshot import Pod, Service, Snapshot

LOST_AFTER = timedelta(seconds=10)
"""A deleted pod that its kubelet has not reported gone for so long after its grace period was lost with its node.

It may stay in the API for ever, in nobody's way. A kubelet that lives reports within a second or two."""


@dataclass(frozen=True)
class View:
    """The present pod of each rank, the previous pods, and the job's own past from its status."""

    snapshot: Snapshot

    @property
    def now(self) -> datetime:
        """The moment of the snapshot."""
        return self.snapshot.now

    @property
    def spec(self) -> DDPJobSpec:
        """What is asked for."""
        return self.snapshot.job.spec

    @property
    def status(self) -> DDPJobStatus:
        """What was said last."""
        return self.snapshot.job.status

    @property
    def service(self) -> Service:
        """The Service under the job's name."""
        return self.snapshot.service

    @cached_property
    def nodes(self) -> int:
        """The present attempt's number of nodes; 0 before the first."""
        return self.status.nodes or 0

    @cached_property
    def current(self) -> dict[int, Pod]:
        """The present attempt's pods by rank."""
        incarnation = self.status.incarnations.default
        return {
            pod.rank: pod
            for pod in sorted(self.snapshot.pods, key=lambda pod: pod.rank)
            if pod.incarnation == incarnation and pod.rank < self.nodes
        }

    @cached_property
    def previous(self) -> tuple[Pod, ...]:
        """Pods of former attempts."""
        return tuple(pod for pod in self.snapshot.pods if self.current.get(pod.rank) is not pod)

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the present attempt without a pod."""
        return tuple(rank for rank in range(self.nodes) if rank not in self.current)

    @cached_property
    def running(self) -> int:
        """How many of the present pods run."""
        return sum(pod.running and pod.active for pod in self.current.values())

    @cached_property
    def succeeded(self) -> int:
        """How many of the present pods ended well."""
        return sum(pod.succeeded for pod in self.current.values())

    @property
    def active(self) -> tuple[Pod, ...]:
        """Pods of any attempt whose trainer runs or may still come to run."""
        return tuple(pod for pod in self.snapshot.pods if pod.active and not self.lost(pod))

    @property
    def next_loss(self) -> datetime | None:
        """When the next pod that is being deleted counts as lost, unless it goes before."""
        times = (pod.gone_by + LOST_AFTER for pod in self.active if pod.gone_by is not None)
        return min(times, default=None)

    def lost(self, pod: Pod) -> bool:
        """Whether a deleted pod is overdue: its node does not answer."""
        return pod.gone_by is not None and self.now >= pod.gone_by + LOST_AFTER

    @property
    def started(self) -> bool:
        """Whether the gang was ever started."""
        return self.status.attempt > 0

    @property
    def created(self) -> bool:
        """Whether all pods of this attempt were seen; from then on a missing one was lost."""
        return self.status.is_true(ConditionType.CREATED)


def deadline(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """When the job has been active for too long."""
    seconds, start = spec.active_deadline_seconds, status.start_time
    return start + timedelta(seconds=seconds) if seconds and start else None
