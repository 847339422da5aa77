"""When each field of a DDPJob's spec may change, and what its least value, greatest value and removal cause.

This is the specification that docs/reference/lifecycle.md describes in words ("What may change when"). Information
that the schema contains is not repeated here: a field's bounds, its words, its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from ddpjob_operator.api import Cause
from ddpjob_operator.api.numbers import MOST_SECONDS
from ddpjob_operator.api.restart import LAST_EXIT_CODE, Signal

from tests.support.exit_codes import among
from tests.support.jobs import FOR_LONG, STUBBORN, steered


class When(StrEnum):
    """When a field may change."""

    ALWAYS = "always"
    WHILE_SUSPENDED = "only while the job is suspended"
    NEVER = "never"


class Change(StrEnum):
    """How a field is changed."""

    LEAST = "least"
    GREATEST = "greatest"
    REMOVED = "removed"


class Then(Enum):
    """What happens after the operator has seen the change."""

    NOTHING = "nothing"
    RANK_1_FAILS = "rank 1 fails"
    RANK_1_IS_DELETED = "rank 1's pod is deleted"
    RANK_0_FINISHES = "rank 0 finishes"
    ALL_FINISH = "all ranks finish"
    IT_FAILS_AGAIN = "rank 1 fails, and once all have run for a second, once more"
    IT_IS_RESUMED = "the job is resumed"


@dataclass(frozen=True)
class Follows:
    """The expected state of the job. Every field that is given must match; None matches anything.

    reason     of the condition that is named like the state
    message    a part of it
    variables  of the trainer in the present pods; None if the variable must be missing
    grace      of pods that are being deleted
    waits      whether the next attempt waits for as long as a job can request
    pods       of the newest incarnation: the phases of ranks 0, 1, …
    group      a part of the spec of the present attempt's PodGroup
    """

    state: str | None = "Running"
    attempt: int | None = 1
    ready: str | None = None
    reason: str | None = None
    message: str = ""
    variables: Mapping[str, str | None] = field(default_factory=dict)
    grace: int | None = None
    waits: bool | None = None
    pods: tuple[str, ...] | None = None
    master_waits: bool | None = None
    policy: bool | None = None
    budget: bool | None = None
    group: Mapping[str, Any] | None = None


GOES_ON = Follows(ready="2/2")
RESTARTS = Follows(attempt=2, ready="2/2")
ALL_DONE = Follows("Succeeded")
GONE = Follows(None, None)
"""The job no longer exists."""
ONE_DONE = Follows(message="1 of 2 nodes finished: rank 0")
NOT_PLACED = Follows("Starting")


def _fails(reason: str, attempt: int = 1) -> Follows:
    return Follows("Failed", attempt, reason=reason)


def _with(attempt: int = 2, **variables: str | None) -> Follows:
    """The next pods have these variables."""
    return Follows(attempt=attempt, ready="2/2", variables=variables)


FROM_SCHEMA: Any = object()


@dataclass(frozen=True)
class Field:
    """The tests of one field.

    after     what follows from its least value, its greatest, and its removal; None if that is tested elsewhere
    least, greatest  if these values do not follow from the schema alone
    wrong     values that are refused beyond those that the schema refuses, and words that say what would be right
    job       fields of the job before the change, which has two nodes
    beside    what has to change at the same time, because fields must agree
    refused   changes that a running job of two nodes does not allow, and the words of the refusal
    """

    when: When
    after: tuple[Follows | None, Follows | None, Follows | None] = (None, None, None)
    then: Then = Then.NOTHING
    how: Mapping[str, str] = field(default_factory=dict)
    """How the pod fails."""
    least: Any = FROM_SCHEMA
    greatest: Any = FROM_SCHEMA
    wrong: tuple[tuple[Any, str], ...] = ()
    job: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=lambda: FOR_LONG)
    begins: str = "Running"
    beside: Mapping[Change, Mapping[str, Any]] = field(default_factory=dict)
    refused: Mapping[Change, str] = field(default_factory=dict)


def _always(least: Follows | None, greatest: Follows | None, removed: Follows | None, /, **more: Any) -> Field:
    return Field(When.ALWAYS, (least, greatest, removed), **more)


def _suspended(least: Follows, greatest: Follows, removed: Follows | None, /, **more: Any) -> Field:
    """A field that is changed while the job is suspended. The job is then resumed."""
    return Field(When.WHILE_SUSPENDED, (least, greatest, removed), Then.IT_IS_RESUMED, begins="Suspended", **more)


def _variable(name: str, least: str, greatest: str, removed: str | None, /, **more: Any) -> Field:
    """A field that changes a variable of the next pods only."""
    untold = more.get("refused", {})
    told = (
        None if change in untold else _with(**{name: value})
        for change, value in zip(Change, (least, greatest, removed), strict=True)
    )
    return Field(When.ALWAYS, tuple(told), Then.RANK_1_FAILS, **more)  # type: ignore[arg-type]


def _new_variable(name: str, least: str | None, greatest: str, removed: str | None, /, **more: Any) -> Field:
    told = (_with(1, **{name: value}) for value in (least, greatest, removed))
    return _suspended(*told, **more)


def _port(variable: str, removed: str, /, wrong: tuple[tuple[Any, str], ...] = (), **port: int) -> Field:
    return _new_variable(variable, "1024", "65535", removed, job={"network": port}, wrong=wrong)


SOON = {"backoffSeconds": 0}
NO_RESTART = {"restart": {"maxRestarts": 0}}
MOST = str(MOST_SECONDS)
LONG_PATH = "/" + "a" * 1023
IN_ELASTIC = {"elastic": {"minNodes": 2, "maxNodes": 2, "shrinkAfterSeconds": 60}}
NAMED = "should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'"
NOTHING_MATCHES = {Change.REMOVED: "matches nothing; give one of exitCodes, signals, causes"}
NEEDED = {Change.REMOVED: "Required value"}
PORTS_DIFFER = "ports must differ"


def _topology(how: str) -> Field:
    """A field that has no effect on a gang that has already been placed."""
    return _always(
        GOES_ON,
        GOES_ON,
        None,
        least="a",
        greatest="a" * 317,
        wrong=(("no label", "should match"),),
        job={"scheduling": {"topology": {how: "kubernetes.io/hostname"}}},
        refused={Change.REMOVED: "needs exactly one of required and preferred"},
    )


def _placed(**group: Any) -> Follows:
    """The spec of the next attempt's PodGroup contains this."""
    return Follows(attempt=2, ready="2/2", group=group)


