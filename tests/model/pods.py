"""A pod as it really is, beside what an operator can see of it."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api.contract import Env, Label
from ddpjob_operator.engine import Disruption, Exit, Manifest, Pod, Waiting
from ddpjob_operator.engine.manifests.init_containers import RESERVE_CONTAINER

from tests.support.variables import variables_of


@dataclass
class RealPod:
    """A pod of the job, wherever it runs or does not."""

    name: str
    uid: str
    rank: int
    incarnation: int
    master: str
    world_size: int
    start: int
    """Which start of the whole gang it was made in: the smallest incarnation of its ranks."""
    attempt: int
    """The attempt that it was told of."""
    reserve: bool
    """Whether it only holds a place, and its trainer never starts."""
    group: str | None
    """The PodGroup that it names."""
    selector: dict[str, str]
    """Which nodes it may run on."""
    ruled_out: frozenset[str]
    """Names of nodes that it may not run on."""
    created_at: datetime
    node: str | None = None
    scheduled_at: datetime | None = None
    waiting: Waiting | None = None
    running: bool = False
    exit: Exit | None = None
    done: bool = False
    """Whether its trainer ended well before anybody told it to end."""
    lingering: bool = False
    """Another container goes on although the trainer has ended."""
    reason: str = ""
    disruption: Disruption | None = None
    sandbox_lost: bool = False
    """Its node has lost its sandbox while the trainer ran, and ends that."""
    stop_by: datetime | None = None
    """When its kubelet will have ended it, once it is told to stop and to stay."""
    told_at: datetime | None = None
    """When it was deleted."""
    gone_by: datetime | None = None
    """When its kubelet will have ended and removed it, once it is deleted."""
    dead: bool = False
    """Its node is gone, and nobody is left to say so."""

    @property
    def live(self) -> bool:
        """Whether it holds a place: something of it runs or may still come to run."""
        return self.exit is None and not self.dead

    @property
    def trains(self) -> bool:
        """Whether its trainer runs or may still come to run."""
        return self.live and not self.reserve

    @property
    def deleting(self) -> bool:
        """Whether it was deleted."""
        return self.gone_by is not None

    @property
    def told(self) -> bool:
        """Whether somebody wants it to end."""
        return self.deleting or self.stop_by is not None or self.disruption is not None or self.sandbox_lost

    @property
    def waits(self) -> bool:
        """Whether it does not run yet, and nobody wants it gone."""
        return self.live and not self.running and not self.deleting

    def seen(self) -> Pod:
        """The pod as an operator sees it."""
        return Pod(
            name=self.name,
            uid=self.uid,
            node=self.rank,
            incarnation=self.incarnation,
            running=self.running,
            exit=self.exit,
            deleting=self.deleting,
            told_at=self.told_at,
            node_name=self.node,
            address=f"10.0.0.{self.rank}" if self.running else None,
            waiting=self.waiting,
            created_at=self.created_at,
            scheduled_at=self.scheduled_at,
            reason=self.reason,
            disruption=self.disruption,
            sandbox_lost=self.sandbox_lost,
            stopped=self.stop_by is not None,
            gone_by=self.gone_by,
            lingering=self.lingering,
        )


def made_of(manifest: Manifest, uid: str, now: datetime, start: int) -> RealPod:
    """The pod that a manifest asks for, in this start of the whole gang."""
    labels, containers = manifest["metadata"]["labels"], manifest["spec"]["containers"]
    env = variables_of(containers[0])
    assert env[Env.NODE_RANK] == labels[Label.NODE]
    assert env[Env.INCARNATION] == labels[Label.INCARNATION]
    first = [container["name"] for container in manifest["spec"].get("initContainers", ())][:1]
    return RealPod(
        name=manifest["metadata"]["name"],
        uid=uid,
        rank=int(labels[Label.NODE]),
        incarnation=int(labels[Label.INCARNATION]),
        master=env[Env.MASTER_ADDR],
        world_size=int(env[Env.WORLD_SIZE]),
        start=start,
        attempt=int(env[Env.ATTEMPT]),
        reserve=first == [RESERVE_CONTAINER],
        group=manifest["spec"].get("schedulingGroup", {}).get("podGroupName"),
        selector=manifest["spec"].get("nodeSelector", {}),
        ruled_out=_ruled_out(manifest["spec"].get("affinity", {}).get("nodeAffinity", {})),
        created_at=now,
    )


def _ruled_out(affinity: Manifest) -> frozenset[str]:
    """The nodes that a required node affinity excludes by name."""
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    fields = [field for term in terms for field in term["matchFields"]]
    assert all((field["key"], field["operator"]) == ("metadata.name", "NotIn") for field in fields)
    return frozenset(name for field in fields for name in field["values"])
