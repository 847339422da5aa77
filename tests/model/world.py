"""A small Kubernetes for the engine. Nodes and pods do what they like, and the job's status is written as a whole.

The world keeps account of what must never happen (`promises.py`); everything else only makes things happen.
"""

import copy
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ddpjob_operator.api import DDPJob, DDPJobStatus
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine import (
    DISRUPTION_BUDGET,
    KUEUE_WORKLOAD,
    NETWORK_POLICY,
    POD_GROUP,
    SECRET,
    SERVICE,
    WORKLOAD,
    Action,
    Ahead,
    Create,
    CreatePod,
    Delete,
    DeleteJob,
    DeletePod,
    Disruption,
    Exit,
    Manifest,
    OwnedKind,
    Patch,
    Queue,
    Refusal,
    Resize,
    Settings,
    Snapshot,
    StopPod,
    SupervisorReport,
    Tell,
    Waiting,
    decide,
    parse_report,
    with_read_error,
)

from .groups import Groups
from .kueue import Kueue
from .pods import RealPod, config_map, digest_of, is_bad, made_of
from .promises import (
    Books,
    check_code,
    check_creation,
    check_deletion,
    check_gang,
    check_group_creation,
    check_group_deletion,
    check_job_deletion,
    check_queue_entry,
    check_queue_exit,
    check_queue_size,
    check_queue_told,
    check_status,
)
from .supervisors import Supervisors

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE_SECONDS = 30
LACKING = json.dumps({"cause": "PeerLost", "message": "another node's pod has newer code"})
MOST_QUESTIONS = 4
"""How many times a decision may request more information."""
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1"}]}}


