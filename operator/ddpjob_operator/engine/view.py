"""A snapshot in the engine's terms: classifies each pod once, and derives the properties that policies use."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter

from ddpjob_operator.api import AvoidedNodeName, ConditionType, DDPJobSpec, DDPJobStatus
from ddpjob_operator.api.job import called, domain_key
from ddpjob_operator.api.words import counted

from .cached import cached
from .manifests.kueue_workload import asked, priority_class_ref
from .manifests.names import kueue_workload_name
from .reports import Phase, SupervisorReport
from .snapshot import Admission, KueueWorkload, Placement, Pod, PodGroup, Snapshot

LOST_AFTER = timedelta(seconds=10)
"""How long after its grace period a deleted pod may still exist before it counts as lost with its Kubernetes node.

A working kubelet reports the end of a pod within a second or two. A lost pod may stay in the API forever, but does no
harm there.
"""

QUIET_AFTER = timedelta(seconds=10)
"""How long the operator, or rank 0's supervisor, may wait for a supervisor's answer before its node stops counting as
ready. The silence has no other effect yet."""

DOUBT_RECHECK = timedelta(seconds=10)
"""How often a job is checked again while a deadline has passed by the clocks of some API servers, but not of all."""

KEPT_INCIDENTS = 3
"""The number of latest incidents for which the pod that failed first is kept, so that its log can be read."""


@dataclass(frozen=True)
class View:
    """The present pod of each node, the previous pods, and the job's history from its status."""

    snapshot: Snapshot

    def with_status(self, status: DDPJobStatus) -> "View":
        """The same view with another status."""
        return View(replace(self.snapshot, job=self.snapshot.job.with_status(status)))

    @property
    def now(self) -> datetime:
        """The moment of the snapshot."""
        return self.snapshot.now

    def is_due(self, moment: datetime | None) -> bool:
        """True if a moment has certainly come. Decisions that cannot be undone must check this, not `now`.

        A moment has certainly come if even the slowest API server's clock has reached it, and if the operator has
        known the servers' clocks for long enough. Decisions that can be undone, or that only wait, use `now`.
        """
        return moment is not None and self._is_settled and moment <= self._earliest

    def next_look(self, moment: datetime | None) -> datetime | None:
        """When to check `moment` again: when it comes, or later if that is still uncertain; None if it has passed."""
        if moment is None or moment > self.now:
            return moment
        if self.snapshot.settles_at is not None and not self._is_settled:
            return self.snapshot.settles_at
        if self.is_due(moment):
            return None
        # `moment` may become certain sooner, if the API server whose clock is behind stops answering.
        return min(moment + (self.now - self._earliest), self.now + DOUBT_RECHECK)

    @property
    def _is_settled(self) -> bool:
        settles_at = self.snapshot.settles_at
        return settles_at is None or self.now >= settles_at

    @property
    def _earliest(self) -> datetime:
        return self.snapshot.earliest or self.now

    @cached
    def spec(self) -> DDPJobSpec:
        """The job's spec, with its node count capped at the number that its queue has admitted."""
        spec, admitted = self.snapshot.job.spec, self.admission
        if admitted is None or admitted.nodes >= spec.nodes:
            return spec
        return spec.model_copy(update={"nodes": admitted.nodes})

    @cached
    def kueue_workload(self) -> KueueWorkload | None:
        """The Workload that stands for the job in its queue; None if there is none yet."""
        known = self.snapshot.kueue_workloads
        if not known:  # True for nearly all jobs. Returning here saves computing the name, which is slow.
            return None
        name = kueue_workload_name(self.snapshot.job)
        return next((workload for workload in known if workload.name == name), None)

    @cached
    def admission(self) -> Admission | None:
        """The job's admission by its queue, unless the job has changed since or the queue wants its quota back."""
        own = self.kueue_workload
        if own is None or own.evicted or own.deleting or self.is_other_queue(own):
            return None
        return own.admission

    def is_other_queue(self, own: KueueWorkload) -> bool:
        """True if the job no longer requests the same as its Workload `own`, so that it must queue again."""
        job, queue = self.snapshot.job, self.snapshot.queue
        if queue is None or own.queue != queue.name or own.asked != asked(job):
            return True
        if own.reserved:
            return not self._is_enough(own)
        wanted = priority_class_ref(job, queue)
        return own.priority_class != (wanted["name"] if wanted else "")

    def _is_enough(self, own: KueueWorkload) -> bool:
        """Whether the job can run on the quota that its queue keeps for it, and can give back any surplus.

        While a Workload holds quota, Kueue allows only its size to be changed, and not to less than its minimum.
        """
        spec = self.snapshot.job.spec
        needed = spec.elastic.min_nodes if spec.elastic else spec.nodes
        kept = own.admission.nodes if own.admission else own.nodes
        return needed <= kept and (own.least or 1) <= spec.nodes <= own.nodes

    @property
    def awaits_admission(self) -> bool:
        """Whether the job has to wait for its queue to admit it."""
        return (
            self.snapshot.queue is not None and self.snapshot.kueue_workloads is not None and self.admission is None
        )

    @cached
    def placement(self) -> Placement | None:
        """What the queue's admission and its flavors add to the job's pods; None if no queue has admitted the job."""
        if self.admission is None:
            return None
        given, flavors = self.admission.placement, [self.snapshot.flavors.get(key) for key in self.admission.flavors]
        known = [flavor for flavor in flavors if flavor is not None]
        selectors = {key: value for flavor in known for key, value in flavor.node_selector.items()}
        tolerations = tuple(toleration for flavor in known for toleration in flavor.tolerations)
        return replace(
            given,
            node_selector={**selectors, **given.node_selector},
            tolerations=(*tolerations, *given.tolerations),
        )

    @property
    def status(self) -> DDPJobStatus:
        """The last status that was written."""
        return self.snapshot.job.status

    @property
    def refused(self) -> bool:
        """True if the cluster has refused a request and it is too early to retry it."""
        refusal = self.snapshot.refusal
        return refusal is not None and self.now < refusal.retry_at

    @cached
    def nodes(self) -> int:
        """The number of nodes of the present attempt; 0 before the first attempt."""
        return self.status.nodes or 0

    @cached
    def current(self) -> dict[int, Pod]:
        """The present attempt's pods by node."""
        return {pod.node: pod for pod in self._present if pod.node < self.nodes}

    @cached
    def unsteady(self) -> tuple[Pod, ...]:
        """Pods of any attempt that are not steady. Most policies check only these: a gang may have thousands."""
        return tuple(pod for pod in self.snapshot.pods if not pod.steady)

    @cached
    def current_unsteady(self) -> dict[int, Pod]:
        """The present attempt's unsteady pods, by node."""
        own = (pod for pod in self.unsteady if self.current.get(pod.node) is pod)
        return {pod.node: pod for pod in sorted(own, key=_node)}

    @cached
    def unlocated(self) -> tuple[Pod, ...]:
        """Scheduled pods whose topology domain still has to be written into their annotations."""
        if self.winds_down or self.status.finished or domain_key(self.snapshot.job) is None:
            return ()
        placed = (pod for pod in self.current.values() if pod.node_name and pod.active and not pod.deleting)
        return tuple(pod for pod in placed if pod.domain is None)

    @cached
    def report(self) -> SupervisorReport | None:
        """The report on the gang from the supervisor in rank 0's present pod; None if it has not answered yet."""
        report, first = self.snapshot.report, self.current.get(0)
        # A former pod's report is about the previous gang. A report of attempt 0 means that the pod never answered.
        return report if report and first and report.pod == first.name and report.attempt else None

    @property
    def supervised(self) -> bool:
        """Whether the present gang has supervisors, which can restart its processes in place."""
        return self.status.bookkeeping.supervised or self.report is not None

    @cached
    def reserves(self) -> dict[int, Pod]:
        """Reserves, by node: pods beyond the present size, which wait for room that the gang could grow into."""
        return {pod.node: pod for pod in self._present if pod.node >= self.nodes}

    @cached
    def found(self) -> tuple[Pod, ...]:
        """The reserves that are scheduled and are not being deleted."""
        staying = (pod for pod in self.reserves.values() if pod.active and not pod.deleting)
        return tuple(pod for pod in staying if pod.node_name is not None)

    @cached
    def previous(self) -> tuple[Pod, ...]:
        """Pods of former attempts, except those that are kept."""
        return tuple(pod for pod in self._parted[1] if pod.name not in self.kept)

    @cached
    def kept(self) -> frozenset[str]:
        """Names of ended pods that stay for their logs: the first that failed in each of the last incidents."""
        first = {incident.pod for incident in self.status.incidents[:KEPT_INCIDENTS]}
        # A pod is not kept while containers besides the trainer's still run in it, because it then still holds
        # resources of its Kubernetes node.
        return frozenset(pod.name for pod in self.unsteady if pod.name in first and not (pod.active or pod.lingering))

    @property
    def noun(self) -> str:
        """The word that messages use for a node's pod."""
        return self.snapshot.settings.noun

    @cached
    def called(self) -> str:
        """The word that messages put before a node's number: `rank` or `node`."""
        return called(self.snapshot.job)

    def pods(self, number: int) -> str:
        """A number of pods, in words: `3 pods`."""
        return counted(number, self.noun)

    @cached
    def removable(self) -> tuple[Pod, ...]:
        """All pods except those that are kept."""
        return tuple(pod for pod in self.snapshot.pods if pod.name not in self.kept)

    @cached
    def missing(self) -> tuple[int, ...]:
        """Nodes of the present attempt that lack a pod, except nodes that have finished and no longer need one."""
        return tuple(node for node in range(self.nodes) if node not in self.current and node not in self.finished)

    @property
    def pod_group(self) -> PodGroup | None:
        """The PodGroup of the present attempt's pods, if the operator made one and it exists."""
        name, groups = self.status.pod_group, self.snapshot.pod_groups or ()
        return next((group for group in groups if group.name == name), None)

    @cached
    def placed(self) -> int:
        """How many of the nodes have a pod that is scheduled, or no longer need one."""
        gone = len(self.finished - self.current.keys())
        return gone + len(self.current) - sum(pod.node_name is None for pod in self.current_unsteady.values())

    @cached
    def running(self) -> int:
        """How many of the present pods run."""
        return len(self.current) - sum(not (pod.running and pod.active) for pod in self.current_unsteady.values())

    @cached
    def reported_running(self) -> int:
        """How many of the present pods run, not counting those whose supervisors are missing.

        A missing supervisor may mean that its Kubernetes node is lost, which the cluster reports only later.
        """
        missed = {*self.report.missing} if self.report and self.missed_at and self.now >= self.missed_at else set()
        if self.quiet_at is not None and self.now >= self.quiet_at:
            missed.add(0)
        if not missed:
            return self.running
        return sum(pod.running and pod.active and node not in missed for node, pod in self.current.items())

    @property
    def missed_at(self) -> datetime | None:
        """When the nodes that rank 0's supervisor is waiting for will count as missing, although their pods run.

        Until then they may just be late. None if the supervisor is not waiting for any node whose pod runs.
        """
        report = self.report
        if report is None or report.phase is not Phase.GATHERING:
            return None
        late = any(pod.running and pod.active and node in report.missing for node, pod in self.current.items())
        return report.since + QUIET_AFTER if late else None

    @cached
    def unreported_since(self) -> datetime | None:
        """When rank 0's supervisor stopped answering although its pod runs; None if it answers or never answered."""
        report, first = self.snapshot.report, self.current.get(0)
        if not self.supervised or report is None or first is None or not first.running:
            return None
        return report.error_since if report.pod == first.name else None

    @property
    def quiet_at(self) -> datetime | None:
        """When rank 0 will stop counting as ready unless its silent supervisor answers; None if it is not silent."""
        return None if self.unreported_since is None else self.unreported_since + QUIET_AFTER

    @cached
    def finished(self) -> frozenset[int]:
        """Nodes that ended well, even if their pods are gone by now.

        If a node's trainer ended well before it was told to stop, the node has finished, whatever happens to its pod
        later.
        """
        return self.status.completed() | {node for node, pod in self.current_unsteady.items() if pod.succeeded}

    @property
    def finish_times(self) -> tuple[datetime, ...]:
        """The end times of the finished nodes, as far as they are known; the latest is always known."""
        ends = (pod.exit.finished_at for pod in self.current_unsteady.values() if pod.succeeded and pod.exit)
        return tuple(end for end in (self.status.bookkeeping.last_completed_time, *ends) if end is not None)

    @property
    def succeeded(self) -> int:
        """How many nodes ended well."""
        return len(self.finished)

    @property
    def finished_text(self) -> str:
        """Names the nodes that ended well, as in `rank 1 and 2 more`. There must be at least one."""
        nodes = sorted(self.finished)
        more = f" and {len(nodes) - 1} more" if nodes[1:] else ""
        return f"{self.called} {nodes[0]}{more}"

    @property
    def up(self) -> bool:
        """Whether every node runs, or has ended well."""
        return 0 < self.nodes == self.running + self.succeeded

    @cached
    def active(self) -> tuple[Pod, ...]:
        """Pods of any attempt whose trainer runs or may still start."""
        pods = self.snapshot.pods
        return tuple(pod for pod in pods if self.lives(pod)) if self.unsteady else pods

    @cached
    def overdue(self) -> tuple[Pod, ...]:
        """Pods that should have ended by now, but whose Kubernetes nodes do not answer and so cannot report it."""
        return tuple(pod for pod in self.unsteady if pod.active and self.lost(pod))

    @cached
    def avoided(self) -> tuple[AvoidedNodeName, ...]:
        """Kubernetes nodes that pods still avoid."""
        return tuple(avoided for avoided in self.status.avoided_node_names if avoided.until > self.now)

    def lives(self, pod: Pod) -> bool:
        """Whether a pod's trainer runs or may still start."""
        return pod.active and not self.lost(pod)

    def lost(self, pod: Pod) -> bool:
        """Whether a deleted pod is overdue: its Kubernetes node does not answer."""
        return pod.gone_by is not None and self.is_due(pod.gone_by + LOST_AFTER)

    @cached
    def next_loss(self) -> datetime | None:
        """When the next pod that is being deleted will count as lost, unless it is gone by then."""
        ends = (pod.gone_by for pod in self.unsteady if pod.gone_by is not None and self.lives(pod))
        return after(min(ends, default=None), LOST_AFTER.total_seconds())

    @property
    def started(self) -> bool:
        """Whether the gang has ever been started."""
        return self.status.attempt > 0

    @property
    def winds_down(self) -> bool:
        """True if the operator creates no more pods and removes the existing pods."""
        return self.spec.suspend or self.status.ending or self.awaits_admission

    @property
    def suspended(self) -> bool:
        """Whether the gang was told to save and stop and has not been started since."""
        return self.suspended_since is not None

    @property
    def suspended_since(self) -> datetime | None:
        """When the gang was told to save and stop; None if it was not told, or has been started since."""
        return self.status.bookkeeping.suspend_time

    @property
    def has_run(self) -> bool:
        """Whether all ranks have run since the job was started or resumed."""
        return self.status.first_run_time is not None

    @property
    def created(self) -> bool:
        """Whether all pods of this attempt have been seen. From then on, a missing pod counts as lost."""
        return self.status.is_true(ConditionType.CREATED)

    @property
    def _present(self) -> list[Pod]:
        return self._parted[0]

    @cached
    def _parted(self) -> tuple[list[Pod], list[Pod]]:
        """The present pod of each node, sorted by node, and all other pods."""
        pods, incarnations = self.snapshot.pods, self.status.bookkeeping.incarnations
        if incarnations.exceptions:
            present = [pod for pod in pods if pod.incarnation == incarnations.of(pod.node)]
            others = [pod for pod in pods if pod.incarnation != incarnations.of(pod.node)]
        else:  # The usual case: comparing is much faster than calling `of` for each of thousands of pods.
            present = [pod for pod in pods if pod.incarnation == incarnations.default]
            others = [pod for pod in pods if pod.incarnation != incarnations.default]
        present.sort(key=_node)
        return present, others


_node = attrgetter("node")


def after(start: datetime | None, seconds: float | None) -> datetime | None:
    """The moment `seconds` after `start`; None if either is None."""
    return start + timedelta(seconds=seconds) if start and seconds is not None else None
