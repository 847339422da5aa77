"""Moments of a job's life, told in a line: `a_job(nodes=2).running().fails(1).decided()`.

A moment is a snapshot; each method returns the next one. The adapter that carries decisions out here is an ideal one,
but for what a moment is about: a pod that is told to stop keeps terminating until `gone()` says otherwise.

Nothing happens while a history is told: the engine is asked once a test looks at what there is. So tables can be read
while the engine is broken, and their rows fail one by one.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial, wraps
from typing import Any, ParamSpec, TypeVar

from ddpjob_operator.api import (
    NO_DEFAULTS,
    Condition,
    ConditionType,
    DDPJob,
    DDPJobStatus,
    Defaults,
    Incarnations,
    NetworkPolicy,
)
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.api.default_settings import DefaultsEntry
from ddpjob_operator.api.defaults import merged
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine import (
    DISRUPTION_BUDGET,
    KUEUE_WORKLOAD,
    NETWORK_POLICY,
    POD_GROUP,
    SECRET,
    SERVICE,
    VOLCANO_GROUP,
    WORKLOAD,
    Action,
    Admission,
    Ahead,
    Create,
    CreatePod,
    Decision,
    Delete,
    DeleteJob,
    DeletePod,
    Disruption,
    Exit,
    Flavor,
    KueueWorkload,
    Manifest,
    MarkFinished,
    OwnedKind,
    Patch,
    Pod,
    PodGroup,
    Queue,
    Refusal,
    RequestCheckpoint,
    Resize,
    Settings,
    Snapshot,
    StopPod,
    Tell,
    TellDomain,
    Waiting,
    decide,
    fingerprint,
    group_kind,
    parse_report,
    with_defaults,
    with_read_error,
)
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.manifests.names import present_pod_name

P = ParamSpec("P")
T = TypeVar("T")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1"}]}}
NO_IMAGE = (
    "The trainer container has no image: set one in spec.template.spec.containers, or ask the operator's "
    "administrator to set a default (trainerImage)"
)


def a_document(**spec: Any) -> dict[str, Any]:
    """The smallest valid DDPJob document, with these fields of `spec`."""
    metadata = {"name": "digits", "namespace": "team", "uid": "uid-1", "generation": 1}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {"template": TEMPLATE, **spec}}


def defaults(**settings: Any) -> Defaults:
    """The defaults of an organisation with one entry for all teams."""
    return merged([DefaultsEntry.model_validate({"name": "all-teams", **settings})], {})


def with_nobody_steady(snapshot: Snapshot) -> Snapshot:
    """The same snapshot, of whose pods each is looked at for whatever there may be to say of it."""
    pods = tuple(replace(pod) for pod in snapshot.pods)
    for pod in pods:
        object.__setattr__(pod, "steady", False)
    return replace(snapshot, pods=pods)


OPEN = Settings(network_policy=NetworkPolicy.DISABLED)
"""So that only who speaks of NetworkPolicies has one."""


def told(step: Callable[P, "Moment"]) -> Callable[P, "Moment"]:
    """A step of a history, which is taken when somebody asks what there is then; told twice, it is taken once."""

    @wraps(step)
    def later(*args: P.args, **kwargs: P.kwargs) -> "Moment":
        then = Moment(partial(step, *args, **kwargs))
        if not args or not isinstance(args[0], Moment):
            return then
        try:
            return args[0].then.setdefault((step, *args[1:], *kwargs.items()), then)
        except TypeError:  # What is told has no hash.
            return then

    return later


def told_by_its_methods(history: type[T]) -> type[T]:
    """Of this class each public method that returns a moment is such a step."""
    for name, method in [*vars(history).items()]:
        if not name.startswith("_") and getattr(method, "__annotations__", {}).get("return") == "Moment":
            setattr(history, name, told(method))
    return history


@told
def a_job(**spec: Any) -> "Moment":
    """A job that was just submitted."""
    return Moment(Snapshot(START, DDPJob.from_dict(a_document(**spec)), settings=OPEN))


@told_by_its_methods
@dataclass(frozen=True, eq=False, repr=False)
class Moment:
    """A moment of a job, and how it goes on."""

    given: Snapshot | partial["Moment"]
    """What there is, or the step by which it comes about."""
    then: dict[tuple[object, ...], "Moment"] = field(default_factory=dict, init=False)
    """How it goes on, by what was told."""

    def __repr__(self) -> str:
        if isinstance(self.given, Snapshot):
            return "Moment(…)"
        named = (f"{name}={value!r}" for name, value in self.given.keywords.items())
        before, *how = "", *map(repr, self.given.args), *named
        if self.given.args and isinstance(self.given.args[0], Moment):
            before, *how = f"{how[0]}.", *how[1:]
        return f"{before}{self.given.func.__name__}({', '.join(how)})"

    @cached_property
    def snapshot(self) -> Snapshot:
        """What there is, once all that was told has happened."""
        return self.given if isinstance(self.given, Snapshot) else self.given().snapshot

    @property
    def asked(self) -> Snapshot:
        """The moment with all asked that a decision needs to know."""
        return self._decided[0]

    @property
    def decision(self) -> Decision:
        """What the engine makes of this moment, once what it needs to know was asked: no more than there is here."""
        return self._decided[1]

    @cached_property
    def _decided(self) -> tuple[Snapshot, Decision]:
        asked = self.snapshot
        while needs := (decision := decide(asked)).needs:
            asked = replace(asked, answered=asked.answered | needs)
        return asked, decision

    @property
    def status(self) -> DDPJobStatus:
        """What was said last."""
        return self.snapshot.job.status

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods that there are."""
        return self.snapshot.pods

    def condition(self, kind: ConditionType) -> Condition:
        """A condition that was set."""
        condition = self.status.condition(kind)
        assert condition is not None, f"{kind} was never set"
        return condition

    # What the operator does.

    def said(self) -> "Moment":
        """The operator writes its status and dies before it acts."""
        status = self.decision.status
        return self if status is None else self._with_status(status)

    def decided(self, rounds: int = 1) -> "Moment":
        """The operator looks, writes its status and carries its actions out, so many times."""
        moment = self
        for _ in range(rounds):
            actions = moment.decision.actions
            moment = moment.said()
            for action in actions:
                if not isinstance(action, CreatePod):
                    moment = moment._carried_out(action)
            moment = moment._with_made(action for action in actions if isinstance(action, CreatePod))
        return moment

    def settled(self) -> "Moment":
        """The operator looks until there is nothing left to do, or no job any more."""
        moment = self
        for _ in range(10):
            if moment.decision.empty or DeleteJob() in moment.decision.actions:
                return moment
            moment = moment.decided()
        raise AssertionError(f"no end in sight: {moment.decision}")

    def created(self) -> "Moment":
        """All pods of the next attempt exist and were seen; none runs yet."""
        return self.settled()

    def running(self) -> "Moment":
        """All pods run and were seen to."""
        return self.settled().runs(*range(self.snapshot.job.spec.nodes)).settled()

    def restarted(self) -> "Moment":
        """After an incident: the former pods are gone, the backoff is over, all run."""
        return self.ready_again().running()

    def ready_again(self) -> "Moment":
        """After an incident: the former pods are gone, the backoff is over, and nobody has looked yet."""
        moment = self.settled().gone()
        return moment.at(moment.status.backoff_until or moment.snapshot.now)

    def suspended(self) -> "Moment":
        """The user has suspended the job, and nothing of it runs any more."""
        return self.asks(suspend=True).settled().gone().settled()

    # What the world does.

    def but(self, **changes: Any) -> "Moment":
        """So much is otherwise."""
        return Moment(replace(self.snapshot, **changes))

    def after(self, seconds: float) -> "Moment":
        """Time goes by."""
        return self.at(self.snapshot.now + timedelta(seconds=seconds))

    def at(self, now: datetime) -> "Moment":
        """It is this moment."""
        return Moment(replace(self.snapshot, now=now))

    def doubted(self, seconds: float) -> "Moment":
        """By the clock of a server that was heard lately, it is so much earlier."""
        return Moment(replace(self.snapshot, earliest=self.snapshot.now - timedelta(seconds=seconds)))

    def unsettled(self, seconds: float = 60) -> "Moment":
        """The operator has just started, or its clock has just been set: for so long the time is not certain."""
        return Moment(replace(self.snapshot, settles_at=self.snapshot.now + timedelta(seconds=seconds)))

    def runs(self, *ranks: int) -> "Moment":
        """The trainer of these ranks runs."""
        now = self.snapshot.now
        return self.placed(*ranks)._each(
            ranks,
            lambda pod: replace(pod, running=True, started_at=now, address=f"10.0.{pod.incarnation}.{pod.node}"),
        )

    def placed(self, *ranks: int) -> "Moment":
        """The pods of these ranks, reserves among them, are given nodes."""
        return self._each(
            ranks,
            lambda pod: replace(
                pod, node_name=pod.node_name or f"node-{pod.node}", scheduled_at=pod.scheduled_at or self.snapshot.now
            ),
        )

    def succeeds(self, *ranks: int) -> "Moment":
        """The trainer of these ranks exits with 0."""
        return self.fails(*ranks, code=0)

    def fails(
        self, *ranks: int, code: int | None = 1, reason: str = "Error", message: str = "", at: float | None = 0
    ) -> "Moment":
        """The trainer of these ranks ends; `at` counts seconds from now, None where the moment is not known."""
        ended_at = None if at is None else self.snapshot.now + timedelta(seconds=at)
        ended = Exit(code, reason, message, ended_at)
        return self._each(ranks, lambda pod: replace(pod, running=False, exit=ended))

    def former_fails(self, rank: int, **how: Any) -> "Moment":
        """The trainer of a rank of the attempt before ends."""
        return self._before(lambda then: then.fails(rank, **how))

    def former_lingers(self, rank: int) -> "Moment":
        """Other containers go on beside the trainer of a rank of the attempt before, which has ended."""
        return self._before(lambda then: then.lingers(rank))

    def reports(self, rank: int, /, *, code: int = 1, at: float = 0, **report: Any) -> "Moment":
        """The trainer of a rank fails and leaves a failure report."""
        return self.fails(rank, code=code, message=json.dumps({"version": 2, **report}), at=at)

    def hears(
        self, phase: str = "Running", *, attempt: int | None = None, began: float = 0, **document: Any
    ) -> "Moment":
        """Rank 0's supervisor says this of its gang; the phase began so many seconds from now."""
        job, now = self.snapshot.job, self.snapshot.now
        said = {
            "version": 2,
            "job": fingerprint(job.metadata.uid),
            "attempt": attempt or self.status.attempt,
            "phase": phase,
            "since": (now + timedelta(seconds=began)).isoformat(),
            **document,
        }
        report = parse_report(json.loads(json.dumps(said)), now, uid=job.metadata.uid, pod=present_pod_name(job, 0))
        return Moment(replace(self.snapshot, report=report))

    def awaits_report(self) -> "Moment":
        """Another operator process, which nobody has answered yet."""
        return Moment(replace(self.snapshot, report=None))

    def hears_nothing(self, why: str) -> "Moment":
        """From now on rank 0's supervisor cannot be asked."""
        first = present_pod_name(self.snapshot.job, 0)
        return Moment(
            replace(self.snapshot, report=with_read_error(self.snapshot.report, why, self.snapshot.now, pod=first))
        )

    def asks_another(self, phase: str, *, rank: int = 1) -> "Moment":
        """Another supervisor says this of itself, and has for as long as the one that is asked was heard of."""
        job, last = self.snapshot.job, self.snapshot.witness
        name = present_pod_name(job, rank)
        said = {
            "job": fingerprint(job.metadata.uid),
            "attempt": self.status.attempt,
            "phase": phase,
            "coordinator": "10.0.1.0:29502",
        }
        witness = parse_report(said, self.snapshot.now, uid=job.metadata.uid, pod=name, last=last)
        return Moment(replace(self.snapshot, witness=witness))

    def another_is_silent(self) -> "Moment":
        """The other supervisor that is asked cannot be either."""
        last = self.snapshot.witness
        assert last is not None
        witness = with_read_error(last, "refused", self.snapshot.now, pod=last.pod)
        return Moment(replace(self.snapshot, witness=witness))

    def deleted_by_hand(self, *ranks: int) -> "Moment":
        """Somebody else deletes the pods of these ranks; they take their time to end."""
        return self._each(ranks, lambda pod: replace(pod, deleting=True, told_at=self.snapshot.now))

    def disrupted(self, rank: int, reason: str, message: str = "", *, seconds: float | None = None) -> "Moment":
        """The cluster takes the pod of a rank away; it has its time to end, so many seconds where that is known."""
        by = None if seconds is None else self.snapshot.now + timedelta(seconds=seconds)
        taken = Disruption(reason, message)
        return self._each((rank,), lambda pod: replace(pod, deleting=True, disruption=taken, gone_by=by))

    def loses_its_sandbox(self, rank: int) -> "Moment":
        """The sandbox of a rank's pod is gone, and its trainer has still to end."""
        return self._each((rank,), lambda pod: replace(pod, sandbox_lost=True))

    def evicted_by_kubelet(self, rank: int, message: str, *, disruption: bool) -> "Moment":
        """The kubelet ends a pod: for want of something on the node, or because of what the pod uses itself."""
        target = Disruption("TerminationByKubelet") if disruption else None
        moment = self.fails(rank, code=137)
        return moment._each((rank,), lambda pod: replace(pod, reason="Evicted", message=message, disruption=target))

    def node_has(self, node: str, problem: str) -> "Moment":
        """A node that was asked about has this problem."""
        return Moment(replace(self.snapshot, kubernetes_node_problems={node: problem}))

    def nodes_are_in(self, **domains: str) -> "Moment":
        """In which topology domains the nodes of these ranks are: `rank0="a"`."""
        known = {f"node-{name.removeprefix('rank')}": domain for name, domain in domains.items()}
        return Moment(replace(self.snapshot, domains=known))

    def allows(self, **settings: Any) -> "Moment":
        """The operator's administrator has decided so."""
        return Moment(replace(self.snapshot, settings=replace(self.snapshot.settings, **settings)))

    def under(self, found: Defaults) -> "Moment":
        """The organisation has these defaults, of which a job that has begun keeps what it began with."""
        snapshot = self.snapshot
        fixed = snapshot.job.status.defaults or NO_DEFAULTS if snapshot.job.status.begun else found
        queue = snapshot.queue or (Queue(fixed.queue) if fixed.queue else None)
        return Moment(replace(snapshot, defaults=fixed, job=with_defaults(snapshot.job, fixed), queue=queue))

    def node_dies(self, *ranks: int) -> "Moment":
        """The nodes of these ranks are lost, and Kubernetes deletes their pods, which nobody is there to end."""
        gone_by = self.snapshot.now + timedelta(seconds=30)
        lost = Disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        return self._each(ranks, lambda pod: replace(pod, deleting=True, gone_by=gone_by, disruption=lost))

    def overdue(self, *ranks: int) -> "Moment":
        """The pods of these ranks should be gone by now; all others that were told to stop are."""
        moment = self.gone_but(*ranks)
        gone_by = self.snapshot.now - timedelta(seconds=60)
        return moment._with_pods(tuple(replace(pod, gone_by=gone_by) for pod in moment.pods))

    def kept_by_a_finalizer(self, rank: int) -> "Moment":
        """The pods of a rank were removed by force, and somebody's finalizer keeps them."""
        return self._with_pods(tuple(replace(pod, forced=pod.node == rank) for pod in self.pods))

    def lingers(self, *ranks: int) -> "Moment":
        """Other containers go on beside the trainer of these ranks, which has ended."""
        return self._each(ranks, lambda pod: replace(pod, lingering=True))

    def refused(self, reason: str, message: str, retry_in: float = 5, fits: int | None = None) -> "Moment":
        """The cluster would not make what was missing; `fits`: there can be so many pods at most."""
        refusal = Refusal(reason, message, self.snapshot.now + timedelta(seconds=retry_in), fits)
        return Moment(replace(self.snapshot, refusal=refusal))

    def accepted(self) -> "Moment":
        """The cluster takes what it refused before."""
        return Moment(replace(self.snapshot, refusal=None))

    def marked(self, mark: str) -> "Moment":
        """The job's metadata says that it has finished; or, if this is empty, it could."""
        return Moment(replace(self.snapshot, mark=mark))

    def held_by(self, operator: str, class_name: str = "", contender: str | None = None) -> "Moment":
        """The status names this operator, and perhaps another one that would run the job."""
        held = changed(self.status, operator=operator, class_name=class_name or None, contender=contender)
        return self._with_status(held)

    def restored(self) -> "Moment":
        """A backup without its status is all that is left of the job."""
        left = a_job(**self.snapshot.job.spec.to_dict()).called(uid="uid-2")
        return left.marked(self.snapshot.mark or "").after(3600)

    def comes_late(self, rank: int, *, incarnation: int | None = None) -> "Moment":
        """A pod, of the attempt before if nothing is said, appears: a request to make it was under way for long."""
        former = self.status.bookkeeping.incarnations.default - 1
        late = Pod("late", "uid of late", rank, former if incarnation is None else incarnation)
        return self._with_pods((*self.pods, late))

    def waits(self, rank: int, reason: str, message: str = "", *, busy: bool = False) -> "Moment":
        """The pod of a rank cannot start yet."""
        return self._each((rank,), lambda pod: replace(pod, waiting=Waiting(reason, message, busy)))

    def nominated(self, rank: int) -> "Moment":
        """The pod of a rank has been promised a node."""
        return self._each((rank,), lambda pod: replace(pod, nominated=True))

    def behind(self, jobs: int = 1) -> "Moment":
        """So many jobs are ahead in the line for nodes, which has just moved."""
        return Moment(replace(self.snapshot, ahead=Ahead(jobs, self.snapshot.now)))

    def first(self) -> "Moment":
        """No job is ahead in the line for nodes any more."""
        return Moment(replace(self.snapshot, ahead=None))

    def scales_up(self) -> "Moment":
        """An autoscaler says that it adds a node."""
        return Moment(replace(self.snapshot, scales_up=True))

    def vanishes(self, *ranks: int) -> "Moment":
        """The pods of these ranks are not there any more."""
        return self._with_pods(tuple(pod for pod in self.pods if pod.node not in ranks))

    def gone(self) -> "Moment":
        """All that was terminating has ended and is removed; what was stopped has ended and stays."""
        ended = Exit(143, "Error", "", self.snapshot.now)
        stopped = (
            replace(pod, running=False, exit=ended, reason="DeadlineExceeded") if pod.stopped and pod.active else pod
            for pod in self.pods
        )
        return self._with_pods(tuple(pod for pod in stopped if not pod.deleting))

    def gone_but(self, *ranks: int) -> "Moment":
        """All that was terminating has ended and is removed, but for pods of these ranks, whose nodes are lost."""
        return self._with_pods(tuple(pod for pod in self.pods if not pod.deleting or pod.node in ranks))

    def serves(self, *names: str) -> "Moment":
        """The job has Services of these names, and no others."""
        return self.has(SERVICE, *names)

    def nameless(self) -> "Moment":
        """Nobody names an image: neither the template nor the operator's administrator."""
        return self.asks(template={"spec": {"containers": [{"name": "trainer"}]}})

    def with_image(self) -> "Moment":
        """The administrator names one."""
        return self.allows(trainer_image="ours:1")

    def has(self, kind: OwnedKind, *there: Any) -> "Moment":
        """The operator can make objects of a kind, and the job has these."""
        return Moment(replace(self.snapshot, owned={**self.snapshot.owned, kind: there}))

    def cannot_make(self, *kinds: OwnedKind) -> "Moment":
        """It can make none of these, or no longer."""
        left = {kind: there for kind, there in self.snapshot.owned.items() if kind not in kinds}
        return Moment(replace(self.snapshot, owned=left))

    def requests(self, request: str) -> "Moment":
        """Somebody requests a checkpoint."""
        return Moment(replace(self.snapshot, checkpoint_request=request))

    def unrequested(self) -> "Moment":
        """No pod has the request any more."""
        return self._each((0,), lambda pod: replace(pod, checkpoint_request=""))

    def guarded(self, *, there: bool = False) -> "Moment":
        """The operator may make PodDisruptionBudgets, and the job has one or has none."""
        return self.has(DISRUPTION_BUDGET, *([name_beside(self.snapshot.job.ref)] if there else []))

    def unguarded(self) -> "Moment":
        """It may not, or no longer."""
        return self.cannot_make(DISRUPTION_BUDGET)

    def grouped(self) -> "Moment":
        """The cluster has PodGroups, and the operator may make them."""
        groups = dict.fromkeys((WORKLOAD, POD_GROUP, VOLCANO_GROUP), ())
        return Moment(replace(self.snapshot, owned={**groups, **self.snapshot.owned}))

    def ungrouped(self) -> "Moment":
        """The cluster has no PodGroups any more."""
        return self.cannot_make(WORKLOAD, POD_GROUP, VOLCANO_GROUP)

    def no_room(self, message: str) -> "Moment":
        """The scheduler says why it does not place the gang."""
        return self._each_group(lambda group: replace(group, waiting=Waiting("Unschedulable", message)))

    def group_goes(self) -> "Moment":
        """Somebody deletes the present PodGroup, which stays for as long as it has pods."""
        return self._each_group(lambda group: replace(group, deleting=True))

    def group_is_gone(self) -> "Moment":
        """The PodGroup is not there any more."""
        return self.has(group_kind(self.snapshot.job))

    def queues(self, name: str = "training", priority_class: str = "") -> "Moment":
        """The job's labels name a queue, on a cluster with Kueue."""
        known = self.snapshot.kueue_workloads or ()
        return Moment(replace(self.snapshot, queue=Queue(name, priority_class))).has(KUEUE_WORKLOAD, *known)

    def without_queue(self) -> "Moment":
        """The job's labels name none any more."""
        return Moment(replace(self.snapshot, queue=None))

    def without_kueue(self) -> "Moment":
        """The cluster has no Kueue any more."""
        return self.cannot_make(KUEUE_WORKLOAD)

    def dequeued_by_hand(self) -> "Moment":
        """Somebody deletes the job's place in its queue."""
        return self.has(KUEUE_WORKLOAD)

    def waits_in_queue(self, reason: str, message: str) -> "Moment":
        """Kueue says why it does not admit the job."""
        return self._queued(reserved=False, admission=None, waiting=Waiting(reason, message))

    def admitted(self, nodes: int | None = None, *flavors: str) -> "Moment":
        """The queue admits the job, with as many nodes as it asks for if nothing else is said."""
        count = self.snapshot.job.spec.nodes if nodes is None else nodes
        return self._queued(
            reserved=True, evicted=False, admission=Admission(count, frozenset(flavors)), waiting=None
        )

    def evicted(self, reason: str, message: str) -> "Moment":
        """The queue wants the quota back."""
        return self._queued(evicted=True, waiting=Waiting(reason, message))

    def knows_flavor(self, name: str, flavor: Flavor) -> "Moment":
        """What a kind of machines is."""
        return Moment(replace(self.snapshot, flavors={**self.snapshot.flavors, name: flavor}))

    def asks(self, **spec: Any) -> "Moment":
        """The user changes the spec."""
        job = self.snapshot.job
        document = job.to_document()
        metadata = {**job.metadata.to_dict(), "generation": job.metadata.generation + 1}
        asked = {**document, "metadata": metadata, "spec": {**job.spec.to_dict(), **spec}}
        return self._with_job(DDPJob.from_dict(asked))

    def called(self, **metadata: str) -> "Moment":
        """The job has another name, or another uid."""
        job = self.snapshot.job
        return self._with_job(job.model_copy(update={"metadata": job.metadata.model_copy(update=metadata)}))

    def read_anew(self) -> "Moment":
        """The job goes through JSON, as between any two looks of an operator."""
        return Moment(
            replace(self.snapshot, job=DDPJob.from_dict(json.loads(json.dumps(self.snapshot.job.to_document()))))
        )

    # How it is done.

    def _before(self, happens: Callable[["Moment"], "Moment"]) -> "Moment":
        """Something happens to the attempt before."""
        back = Incarnations(default=self.status.bookkeeping.incarnations.default - 1)
        return happens(self._with_status(changed(self.status, incarnations=back)))._with_status(self.status)

    def _with_status(self, status: DDPJobStatus) -> "Moment":
        return self._with_job(self.snapshot.job.with_status(status))

    def _with_job(self, job: DDPJob) -> "Moment":
        return Moment(replace(self.snapshot, job=job))

    def _with_pods(self, pods: tuple[Pod, ...]) -> "Moment":
        return Moment(replace(self.snapshot, pods=pods))

    def _with_pod(self, name: str, **new: Any) -> "Moment":
        return self._with_pods(tuple(replace(pod, **new) if pod.name == name else pod for pod in self.pods))

    def _with_made(self, made: Iterable[CreatePod]) -> "Moment":
        """All at once: a large gang is thousands."""
        now, pods = self.snapshot.now, [*self.pods]
        for one in made:
            name, incarnation = one.name, one.job.status.bookkeeping.incarnations.of(one.node)
            pods.append(Pod(name, f"uid of {name}", one.node, incarnation, created_at=now))
        return self._with_pods(tuple(pods))

    def _without(self, name: str, grace: int | None) -> "Moment":
        """An ended pod is removed at once, and without any grace so is one that runs."""
        kept = (pod for pod in self.pods if pod.name != name or (pod.active and grace != 0))
        return self._with_pods(tuple(self._deleted(pod, grace) if pod.name == name else pod for pod in kept))

    def _deleted(self, pod: Pod, grace: int | None) -> Pod:
        """Deleted once more, a pod goes sooner, if that."""
        if pod.gone_by is None or grace is None:
            return replace(pod, deleting=True, told_at=pod.told_at or self.snapshot.now)
        return replace(pod, gone_by=min(pod.gone_by, self.snapshot.now + timedelta(seconds=grace)))

    def _each(self, ranks: tuple[int, ...], change: Any) -> "Moment":
        present = self.status.bookkeeping.incarnations
        wanted = set(ranks)
        chosen = [pod.node in wanted and pod.incarnation == present.of(pod.node) for pod in self.pods]
        missing = wanted - {pod.node for pod, mine in zip(self.pods, chosen, strict=True) if mine}
        assert not missing, f"ranks {missing} have no pod in incarnation {present}"
        pods = (change(pod) if mine else pod for pod, mine in zip(self.pods, chosen, strict=True))
        return self._with_pods(tuple(pods))

    def _each_group(self, change: Callable[[PodGroup], PodGroup]) -> "Moment":
        return self.has(group_kind(self.snapshot.job), *map(change, self.snapshot.pod_groups or ()))

    def _queued(self, **changes: Any) -> "Moment":
        return self.has(KUEUE_WORKLOAD, *(replace(one, **changes) for one in self.snapshot.kueue_workloads or ()))

    def _patched(self, change: Resize | Tell) -> "Moment":
        """With what becomes of the job's place in its queue."""
        match change:
            case Resize(nodes, least):
                return self._queued(nodes=nodes, least=least)
            case Tell(releases=True):
                return self.waits_in_queue("Pending", "evicted")._queued(evicted=False, ready=False)
        known = {"PodsReady": "ready", "Finished": "finished"}
        return self._queued(**{known[kind]: value for kind, value, *_ in change.conditions})

    def _made(self, kind: OwnedKind, manifest: Manifest) -> "Moment":
        """With one object more, unless it is there. Of a Secret nobody may look whether it is."""
        if kind is SECRET:
            return self
        name, there = manifest["metadata"]["name"], self.snapshot.owned[kind]
        return self.has(kind, *there, *([] if name in map(named, there) else [SEEN.get(kind, named)(manifest)]))

    def _carried_out(self, action: Action) -> "Moment":
        match action:
            case Create() | Delete() | Patch():
                return self._with_beside(action)
            case MarkFinished(mark):
                return Moment(replace(self.snapshot, mark=mark))
            case CreatePod():
                return self._with_made((action,))
            case StopPod(name) | TellDomain(name) | RequestCheckpoint(name):
                return self._with_pod(name, **_changed(action))
            case DeleteJob():
                raise AssertionError("no moment comes after the job's deletion")
            case DeletePod(name, _, grace):
                return self._without(name, grace)

    def _with_beside(self, action: Create | Delete | Patch) -> "Moment":
        match action:
            case Create(kind, manifest):
                return self._made(kind, manifest)
            case Delete(kind, name):
                return self.has(kind, *(one for one in self.snapshot.owned[kind] if named(one) != name))
            case Patch(change=change):
                return self._patched(change)