@dataclass
class World:
    """Everything that exists of one job."""

    spec: dict[str, Any]
    now: datetime = START
    generation: int = 1
    written: str = "{}"
    """The status as JSON. Nothing else is remembered between two rounds of the operator."""
    version: int = 0
    """Changes with every write to the job, whoever makes it."""
    deleted: bool = False
    pods: dict[str, RealPod] = field(default_factory=dict)
    services: frozenset[str] = frozenset()
    """The names of the job's Services."""
    taken: bool = False
    """Whether somebody else's Service has the name of the job's next one."""
    network_policy: bool = False
    budget: bool | None = None
    """Whether there is a PodDisruptionBudget; None if the operator must not create any."""
    secret: bool = False
    groups: Groups = field(default_factory=Groups)
    kueue: Kueue = field(default_factory=Kueue)
    full: bool = False
    """Whether a quota refuses more pods."""
    ahead: Ahead | None = None
    """Other jobs that come earlier in the line for nodes."""
    lost: dict[str, str] = field(default_factory=dict)
    """Nodes that are gone, with the cluster's description of each, which is empty until the cluster has noticed."""
    machines: tuple[str, ...] = ()
    """All nodes that exist, each with room for one pod; if empty, there is a node for every pod."""
    settings: Settings = field(default_factory=Settings)
    reads_nodes: bool = True
    """Whether the operator may read nodes."""
    books: Books = field(default_factory=Books)
    supervised: bool = False
    """Whether there are supervisors in the pods."""
    supervisors: Supervisors = field(default_factory=Supervisors)
    report: SupervisorReport | None = None
    """The report that the operator last received from rank 0's supervisor."""
    witness: SupervisorReport | None = None
    """The report of another supervisor about itself."""
    config_maps: frozenset[str] = frozenset({config_map(0)})
    """The ConfigMaps with code."""

    def copy(self) -> "World":
        """A copy that changes independently from now on."""
        other = copy.copy(self)
        other.pods = {name: copy.copy(pod) for name, pod in self.pods.items()}
        other.lost, other.books = dict(self.lost), self.books.copy()
        other.supervisors, other.groups = self.supervisors.copy(), self.groups.copy()
        return other

    @property
    def status(self) -> DDPJobStatus:
        """The status as the operator finds it when it next reads the job."""
        return DDPJobStatus.model_validate_json(self.written)

    @property
    def live(self) -> list[RealPod]:
        """Pods that hold a place."""
        return [pod for pod in self.pods.values() if pod.live]

    @property
    def going(self) -> list[RealPod]:
        """Pods that their kubelets have to end and remove."""
        return [pod for pod in self.pods.values() if pod.deleting and not pod.dead]

    @property
    def stopping(self) -> list[RealPod]:
        """Pods that their kubelets have to end and keep."""
        return [pod for pod in self.live if pod.stop_by is not None and pod.running]

    @property
    def job(self) -> DDPJob:
        """The job's object. Reading it is also a check, because its user can only request what is valid."""
        metadata = {"name": "job", "uid": "uid", "generation": self.generation}
        whole = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec}
        return DDPJob.from_dict({**whole, "status": json.loads(self.written)})

    @property
    def owned(self) -> dict[OwnedKind, tuple[Any, ...]]:
        """The objects beside the pods, as an operator sees them."""
        beside = (name_beside(self.job.ref),)
        there = {SERVICE: tuple(self.services), NETWORK_POLICY: beside if self.network_policy else ()}
        if self.budget is not None:
            there[DISRUPTION_BUDGET] = beside if self.budget else ()
        return {**there, **self.groups.seen(), **self.kueue.seen}

    def seen(self, refusal: Refusal | None = None) -> Snapshot:
        """What an operator sees now, after this refusal and with answers to all that a decision needs to know."""
        pods = tuple(pod.seen() for pod in self.pods.values())
        self.groups.let_go([*self.pods.values()])
        there: dict[str, Any] = {"queue": self.kueue.queue, "report": self.report, "ahead": self.ahead}
        seen = Snapshot(self.now, self.job, pods, refusal, self.settings, owned=self.owned, **there)
        questions = 0
        while needs := decide(seen).needs:
            questions += 1
            assert questions <= MOST_QUESTIONS, f"{seen.answered} is not enough: {needs}"
            seen = replace(seen, answered=seen.answered | needs)
            if needs.witness is not None:
                seen = replace(seen, witness=self.witness)
            if needs.flavors:
                seen = replace(seen, flavors=self.kueue.flavors)
            if needs.node_names and self.reads_nodes:
                problems = {node: self.lost[node] for node in needs.node_names if self.lost.get(node)}
                seen = replace(seen, kubernetes_node_problems={**seen.kubernetes_node_problems, **problems})
        return seen

    # What happens by itself.

    def ask(self, **spec: Any) -> None:
        """The user changes the spec."""
        if any(self.spec.get(name) != value for name, value in spec.items()):
            self.spec = {**self.spec, **spec}
            self.generation += 1
            self.version += 1

    def queue_up(self, queue: Queue | None) -> None:
        """The user changes the job's labels."""
        if self.kueue.queue != queue:
            self.kueue = replace(self.kueue, queue=queue)
            self.version += 1

    def place(self, pod: RealPod) -> None:
        """The scheduler places the pod on a living node that has nothing else to run, if there is one.

        No pod is placed while its group waits.
        """
        placed = self.groups.placed_with(pod, self.live) if pod.node is None else []
        for one in placed:
            one.node = self._node_for(one)
            one.scheduled_at = self.now if one.node else None
            one.waiting = None if one.node else Waiting("Unschedulable")

    def _node_for(self, pod: RealPod) -> str | None:
        """A node that no pod of the job holds, if there is one on which the pod may run."""
        if not self.machines:
            return f"node-of-{pod.uid}"
        held = {other.node for other in self.live} | pod.ruled_out
        return next((name for name in self.machines if name not in held), None)

    def start(self, pod: RealPod) -> None:
        """A trainer starts, unless the pod has none or finds no node."""
        self.place(pod)
        if pod.node is not None:
            pod.waiting, pod.running = None, not pod.reserve

    def end(self, pod: RealPod, code: int | None, reason: str = "Error", message: str = "") -> None:
        """A trainer ends."""
        pod.done = code == 0 and not pod.told
        if pod.done:
            self.books.finished.add(pod.name)
        pod.running, pod.waiting, pod.exit = False, None, Exit(code, reason, message, self.now)
        pod.reason = "DeadlineExceeded" if pod.stop_by else pod.reason

    def delete(self, pod: RealPod, grace: int | None = None) -> None:
        """Somebody deletes a pod. A second deletion can only make it disappear sooner.

        The API server waits for a kubelet only if there is one, and only if it has something to end.
        """
        if grace == 0 or pod.node is None or (pod.exit is not None and not pod.lingering):
            del self.pods[pod.name]
            return
        pod.told_at = pod.told_at or self.now
        wanted = self.now + timedelta(seconds=GRACE_SECONDS if grace is None else grace)
        pod.gone_by = wanted if pod.gone_by is None else min(wanted, pod.gone_by)

    def remove(self, pod: RealPod) -> None:
        """A pod disappears."""
        del self.pods[pod.name]

    def take_away(self, pod: RealPod, why: str) -> None:
        """The cluster deletes a pod, and gives a reason."""
        pod.disruption = Disruption(why, "said by the cluster")
        self.delete(pod)

    def lose_sandbox(self, pod: RealPod) -> None:
        """A healthy node loses the sandbox of a pod, and has to end its trainer."""
        pod.sandbox_lost = True

    def lose(self, node: str) -> None:
        """A node dies together with everything that runs there."""
        self.lost[node] = ""
        for pod in self.pods.values():
            pod.dead = pod.dead or pod.node == node

    def notice(self, node: str, *, deletes: bool) -> None:
        """The cluster notices that a node is lost. With `deletes`, it also deletes the node's pods."""
        self.lost[node] = "is not ready: Kubelet stopped posting node status."
        for pod in [pod for pod in self.pods.values() if pod.node == node and deletes and not pod.deleting]:
            self.take_away(pod, "DeletionByTaintManager")

    def find(self, node: str) -> None:
        """A lost node comes back. Everything that ran there has ended."""
        del self.lost[node]
        for pod in [pod for pod in self.pods.values() if pod.node == node]:
            pod.dead = False
            if pod.deleting:
                del self.pods[pod.name]
            elif pod.running:
                self.end(pod, 137)

    # Supervisors.

    def meet(self) -> bool:
        """The supervisors start an attempt, if all are present. If rank 0's lacks the code, they all leave."""
        met = self.supervised and self.supervisors.meet(list(self.pods.values()), self.now)
        if self.supervisors.codes.lacking and self.supervisors.missed is None:
            for pod in [pod for pod in self.live if pod.running]:
                self.end(pod, 204, message=LACKING)
        return met

    def send_code(self, code: int, *, applies: bool) -> None:
        """The user sends other code, as `ddpjob submit --replace --in-place` does.

        Without `applies`, the command dies after it has changed the job.
        """
        supervisors, named, known = self.supervisors, self.spec.get("code"), self.status.code
        codes = supervisors.codes
        former = codes.code if codes.former is None else codes.former
        seen = known.failed.digest if known and known.failed else ""
        if codes.code in {None, code} or digest_of(code) in {codes.refused, seen} or former is None:
            return
        supervisors.codes = codes.prepared(code)
        wanted = config_map(code)
        revision = (named or {}).get("revision", 0) + (named is None or named["configMap"] != wanted)
        self.ask(code={"configMap": wanted, "former": config_map(former), "revision": revision})
        self.config_maps |= {wanted}
        if applies:
            supervisors.take(code, revision, self.now)
            self.config_maps = frozenset({config_map(0), wanted, config_map(former)})

    def finish_step(self) -> None:
        """The ranks finish a step, unless their code fails before."""
        if not is_bad(self.supervisors.codes.code):
            self.supervisors.step()

    def fail(self, rank: int, cause: str) -> None:
        """A rank fails, and the gang starts again in place."""
        leaves = not self.supervisors.members <= {pod.uid for pod in self.live if pod.running and not pod.told}
        self.supervisors.fail(rank % (self.status.nodes or 1), cause, self.now, leaves=leaves)

    def hear(self) -> None:
        """The operator reads the report of rank 0's supervisor, if there is one."""
        report = self.supervisors.report(list(self.pods.values()), self.now, "uid") if self.supervised else None
        self.report = report or self.report

    def hear_nothing(self) -> None:
        """The operator tries to read the report, but gets no answer."""
        asked = self.seen().answered.supervisor
        if asked is not None:
            self.report = with_read_error(self.report, "refused", self.now, pod=asked.pod)

    def hear_another(self) -> None:
        """If rank 0's supervisor does not answer, the operator asks another one, which cannot reach it either."""
        asked, last = self.seen().answered.witness, self.witness
        if asked is not None:
            said = {"uid": "uid", "attempt": 1, "phase": "Gathering", "coordinator": ""}
            self.witness = parse_report(said, self.now, uid="uid", pod=asked.pod, last=last)

    def pass_time(self, seconds: float) -> None:
        """Time passes, and kubelets keep to it. Only on a dead node can a pod exceed its grace period."""
        self.now += timedelta(seconds=seconds)
        for pod in [pod for pod in self.going if pod.gone_by and pod.gone_by <= self.now]:
            del self.pods[pod.name]
        for pod in [pod for pod in self.stopping if pod.stop_by and pod.stop_by <= self.now]:
            self.end(pod, 137)

    # What the operator does to the world.

    def write(self, status: DDPJobStatus) -> None:
        """The status is replaced."""
        before, self.written = self.status, json.dumps(status.to_dict())
        self.version += 1
        assert self.status == status, "the status reads back as it was written, and is valid"
        check_status(self, before, status)
        check_code(self, before, status)

    def carry_out(self, action: Action, version: int) -> bool:
        """Carries out an action, which has no effect if it was done before. Returns False if it is refused."""
        self.groups.let_go([*self.pods.values()])
        match action:
            case Create() | Delete() | Patch():
                return self._change_beside(action)
            case CreatePod():
                return self._create(action.build())
            case DeletePod(name, uid, grace):
                self.books.ended.add(name)
                if name in self.pods and self.pods[name].uid == uid:
                    check_deletion(self, self.pods[name], grace)
                    self.delete(self.pods[name], grace)
            case StopPod(name, uid):
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid and pod.stop_by is None:
                    pod.stop_by = self.now + timedelta(seconds=GRACE_SECONDS)
            case DeleteJob():
                if version == self.version:
                    check_job_deletion(self)
                    self.deleted = True
                    self.pods.clear()
        return True

    def _change_beside(self, action: Create | Delete | Patch) -> bool:
        """Like `carry_out`, for the objects beside the pods."""
        kind, creates = action.kind, isinstance(action, Create)
        if kind is KUEUE_WORKLOAD:
            return self._change_queued(action)
        if kind in {WORKLOAD, POD_GROUP}:
            return self._change_groups(action)
        if kind is SERVICE:
            self.services |= set() if self.taken else {action.name}
            return not self.taken
        if kind is NETWORK_POLICY:
            self.network_policy = creates
        elif kind is DISRUPTION_BUDGET:
            assert self.budget is not None, "it may make none"
            self.budget = creates
        else:
            assert kind is SECRET
            self.secret = True
        return True

    def _change_groups(self, action: Create | Delete | Patch) -> bool:
        """Like `carry_out`, for groups. None can be created if the cluster no longer has such objects."""
        groups = self.groups
        if isinstance(action, Create):
            if not groups.served:
                return False
            check_group_creation(self, action.manifest)
            groups.create(action.manifest)
            return True
        check_group_deletion(self, action.name)
        if action.kind is WORKLOAD:
            groups.workloads -= {action.name}
        else:
            groups.delete(action.name)
        return True

    def _change_queued(self, action: Create | Delete | Patch) -> bool:
        """Like `carry_out`, for places in queues.

        Kueue may refuse any change, and refuses some resizes while it reserves quota.
        """
        kueue = self.kueue
        if not kueue.served or (kueue.refuses and not isinstance(action, Delete)):
            return False
        match action:
            case Create(_, manifest):
                check_queue_entry(self, manifest)
                self.kueue = kueue.enters(manifest)
            case Delete(_, name):
                check_queue_exit(self, name)
                self.kueue = kueue.leaves(name)
            case Patch(change=Tell() as told):
                check_queue_told(self, told)
                self.kueue = kueue.changes(action, self.now)
            case Patch(_, name, Resize() as wanted):
                place = kueue.place(name)
                if place is not None and place.seen.reserved and not check_queue_size(self, place, wanted):
                    return False
                self.kueue = kueue.changes(action, self.now)
        return True

    def _create(self, manifest: Manifest) -> bool:
        name = manifest["metadata"]["name"]
        if name in self.pods:
            return True
        if self.full:
            return False
        assert self.secret, "a pod is made once its Secret is there"
        before = self.books.made.get(name, 0)
        pod = made_of(manifest, f"{name}-{before}", self.now, self.status.bookkeeping.incarnations.default)
        check_creation(self, pod)
        self.books.made[name] = before + 1
        self.books.finished.discard(name)
        self.pods[pod.name] = pod
        check_gang(self)
        return True
