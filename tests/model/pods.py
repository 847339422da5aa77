"""The actual state of a pod, in contrast to what an operator can see of it."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api.contract import CODE_VOLUME, Env, Label
from ddpjob_operator.engine import Disruption, Exit, Manifest, Pod, Waiting
from ddpjob_operator.engine.manifests.init_containers import RESERVE_CONTAINER

from tests.support.variables import variables_of


@dataclass
class RealPod:
    """A pod of the job, whether it runs or not."""

    name: str
    uid: str
    rank: int
    incarnation: int
    master: str
    world_size: int
    start: int
    """The start of the whole gang for which the pod was created, identified by the smallest incarnation of its
    ranks."""
    attempt: int
    """The attempt in the pod's environment."""
    reserve: bool
    """Whether the pod only holds a place, so that its trainer never starts."""
    group: str | None
    """The PodGroup that the pod names."""
    selector: dict[str, str]
    """The labels of nodes on which the pod may run."""
    ruled_out: frozenset[str]
    """The names of nodes on which the pod must not run."""
    created_at: datetime
    code: int | None = None
    """The code that the pod was made with; None if that is in its image."""
    revision: int = 0
    """The revision of that code."""
    node: str | None = None
    scheduled_at: datetime | None = None
    waiting: Waiting | None = None
    running: bool = False
    exit: Exit | None = None
    done: bool = False
    """Whether its trainer ended with 0 before anybody told it to stop."""
    lingering: bool = False
    """Whether another container still runs although the trainer has ended."""
    reason: str = ""
    disruption: Disruption | None = None
    sandbox_lost: bool = False
    """Whether the pod's node lost its sandbox while the trainer ran. The node will therefore end the trainer."""
    stop_by: datetime | None = None
    """When its kubelet will have ended the pod, after it was told to stop but not deleted."""
    told_at: datetime | None = None
    """When the pod was deleted."""
    gone_by: datetime | None = None
    """When its kubelet will have ended and removed the pod, after it was deleted."""
    dead: bool = False
    """Whether its node is gone, so that nobody reports the pod's end."""

    @property
    def live(self) -> bool:
        """Whether the pod holds a place: one of its containers runs, or may still start."""
        return self.exit is None and not self.dead

    @property
    def trains(self) -> bool:
        """Whether its trainer runs or may still start."""
        return self.live and not self.reserve

    @property
    def deleting(self) -> bool:
        """Whether the pod was deleted."""
        return self.gone_by is not None

    @property
    def told(self) -> bool:
        """Whether anybody wants the pod to end."""
        return self.deleting or self.stop_by is not None or self.disruption is not None or self.sandbox_lost

    @property
    def waits(self) -> bool:
        """Whether the pod does not run yet, and was not deleted."""
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
    """The pod that a manifest describes, in this start of the whole gang."""
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
        code=_code(manifest["spec"].get("volumes", [])),
        revision=int(env.get(Env.CODE_REVISION, 0)),
    )


def digest_of(code: int) -> str:
    """The digest of a code. Codes are numbers: 0 is the template's."""
    return f"{code:064x}"


def is_bad(code: int | None) -> bool:
    """Whether a code always fails before its first step: odd ones do."""
    return code is not None and code % 2 == 1


def config_map(code: int) -> str:
    """The name of the ConfigMap with a code."""
    return f"code-{code}"


def _code(volumes: list[Manifest]) -> int | None:
    names = [volume["configMap"]["name"] for volume in volumes if volume["name"] == CODE_VOLUME]
    return int(names[0].removeprefix("code-")) if names else None


def _ruled_out(affinity: Manifest) -> frozenset[str]:
    """The nodes that a required node affinity excludes by name."""
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    fields = [field for term in terms for field in term["matchFields"]]
    assert all((field["key"], field["operator"]) == ("metadata.name", "NotIn") for field in fields)
    return frozenset(name for field in fields for name in field["values"])