def _changed(action: StopPod | TellDomain | RequestCheckpoint) -> dict[str, Any]:
    """What an action changes of a pod."""
    match action:
        case StopPod():
            return {"stopped": True}
        case TellDomain(domain=domain):
            return {"domain": domain}
        case RequestCheckpoint(request=request):
            return {"checkpoint_request": request}


def named(one: Any) -> str:
    """The name of what stands beside pods, as a snapshot or as a manifest has it."""
    if isinstance(one, dict):
        return str(one["metadata"]["name"])
    return one if isinstance(one, str) else str(one.name)


def _place(made: Manifest) -> KueueWorkload:
    """A place in a queue, as the operator sees what it has made."""
    spec, asked = made["spec"], made["metadata"]["annotations"]["ddpjob.dev/asked"]
    pods, wanted = spec["podSets"][0], spec.get("priorityClassRef", {}).get("name", "")
    return KueueWorkload(named(made), spec["queueName"], wanted, pods["count"], asked, pods.get("minCount"))


def _group(made: Manifest) -> PodGroup:
    return PodGroup(named(made))


SEEN: dict[OwnedKind, Callable[[Manifest], Any]] = {
    POD_GROUP: _group,
    VOLCANO_GROUP: _group,
    KUEUE_WORKLOAD: _place,
}
"""What a snapshot has of an object, if that is more than its name."""