def _choice(choices: str, **group: Any) -> Field:
    """One of several choices, exactly one of which must be present. It has no value of its own."""
    return _always(
        _placed(**group),
        _placed(**group),
        None,
        job={"restart": SOON},
        wrong=(({"more": 1}, "unknown field"),),
        refused={Change.REMOVED: f"needs exactly one of {choices}"},
        then=Then.RANK_1_FAILS,
    )


def _saved(**checkpoint: Any) -> dict[str, Any]:
    return {"checkpoint": {"path": "/checkpoints", **checkpoint}}


def _rule(**rule: Any) -> dict[str, Any]:
    return {"restart": {**SOON, "rules": [rule]}}


WITH_CODE = {
    "code": {"configMap": "ddpjob-code-1", "revision": 7},
    "template": {
        "metadata": {"annotations": FOR_LONG},
        "spec": {
            "containers": [
                {
                    "name": "trainer",
                    "image": "nothing",
                    "volumeMounts": [{"name": "code-archive", "mountPath": "/ddpjob/archive"}],
                }
            ],
            "volumes": [{"name": "code-archive", "configMap": {"name": "ddpjob-code-0"}}],
        },
    },
}

FIELDS: dict[str, Field] = {
    # the number of nodes, and whether the job runs
    "nodes": _always(Follows(attempt=2, ready="1/1"), None, Follows(attempt=2, ready="1/1")),
    "suspend": _always(GOES_ON, Follows("Suspended"), GOES_ON, job={"suspend": False}),
    "cancel": _always(GOES_ON, _fails("Cancelled"), GOES_ON, job={"cancel": False}),
    # code that takes the place of the template's, in new pods
    "code.configMap": _always(
        GOES_ON,
        GOES_ON,
        None,
        least="a",
        greatest="a" * 253,
        wrong=(("No name", "should match"),),
        job=WITH_CODE,
        refused=NEEDED,
    ),
    "code.former": _always(
        GOES_ON,
        GOES_ON,
        GOES_ON,
        least="a",
        greatest="a" * 253,
        wrong=(("No name", "should match"),),
        job=WITH_CODE | {"code": {**WITH_CODE["code"], "former": "ddpjob-code-0"}},
    ),
    "code.revision": _variable(
        "DDPJOB_CODE_REVISION", "1", "1000000000", None, job=WITH_CODE | {"restart": SOON}, refused=NEEDED
    ),
    "elastic.minNodes": _always(
        GOES_ON, None, GOES_ON, job=IN_ELASTIC, refused={Change.GREATEST: "is less than elastic.minNodes"}
    ),
    "elastic.maxNodes": _always(
        None, GOES_ON, GOES_ON, job=IN_ELASTIC, refused={Change.LEAST: "is more than elastic.maxNodes"}
    ),
    "elastic.shrinkAfterSeconds": _always(GOES_ON, GOES_ON, GOES_ON, job=IN_ELASTIC),
    # placement, which changes with the next attempt
    "scheduling.schedulingPolicy.gang.minCount": _always(
        _placed(schedulingPolicy={"gang": {"minCount": 1}}),
        None,
        _placed(schedulingPolicy={"gang": {"minCount": 2}}),
        job={"scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}, "restart": SOON},
        refused={Change.GREATEST: "is more than nodes"},
        then=Then.RANK_1_FAILS,
    ),
    "scheduling.topology.required": _topology("required"),
    "scheduling.topology.preferred": _topology("preferred"),
    "scheduling.schedulingPolicy.basic": _choice("basic and gang", schedulingPolicy={"basic": {}}),
    "scheduling.disruptionMode.single": _choice("single and all", disruptionMode={"single": {}}),
    "scheduling.disruptionMode.all": _choice("single and all", disruptionMode={"all": {}}),
    # protection against disruptions, which may change at any time
    "disruption": _always(
        Follows(ready="2/2", budget=False),
        Follows(ready="2/2", budget=True),
        Follows(ready="2/2", budget=False),
        job={"disruption": "AfterCheckpoint"},
    ),
    # time limits
    "activeDeadlineSeconds": _always(
        _fails("DeadlineExceeded"), GOES_ON, GOES_ON, job={"activeDeadlineSeconds": 3600}
    ),
    "startDeadlineSeconds": _always(
        _fails("StartDeadlineExceeded"),
        NOT_PLACED,
        NOT_PLACED,
        job={"startDeadlineSeconds": 3600},
        annotations=steered(waits_for="ContainerCreating"),
        begins="Starting",
    ),
    "scheduleTimeoutSeconds": _always(
        Follows(None, None, message="not all pods were running within 3 s (3 times scheduleTimeoutSeconds)"),
        NOT_PLACED,
        NOT_PLACED,
        job={"scheduleTimeoutSeconds": 300, "restart": SOON},
        annotations=steered(waits_for="ContainerCreating"),
        begins="Starting",
    ),
    "finishTimeoutSeconds": _always(
        RESTARTS, ONE_DONE, ONE_DONE, job={"finishTimeoutSeconds": 60, "restart": SOON}, then=Then.RANK_0_FINISHES
    ),
    "ttlSecondsAfterFinished": _always(
        GONE, ALL_DONE, ALL_DONE, job={"ttlSecondsAfterFinished": 3600}, then=Then.ALL_FINISH
    ),
    "stallTimeoutSeconds": _variable(
        "DDPJOB_STALL_TIMEOUT_SECONDS", "1", MOST, None, job={"stallTimeoutSeconds": 60, "restart": SOON}
    ),
    "firstStepTimeoutSeconds": _variable(
        "DDPJOB_FIRST_STEP_TIMEOUT_SECONDS", "1", MOST, None, job={"firstStepTimeoutSeconds": 60, "restart": SOON}
    ),
    # what ends the job, and which pods remain then
    "successPolicy": _always(ONE_DONE, ALL_DONE, ONE_DONE, then=Then.RANK_0_FINISHES),
    "cleanPodPolicy": _always(
        Follows("Failed", pods=("Running", "Failed")),
        Follows("Failed", pods=()),
        Follows("Failed", pods=("Failed",)),
        job={"cleanPodPolicy": "All"} | NO_RESTART,
        then=Then.RANK_1_FAILS,
    ),
    # after a failure
    "restart.mode": _variable("DDPJOB_IN_PLACE_RESTARTS", "5", "0", "5", job={"restart": SOON}),
    "restart.inPlaceRestarts": _variable("DDPJOB_IN_PLACE_RESTARTS", "0", "6", "5", job={"restart": SOON}),
    "restart.maxRestarts": _always(
        _fails("MaxRestartsExceeded"), RESTARTS, RESTARTS, job={"restart": SOON}, then=Then.RANK_1_FAILS
    ),
    "restart.maxDisruptions": _always(
        _fails("MaxDisruptionsExceeded"), RESTARTS, RESTARTS, job={"restart": SOON}, then=Then.RANK_1_IS_DELETED
    ),
    "restart.windowSeconds": _always(
        Follows(attempt=3, ready="2/2"),
        _fails("MaxRestartsExceeded", 2),
        _fails("MaxRestartsExceeded", 2),
        job={"restart": SOON | {"maxRestarts": 1, "windowSeconds": 60}},
        then=Then.IT_FAILS_AGAIN,
    ),
    "restart.backoffSeconds": _always(
        RESTARTS,
        Follows("Restarting", 2, waits=True),
        RESTARTS,
        job={"restart": {"backoffSeconds": 60}},
        then=Then.RANK_1_FAILS,
        beside={Change.GREATEST: {"restart.maxBackoffSeconds": MOST_SECONDS}},
    ),
    "restart.maxBackoffSeconds": _always(
        RESTARTS,
        RESTARTS,
        RESTARTS,
        job={"restart": {"maxBackoffSeconds": 1}},
        then=Then.RANK_1_FAILS,
        beside={Change.LEAST: {"restart.backoffSeconds": 0}},
    ),
    "restart.gracePeriodSeconds": _always(
        RESTARTS,
        Follows(None, 2, grace=MOST_SECONDS),
        Follows(None, 2, grace=5),
        job={"restart": SOON | {"gracePeriodSeconds": 600}},
        annotations=STUBBORN,
        then=Then.RANK_1_FAILS,
    ),
    "restart.rules": _always(
        RESTARTS,
        _fails("Application"),
        RESTARTS,
        job={"restart": SOON},
        greatest=[{"action": "Restart", "exitCodes": among(7)}] * 19 + [{"action": "Fail", "exitCodes": among(1)}],
        then=Then.RANK_1_FAILS,
    ),
    "restart.rules[].exitCodes.operator": _always(
        RESTARTS,
        _fails("Application"),
        None,
        job=_rule(action="Fail", exitCodes=among(7)),
        refused=NEEDED,
        then=Then.RANK_1_FAILS,
    ),
    "restart.rules[].exitCodes.values": _always(
        _fails("Application"),
        _fails("Application"),
        None,
        job=_rule(action="Fail", exitCodes=among(7)),
        greatest=[*range(1, LAST_EXIT_CODE + 1)],
        wrong=(
            ([0], "should be greater than or equal to 1"),
            ([256], "should be less than or equal to 255"),
            (["64-78"], "must be of type integer"),
            ([3, 3], "Duplicate value"),
        ),
        refused=NEEDED,
        then=Then.RANK_1_FAILS,
    ),
    "restart.rules[].signals": _always(
        _fails("Application"),
        _fails("Application"),
        None,
        job=_rule(action="Fail", signals=["SIGBUS"]),
        greatest=list(Signal),
        refused=NOTHING_MATCHES,
        then=Then.RANK_1_FAILS,
        how={"exit_code": "129"},
    ),
    "restart.rules[].causes": _always(
        _fails("Application"),
        _fails("Application"),
        None,
        job=_rule(action="Fail", causes=["Stalled"]),
        greatest=list(Cause),
        refused=NOTHING_MATCHES,
        then=Then.RANK_1_FAILS,
    ),
    "restart.rules[].action": _always(
        RESTARTS,
        _fails("Application"),
        None,
        job=_rule(action="RestartFree", exitCodes=among(1)),
        refused=NEEDED,
        then=Then.RANK_1_FAILS,
    ),
    "preflight": _variable(
        "DDPJOB_PREFLIGHT", "Disabled", "Full", "Fast", job={"preflight": "Disabled", "restart": SOON}
    ),
    # the content of the pods
    "procsPerNode": _suspended(
        _with(1, NPROC_PER_NODE="1", WORLD_SIZE="2"),
        _with(1, NPROC_PER_NODE="64", WORLD_SIZE="128", RANK=None),
        _with(1, NPROC_PER_NODE="1", WORLD_SIZE="2"),
        job={"procsPerNode": 2},
    ),
    "backend": _new_variable("DDPJOB_BACKEND", "gloo", "gloo", "gloo", job={"backend": "NCCL"}),
    "network.masterPort": _port("MASTER_PORT", "29500", masterPort=2000),
    "network.statusPort": _port("DDPJOB_STATUS_PORT", "29501", wrong=((29500, PORTS_DIFFER),), statusPort=2000),
    "network.controlPort": _port("DDPJOB_CONTROL_PORT", "29502", wrong=((29500, PORTS_DIFFER),), controlPort=2000),
    "network.waitForMaster": _suspended(
        Follows(ready="2/2", master_waits=False),
        Follows(ready="2/2", master_waits=True),
        Follows(ready="2/2", master_waits=True),
        job={"network": {"waitForMaster": False}},
    ),
    "network.policy": _suspended(
        Follows(ready="2/2", policy=True),
        Follows(ready="2/2", policy=False),
        Follows(ready="2/2", policy=True),
        job={"network": {"policy": "Enabled"}},
    ),
    "checkpoint.path": _suspended(
        _with(1, DDPJOB_CHECKPOINT_DIR="/a"),
        _with(1, DDPJOB_CHECKPOINT_DIR=LONG_PATH),
        None,
        job=_saved(),
        least="/a",
        greatest=LONG_PATH,
        wrong=tuple((path, "should match '^(/+[^/:][^:]*$|") for path in ("runs", "/a:b", "/")),
        refused=NEEDED,
    ),
    "checkpoint.everySteps": _new_variable(
        "DDPJOB_CHECKPOINT_EVERY_STEPS", "1", "1000000000", None, job=_saved(everySteps=7)
    ),
    "checkpoint.everySeconds": _new_variable(
        "DDPJOB_CHECKPOINT_EVERY_SECONDS",
        "1",
        MOST,
        None,
        job=_saved(everySeconds=7),
    ),
    "checkpoint.interval": _new_variable(
        "DDPJOB_CHECKPOINT_EVERY_SECONDS", None, "Auto", None, job=_saved(interval="Auto")
    ),
    "checkpoint.keep": _new_variable("DDPJOB_CHECKPOINT_KEEP", "1", "1000", "3", job=_saved(keep=7)),
    "checkpoint.localCopySizeLimit": _new_variable(
        "DDPJOB_CHECKPOINT_LOCAL_COPY_BYTES",
        "0",
        str(999_999_999 << 40),
        None,
        job=_saved(localCopySizeLimit="1Gi"),
        least="0",
        greatest="999999999Ti",
        wrong=tuple((size, "should match '^(0|[1-9]") for size in ("1.5Gi", "-1", "1GB", "01")),
    ),
    "history.path": _suspended(
        _with(1, DDPJOB_HISTORY="/a"),
        _with(1, DDPJOB_HISTORY=LONG_PATH),
        _with(1, DDPJOB_HISTORY=None),
        job={"history": {"path": "/history"}},
        least="/a",
        greatest=LONG_PATH,
        wrong=tuple((path, "should match '^(/+[^/:][^:]*$|") for path in ("runs", "/a:b", "/")),
    ),
    "history.mode": _suspended(
        _with(1, DDPJOB_HISTORY="/history"),
        _with(1, DDPJOB_HISTORY=None),
        _with(1, DDPJOB_HISTORY="/history"),
        job={"history": {"path": "/history", "mode": "Disabled"}},
    ),
    # who manages the job
    "managedBy": Field(
        When.NEVER,
        least="a/A",
        greatest="a/" + "A" * 61,
        wrong=(("other", NAMED), ("example.com/", NAMED)),
        job={"managedBy": "example.com/other"},
    ),
}
"""The table, by the field's path. Fields that Kubernetes defines (the pod template, a volume's source) are not in
it."""
