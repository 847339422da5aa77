"""A little Kubernetes for the engine: pods and a Service that do what they like, and a status that is written whole.

The world asserts at every action what must never happen; the machine in `test_histories` only makes things happen.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ddpjob_operator.api import Cause, ConditionType, DDPJob, DDPJobStatus
from ddpjob_operator.api.contract import API_VERSION, KIND, Env, Label
from ddpjob_operator.engine import (
    Action,
    CreatePod,
    CreateService,
    Decision,
    DeletePod,
    Exit,
    Manifest,
    Pod,
    Service,
    Snapshot,
    decide,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE_SECONDS = 30
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1"}]}}


@dataclass
class RealPod:
    """A pod as it really is."""

    name: str
    uid: str
    rank: int
    incarnation: int
    master: str
    world_size: int
    running: bool = False
    exit: Exit | None = None
    gone_by: datetime | None = None
    """When its kubelet will have ended it, once it is deleted."""
    dead: bool = False
    """Its node is gone, and nobody is left to say so."""

    @property
    def live(self) -> bool:
        """Whether its trainer runs or may still come to run."""
        return self.exit is None and not self.dead

    @property
    def deleting(self) -> bool:
        """Whether it was deleted."""
        return self.gone_by is not None

    def delete(self, now: datetime, grace: int | None = None) -> None:
        """Somebody deletes it; a second time can only make it go sooner."""
        wanted = now + timedelta(seconds=GRACE_SECONDS if grace is None else grace)
        self.gone_by = wanted if self.gone_by is None else min(wanted, self.gone_by)

    def seen(self) -> Pod:
        """The pod as an operator sees it."""
        return Pod(
            name=self.name,
            uid=self.uid,
            rank=self.rank,
            incarnation=self.incarnation,
            running=self.running,
            exit=self.exit,
            deleting=self.deleting,
            gone_by=self.gone_by,
        )


def made_of(manifest: Manifest, uid: str) -> RealPod:
    """The pod that a manifest asks for."""
    labels, containers = manifest["metadata"]["labels"], manifest["spec"]["containers"]
    env = {variable["name"]: variable["value"] for variable in containers[0]["env"]}
    rank, incarnation = int(labels[Label.RANK]), int(labels[Label.INCARNATION])
    assert env[Env.NODE_RANK] == labels[Label.RANK]
    assert env[Env.INCARNATION] == labels[Label.INCARNATION]
    name = manifest["metadata"]["name"]
    return RealPod(name, uid, rank, incarnation, env[Env.MASTER_ADDR], int(env[Env.WORLD_SIZE]))


@dataclass
class World:
    """All that there is of one job."""

    spec: dict[str, Any]
    now: datetime = START
    generation: int = 1
    written: str = "{}"
    """The status, as JSON: nothing else is remembered between two looks."""
    version: int = 0
    """Changes with every write to the job, by whomsoever."""
    pods: dict[str, RealPod] = field(default_factory=dict)
    service: Service = Service.MISSING
    pods_made: int = 0
    told_to_end: set[str] = field(default_factory=set)
    """Names of the pods that the operator has deleted."""
    spent: int = 0
    """Counted restarts since the job was last healthy for a whole window."""

    @property
    def status(self) -> DDPJobStatus:
        """The status as the next look finds it."""
        return DDPJobStatus.model_validate_json(self.written)

    @property
    def live(self) -> list[RealPod]:
        """Pods whose trainer runs or may still come to run."""
        return [pod for pod in self.pods.values() if pod.live]

    def seen(self) -> Snapshot:
        """What an operator sees now."""
        metadata = {"name": "job", "uid": "uid", "generation": self.generation}
        whole = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec}
        job = DDPJob.from_dict({**whole, "status": json.loads(self.written)})
        return Snapshot(self.now, job, tuple(pod.seen() for pod in self.pods.values()), self.service)

    def ask(self, **spec: Any) -> None:
        """The user changes the spec."""
        if any(self.spec.get(name) != value for name, value in spec.items()):
            self.spec = {**self.spec, **spec}
            self.generation += 1
            self.version += 1

    def end(self, pod: RealPod, code: int, reason: str = "Error", message: str = "") -> None:
        """A trainer ends."""
        pod.running, pod.exit = False, Exit(code, reason, message, self.now)

    def pass_time(self, seconds: float) -> None:
        """Time goes by, and kubelets keep to it: only on a dead node does a deleted pod outstay its grace period."""
        self.now += timedelta(seconds=seconds)
        for pod in list(self.pods.values()):
            if pod.gone_by is not None and pod.gone_by <= self.now and not pod.dead:
                self.pods.pop(pod.name)

    # What the operator does to the world.

    def write(self, status: DDPJobStatus) -> None:
        """The status is replaced."""
        before, self.written = self.status, json.dumps(status.to_dict())
        self.version += 1
        assert self.status == status, "the status reads back as it was written, and is valid"
        self._check_counters(before, status)
        self._check_budget(before, status)
        if status.finished or status.is_true(ConditionType.SUSPENDED):
            assert not self.live, "neither a finished nor a suspended job has anything that runs"
        if before.finished:
            assert (before.conditions, before.completion_time) == (status.conditions, status.completion_time)

    def carry_out(self, action: Action) -> None:
        """An action is done, or has no effect where it was done before."""
        match action:
            case CreateService():
                self.service = Service.OURS if self.service is Service.MISSING else self.service
            case CreatePod(_, manifest):
                self._create(manifest)
            case DeletePod(name, uid, grace):
                self.told_to_end.add(name)
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid:
                    pod.delete(self.now, grace)

    def _create(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if name in self.pods:
            return
        self.pods_made += 1
        pod = made_of(manifest, f"uid-{self.pods_made}")
        assert not self.status.finished, "a finished job gets no pods"
        assert name not in self.told_to_end, "a pod that the operator has ended does not come back"
        old = [other.name for other in self.live if other.incarnation != pod.incarnation]
        assert not old, f"{name} was created while {old} of another attempt live"
        self.pods[name] = pod
        self.check_gang()

    # What must never be.

    def check_gang(self) -> None:
        """Live pods are one gang: one incarnation, each rank once, one master, one world."""
        live = self.live
        ranks = [(pod.incarnation, pod.rank) for pod in live]
        assert len(set(ranks)) == len(ranks), f"two live pods of one rank and incarnation: {ranks}"
        worlds = {(pod.incarnation, pod.master, pod.world_size) for pod in live}
        assert len(worlds) <= 1, f"a world of mixed attempts: {worlds}"
        assert all(pod.rank < pod.world_size for pod in live)

    def _check_counters(self, before: DDPJobStatus, after: DDPJobStatus) -> None:
        then, now = _counters(before), _counters(after)
        attempts, incarnations, restarts, disruptions = (new - old for old, new in zip(then, now, strict=True))
        if (attempts, restarts, disruptions) == (0, -1, 1):
            assert (before.last_failure.cause, after.last_failure.cause) == (Cause.PEER_LOST, Cause.NODE_LOST)
            return
        assert all(old <= new <= old + 1 for old, new in zip(then, now, strict=True)), f"{then} -> {now}"
        assert attempts == incarnations, "every attempt has pods of its own"
        assert restarts + disruptions <= attempts, "a restart is an attempt, and costs once"

    def _check_budget(self, before: DDPJobStatus, after: DDPJobStatus) -> None:
        restart = self.seen().job.spec.restart
        running = before.condition(ConditionType.RUNNING)
        window = timedelta(seconds=restart.window_seconds)
        if running is not None and running.status == "True" and self.now - running.last_transition_time >= window:
            self.spent = 0
        self.spent += after.restarts - before.restarts
        assert self.spent <= restart.max_restarts, "more restarts than the budget allows"


def _counters(status: DDPJobStatus) -> tuple[int, int, int, int]:
    return status.attempt, status.incarnations.default, status.restarts, status.disruptions


@dataclass
class Operator:
    """Looks, writes, acts; may die after any step, and remembers nothing."""

    world: World
    seen: int = 0
    """The job's version at the last look."""
    decision: Decision = field(default_factory=Decision)
    to_do: list[Action] = field(default_factory=list)

    def look(self) -> None:
        """Decides about what is there now."""
        snapshot = self.world.seen()
        self.seen, self.decision = self.world.version, decide(snapshot)
        assert decide(snapshot) == self.decision, "the same moment, the same decision"
        assert self.decision.wake_at is None or self.decision.wake_at > self.world.now
        self.to_do = [] if self.decision.status else list(self.decision.actions)

    def write(self) -> None:
        """Writes the status that was decided on; refused where the job has changed since the look."""
        status = self.decision.status
        if status is None:
            return
        if self.seen != self.world.version:
            self.die()
            return
        self.world.write(status)
        self.to_do, self.decision = list(self.decision.actions), Decision(wake_at=self.decision.wake_at)

    def act(self) -> None:
        """Carries out the next action."""
        if self.to_do:
            self.world.carry_out(self.to_do.pop(0))

    def die(self) -> None:
        """Forgets everything."""
        self.decision, self.to_do = Decision(), []

    def round(self) -> None:
        """A whole round without a fault."""
        self.look()
        self.write()
        while self.to_do:
            self.act()