BESIDE: dict[OwnedKind, str] = {
    SERVICE: "service",
    NETWORK_POLICY: "policy",
    DISRUPTION_BUDGET: "budget",
    WORKLOAD: "workload",
    POD_GROUP: "group",
    VOLCANO_GROUP: "group",
    KUEUE_WORKLOAD: "queue",
}
"""What stands beside a job's pods, in words of `plan`; a kind that is not here stands there by its plural."""


def plan(moment: Moment) -> str:
    """The actions of a decision in a line.

    `service`, `policy`, `budget`, `workload`, `group`, `queue`: it is made; `-policy` and so on: it is removed;
    `queue=3`: the queue is asked for three nodes, `queue=2..3`: or for two at least; `queue:Finished`: it is told so;
    `queue:-quota`: its quota is given back; `+2.0`: rank 0 of incarnation 2 is created, `+2.0?`: as one that only
    looks out for a place; `-1.0/5`: that of incarnation 1 is deleted with 5 s of grace, `/full`: with its own;
    `!1.0`: it is stopped and stays; `1.0@a`: it is told that it is in domain a; `1.0?a`: request a for a checkpoint
    is passed on to it; `Failed`: the job is so marked; `-job`: the job itself is deleted. The Secret, which is made
    before any pod (`test_secret.py`), is left out.
    """
    named = {pod.name: f"{pod.incarnation}.{pod.node}" for pod in moment.pods}
    said = []
    for action in moment.decision.actions:
        match action:
            case CreatePod(rank, job, reserve=reserve):
                said.append(f"+{job.status.bookkeeping.incarnations.of(rank)}.{rank}{'?' * reserve}")
            case StopPod(name):
                said.append(f"!{named[name]}")
            case TellDomain(name, domain=domain):
                said.append(f"{named[name]}@{domain}")
            case RequestCheckpoint(name, request=request):
                said.append(f"{named[name]}?{request}")
            case MarkFinished(mark):
                said.append(mark.partition(" ")[0])
            case DeleteJob():
                said.append("-job")
            case Patch(change=Resize(nodes, least)):
                said.append(f"queue={nodes}" if least is None else f"queue={least}..{nodes}")
            case Patch(change=Tell(conditions, releases)):
                said.append("queue:" + ("-quota" if releases else conditions[0][0]))
            case Create(kind):
                said += [BESIDE.get(kind, kind.plural)] if kind is not SECRET else []
            case Delete(kind):
                said.append(f"-{BESIDE.get(kind, kind.plural)}")
            case DeletePod(name, _, grace):
                said.append(f"-{named[name]}/{'full' if grace is None else grace}")
    return " ".join(said)


def made(decision: Decision, kind: OwnedKind) -> list[Manifest]:
    """The manifests of a kind that a decision creates."""
    return [one.manifest for one in decision.actions if isinstance(one, Create) and one.kind is kind]
