"""What a pod is given where its template says nothing, and that the template wins where it says something."""

import json
import re
import subprocess
import time
from typing import Any

import psutil
import pytest
from ddpjob_operator.api import Backend, DDPJob, PodSecurity
from ddpjob_operator.api.contract import CONTRACT_VARIABLES
from ddpjob_operator.engine import CreatePod, Manifest, Placement, Settings
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.manifests.children import build_pod
from ddpjob_supervisor.gang.link import FIRST_BYTES
from ddpjob_supervisor.gang.messages import Hello, to_line
from ddpjob_supervisor.gang.settings import read_settings
from ddpjob_supervisor.history.history import seen_by_operator

from tests.support.variables import variables_of
from tests.support.waiting import patience

from .builders import Moment, a_job

Context = dict[str, Any]


def a_pod(
    *,
    rank: int = 0,
    trainer: Manifest | None = None,
    pod: Manifest | None = None,
    metadata: Manifest | None = None,
    security: PodSecurity = PodSecurity.RESTRICTED,
    **spec: Any,
) -> Manifest:
    """The pod of a rank, made from a template with these things more in it."""
    containers = [{"name": "trainer", "image": "trainer:1", **(trainer or {})}, *(pod or {}).get("containers", ())]
    template = {"metadata": metadata or {}, "spec": {**(pod or {}), "containers": containers}}
    moment = a_job(nodes=2, template=template, **spec)
    return pods_of(moment.but(settings=Settings(pod_security=security)))[rank]


def pods_of(moment: Moment) -> dict[int, Manifest]:
    return {one.node: one.build() for one in moment.decision.actions if isinstance(one, CreatePod)}


def trainer_of(pod: Manifest) -> Manifest:
    found: Manifest = next(one for one in pod["spec"]["containers"] if one["name"] == "trainer")
    return found


def mounts_of(container: Manifest) -> dict[str, str]:
    return {mount["mountPath"]: mount.get("subPath", mount["name"]) for mount in container.get("volumeMounts", ())}


def volume_of(pod: Manifest, name: str) -> Manifest | None:
    return next((volume for volume in pod["spec"]["volumes"] if volume["name"] == name), None)


OURS = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
WHO: dict[str, tuple[Context, Context, Context, bool]] = {
    # what the pod says, what the trainer says, who then runs, and whether with a home that we give
    "nothing": ({}, {}, OURS, True),
    "that it is not root": ({"runAsNonRoot": True}, {}, OURS, True),
    "a user": ({"runAsUser": 1234}, {}, {"runAsNonRoot": True, "runAsUser": 1234, "fsGroup": 1000}, True),
    "a user of the trainer": ({}, {"runAsUser": 7}, {"runAsNonRoot": True, "runAsUser": 7, "fsGroup": 1000}, True),
    "a group": ({"runAsGroup": 5}, {}, {**OURS, "runAsGroup": 5}, True),
    "a group for files": ({"fsGroup": 5}, {}, {**OURS, "fsGroup": 5}, True),
    "root": ({"runAsUser": 0}, {}, {"runAsUser": 0}, False),
    "root for the trainer": ({}, {"runAsUser": 0}, {"runAsUser": 0}, False),
    "root for the pod and a user for the trainer": (
        {"runAsUser": 0},
        {"runAsUser": 7},
        {"runAsNonRoot": True, "runAsUser": 7, "fsGroup": 1000},
        True,
    ),
    "whoever the image says": ({"runAsNonRoot": False}, {}, {"runAsNonRoot": False}, False),
    "whoever the image says, for the trainer": ({}, {"runAsNonRoot": False}, {"runAsNonRoot": False}, False),
    "a user who may be root, and is not": (
        {"runAsNonRoot": False, "runAsUser": 7},
        {},
        {"runAsNonRoot": False, "runAsUser": 7, "fsGroup": 1000},
        True,
    ),
    "root whose image cannot be written": (
        {"runAsUser": 0},
        {"readOnlyRootFilesystem": True},
        {"runAsUser": 0},
        True,
    ),
}


@pytest.mark.parametrize(("pod", "trainer", "who", "home"), WHO.values(), ids=WHO)
def test_who_runs_when_the_template_says(pod: Context, trainer: Context, who: Context, *, home: bool) -> None:
    made = a_pod(pod={"securityContext": pod}, trainer={"securityContext": trainer})
    said = {**made["spec"]["securityContext"], **trainer_of(made)["securityContext"]}
    assert {name: said[name] for name in OURS if name in said} == who
    assert ("HOME" in variables_of(trainer_of(made))) is home
    assert (volume_of(made, "ddpjob-scratch") is not None) is home


CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RIGHTS: dict[str, tuple[Context, Context]] = {
    "nothing": ({}, CLOSED),
    "root": ({"runAsUser": 0}, CLOSED),
    "privileged": ({"privileged": True}, {}),
    "one right more": ({"capabilities": {"add": ["IPC_LOCK"]}}, {"capabilities": {"add": ["IPC_LOCK"]}}),
    "fewer rights": ({"capabilities": {"drop": ["KILL"]}}, {**CLOSED, "capabilities": {"drop": ["KILL"]}}),
    "rights as the cluster has them": ({"capabilities": {}}, {**CLOSED, "capabilities": {}}),
    "that it may gain rights": ({"allowPrivilegeEscalation": True}, {**CLOSED, "allowPrivilegeEscalation": True}),
}


@pytest.mark.parametrize(("trainer", "rights"), RIGHTS.values(), ids=RIGHTS)
def test_what_a_container_may_do_when_the_template_says(trainer: Context, rights: Context) -> None:
    said = trainer_of(a_pod(trainer={"securityContext": trainer}))["securityContext"]
    assert {name: said[name] for name in CLOSED if name in said} == rights


@pytest.mark.parametrize("own", [{"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "mine.json"}])
def test_system_calls_are_filtered_unless_the_template_says_how(own: Context) -> None:
    assert a_pod()["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert a_pod(pod={"securityContext": {"seccompProfile": own}})["spec"]["securityContext"]["seccompProfile"] == own


def test_a_group_for_files_is_set_where_it_is_not_yet_unless_the_group_is_the_templates() -> None:
    assert a_pod()["spec"]["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert "fsGroupChangePolicy" not in a_pod(pod={"securityContext": {"fsGroup": 5}})["spec"]["securityContext"]


def test_every_container_is_confined_by_itself_and_has_a_home_of_its_own() -> None:
    init = [
        {"name": "fetch", "image": "fetch:1"},
        {"name": "root", "image": "r:1", "securityContext": {"runAsUser": 0}},
    ]
    pod = a_pod(pod={"initContainers": init, "containers": [{"name": "side", "image": "side:1"}]}, rank=1)["spec"]
    containers = {one["name"]: one for one in [*pod["initContainers"], *pod["containers"]]}
    users = {name: one["securityContext"].get("runAsUser") for name, one in containers.items()}
    assert users == {"fetch": 1000, "root": 0, "wait-for-master": 1000, "trainer": 1000, "side": 1000}
    assert all(one["securityContext"]["capabilities"] == {"drop": ["ALL"]} for one in containers.values())
    homes = [mounts_of(containers[name])["/ddpjob/home"] for name in ("fetch", "trainer", "side")]
    assert homes == ["fetch/home", "trainer/home", "side/home"]


def test_an_operator_without_pod_security_leaves_users_rights_and_homes_to_the_image() -> None:
    pod = a_pod(security=PodSecurity.NONE, rank=1)
    assert "securityContext" not in pod["spec"]
    assert volume_of(pod, "ddpjob-scratch") is None
    for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        assert "securityContext" not in container
        assert "HOME" not in variables_of(container)


def test_a_job_keeps_the_pod_security_that_it_started_with_until_it_is_resumed() -> None:
    running = a_job(nodes=2).running()
    upgraded = running.but(settings=Settings(pod_security=PodSecurity.NONE))
    assert upgraded.decision.empty
    for again in (upgraded.fails(1).decided().gone().after(1), upgraded.asks(nodes=3).decided().gone()):
        assert all("securityContext" in pod["spec"] for pod in pods_of(again).values())
        assert pods_of(again)
    resumed = upgraded.asks(suspend=True).decided().gone().decided().asks(suspend=False)
    assert all("securityContext" not in pod["spec"] for pod in pods_of(resumed).values())
    assert resumed.decided().status.pod_security is PodSecurity.NONE


HOME, TMP = "/ddpjob/home", "/tmp"
PLACES: dict[str, tuple[Manifest, dict[str, str | None], dict[str, str | None]]] = {
    "nothing": ({}, {"HOME": HOME, "TMPDIR": TMP, "USER": "ddpjob"}, {HOME: "trainer/home", TMP: "trainer/tmp"}),
    "a home": (
        {"env": [{"name": "HOME", "value": "/data"}]},
        {"HOME": "/data", "TMPDIR": TMP},
        {HOME: None, TMP: "trainer/tmp"},
    ),
    "a place for temporary files": (
        {"env": [{"name": "TMPDIR", "value": "/fast"}]},
        {"HOME": HOME, "TMPDIR": "/fast"},
        {HOME: "trainer/home", TMP: None},
    ),
    "a user's name": ({"env": [{"name": "USER", "value": "ada"}]}, {"USER": "ada"}, {HOME: "trainer/home"}),
    "a mount at /tmp": ({"volumeMounts": [{"name": "own", "mountPath": "/tmp/"}]}, {"TMPDIR": TMP}, {TMP: None}),
    "a mount below /tmp": (
        {"volumeMounts": [{"name": "own", "mountPath": "/tmp/data"}]},
        {"TMPDIR": TMP},
        {TMP: "trainer/tmp", "/tmp/data": "own"},
    ),
}


@pytest.mark.parametrize(("trainer", "env", "mounts"), PLACES.values(), ids=PLACES)
def test_where_a_trainer_may_write_when_the_template_says(
    trainer: Manifest, env: dict[str, str | None], mounts: dict[str, str | None]
) -> None:
    made = trainer_of(a_pod(trainer=trainer, pod={"volumes": [{"name": "own", "emptyDir": {}}]}))
    names = [variable["name"] for variable in made["env"]]
    assert len(names) == len(set(names))
    assert {name: variables_of(made).get(name) for name in env} == env
    assert {path: mounts_of(made).get(path) for path in mounts} == mounts


TOKEN: dict[str, tuple[Manifest, bool | None]] = {
    "nothing": ({}, False),
    "that it wants one": ({"automountServiceAccountToken": True}, True),
    "an account": ({"serviceAccountName": "trainer"}, None),
    "an account by its old name": ({"serviceAccount": "trainer"}, None),
    "an account, and no token": ({"serviceAccountName": "trainer", "automountServiceAccountToken": False}, False),
}


@pytest.mark.parametrize(("pod", "token"), TOKEN.values(), ids=TOKEN)
def test_whether_a_pod_may_talk_to_the_api_when_the_template_says(pod: Manifest, *, token: bool | None) -> None:
    assert a_pod(pod=pod)["spec"].get("automountServiceAccountToken") is token


NAME_SERVERS: dict[str, tuple[Manifest, str | None]] = {
    "nothing": ({}, None),
    "its node's network": ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
    "its node's network and name server": ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
    "no network of its node": ({"hostNetwork": False}, None),
}


@pytest.mark.parametrize(("pod", "policy"), NAME_SERVERS.values(), ids=NAME_SERVERS)
def test_a_pod_finds_rank_0_by_the_clusters_name_server_when_the_template_says(
    pod: Manifest, policy: str | None
) -> None:
    assert a_pod(pod=pod)["spec"].get("dnsPolicy") == policy


def limited(memory: str) -> Manifest:
    return {"resources": {"limits": {"memory": memory}}}


SHM: dict[str, tuple[Manifest, Manifest, Manifest]] = {
    "nothing": ({}, {}, {"medium": "Memory"}),
    "only a CPU limit": ({}, {"resources": {"limits": {"cpu": 2}}}, {"medium": "Memory"}),
    "the trainer's limit": ({}, limited("8Gi"), {"medium": "Memory", "sizeLimit": "8Gi"}),
    "the pod's limit": (limited("16Gi"), {}, {"medium": "Memory", "sizeLimit": "16Gi"}),
    "both limits": (limited("16Gi"), limited("8Gi"), {"medium": "Memory", "sizeLimit": "8Gi"}),
}


@pytest.mark.parametrize(("pod", "trainer", "volume"), SHM.values(), ids=SHM)
def test_how_large_shared_memory_is_when_the_template_says(
    pod: Manifest, trainer: Manifest, volume: Manifest
) -> None:
    assert volume_of(a_pod(pod=pod, trainer=trainer), "ddpjob-shm") == {"name": "ddpjob-shm", "emptyDir": volume}


def test_a_templates_own_shared_memory_stays() -> None:
    own = {"volumeMounts": [{"name": "own", "mountPath": "/dev/shm"}], **limited("8Gi")}
    pod = a_pod(pod={"volumes": [{"name": "own", "emptyDir": {}}]}, trainer=own)
    assert volume_of(pod, "ddpjob-shm") is None
    assert mounts_of(trainer_of(pod))["/dev/shm"] == "own"


ISTIO, AMBIENT, KUMA, LINKERD = (
    *("sidecar.istio.io/inject", "istio.io/dataplane-mode"),
    *("kuma.io/sidecar-injection", "linkerd.io/inject"),
)
NO_LABELS = {ISTIO: "false", AMBIENT: "none", KUMA: "disabled"}
MESHES: dict[str, tuple[Manifest, dict[str, str], dict[str, str]]] = {
    "nothing": ({}, NO_LABELS, {LINKERD: "disabled"}),
    "a sidecar by label": ({"labels": {ISTIO: "true"}}, NO_LABELS | {ISTIO: "true"}, {LINKERD: "disabled"}),
    "a sidecar by annotation": (
        {"annotations": {ISTIO: "true"}},
        {AMBIENT: "none", KUMA: "disabled"},
        {ISTIO: "true", LINKERD: "disabled"},
    ),
    "a mesh without sidecars": (
        {"labels": {AMBIENT: "ambient"}},
        NO_LABELS | {AMBIENT: "ambient"},
        {LINKERD: "disabled"},
    ),
    "another mesh's": (
        {"annotations": {LINKERD: "enabled", "note": "kept"}},
        NO_LABELS,
        {LINKERD: "enabled", "note": "kept"},
    ),
}


@pytest.mark.parametrize(("metadata", "labels", "annotations"), MESHES.values(), ids=MESHES)
def test_no_mesh_takes_a_pod_in_unless_the_template_asks(
    metadata: Manifest, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    made = a_pod(metadata=metadata)["metadata"]
    assert {name: value for name, value in made["labels"].items() if name in NO_LABELS} == labels
    assert made["annotations"] == annotations


@pytest.mark.parametrize(
    ("own", "more", "set_"),
    [
        ({}, {}, ("1", "true")),
        ({}, {"backend": Backend.NCCL}, ("1", None)),
        ({"PYTHONUNBUFFERED": "", "ACCELERATE_USE_CPU": "false"}, {}, ("", "false")),
    ],
    ids=["nothing, with gloo", "nothing, with NCCL", "something else"],
)
def test_variables_for_python_and_accelerate_are_set_unless_the_template_says(
    own: dict[str, str], more: Context, set_: tuple[str, str | None]
) -> None:
    env = [{"name": name, "value": value} for name, value in own.items()]
    container = trainer_of(a_pod(trainer={"env": env}, **more))
    assert (variables_of(container)["PYTHONUNBUFFERED"], variables_of(container).get("ACCELERATE_USE_CPU")) == set_
    assert len({variable["name"] for variable in container["env"]}) == len(container["env"])


PARENT, STATE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=$(HOME)"
TRACE = {"ddpjob.dev/traceparent": PARENT, "ddpjob.dev/tracestate": STATE}


@pytest.mark.parametrize(
    ("own", "annotations", "expected"),
    [
        ({}, TRACE, {"TRACEPARENT": PARENT, "TRACESTATE": "a=$$(HOME)"}),
        ({}, {**TRACE, "ddpjob.dev/tracestate": "?"}, {"TRACEPARENT": PARENT}),
        ({}, {**TRACE, "ddpjob.dev/traceparent": "?"}, {}),
        ({}, {"example.com/traceparent": PARENT}, {}),
        ({"TRACEPARENT": "own"}, TRACE, {"TRACEPARENT": "own"}),
        ({"TRACESTATE": "own"}, TRACE, {"TRACESTATE": "own"}),
    ],
    ids=["both", "an invalid state", "an invalid parent", "of others", "of the template", "a state of the template"],
)
@pytest.mark.parametrize("command", ["python", "ddpjob-supervise"])
def test_the_trace_context_of_a_job_is_in_the_environment_of_each_rank_unless_the_template_has_its_own(
    own: dict[str, str], annotations: dict[str, str], expected: dict[str, str], command: str
) -> None:
    env = [{"name": name, "value": value} for name, value in own.items()]
    trainer = {"name": "trainer", "image": "trainer:1", "command": [command], "env": env}
    first = a_job(nodes=2, template={"spec": {"containers": [trainer]}})
    document = first.snapshot.job.to_document()
    document["metadata"] = {**first.snapshot.job.metadata.to_dict(), "annotations": annotations}
    traced = first.but(job=DDPJob.from_dict(document))
    for moment in (traced.decided(), traced.running().fails(1).decided().restarted()):
        for node in range(2):
            made = trainer_of(build_pod(moment.snapshot.job, node))["env"]
            assert {one["name"]: one["value"] for one in made if one["name"].startswith("TRACE")} == expected
            assert len({one["name"] for one in made}) == len(made)


@pytest.mark.parametrize("command", ["python", "ddpjob-supervise"])
def test_a_supervisor_knows_the_git_commit_if_the_job_has_a_valid_one(command: str) -> None:
    trainer = {"name": "trainer", "image": "trainer:1", "command": [command]}
    first = a_job(nodes=2, template={"spec": {"containers": [trainer]}})
    document = first.snapshot.job.to_document()
    known = {"commit": "a" * 40, "branch": "$(HOME)", "dirty": True}
    for commit, expected in (("a" * 40, known), ("HEAD", None)):
        annotations = {f"ddpjob.dev/git-{key}": str(value).lower() for key, value in known.items()}
        annotations |= {"ddpjob.dev/git-commit": commit, "ddpjob.dev/git-branch": "$(HOME)"}
        document["metadata"] = {**first.snapshot.job.metadata.to_dict(), "annotations": annotations}
        moment = first.but(job=DDPJob.from_dict(document)).decided()
        env = variables_of(trainer_of(build_pod(moment.snapshot.job, 0)))
        found = env.get("DDPJOB_GIT")  # Kubernetes turns $$( into $(.
        assert (found and json.loads(found.replace("$$(", "$("))) == expected


MENTIONED: dict[str, Manifest] = {
    "by a variable": {"env": [{"name": "OWN", "value": "job-$(DDPJOB_UID)"}]},
    "by the command": {"command": ["train", "--port", "$(DDPJOB_STATUS_PORT)"]},
    "by an argument": {"args": ["--peers=$(DDPJOB_PEERS)"]},
    "by an argument, for a shell": {"command": ["sh", "-c"], "args": ['cat "$DDPJOB_SECRET_FILE"']},
    "by an argument, for Python": {"command": ["python", "-c", "import os; os.environ['DDPJOB_INCARNATION']"]},
    "by a mount": {"volumeMounts": [{"name": "x", "mountPath": "/x", "subPathExpr": "$(DDPJOB_NAMESPACE)"}]},
    "by a probe": {"livenessProbe": {"exec": {"command": ["ask", "$(DDPJOB_CONTROL_PORT)"]}}},
}
MENTION = re.compile(r"DDPJOB_\w+")


@pytest.mark.parametrize("trainer", MENTIONED.values(), ids=MENTIONED)
def test_a_variable_of_the_supervisors_is_set_by_name_where_the_template_mentions_it(trainer: Manifest) -> None:
    [name] = MENTION.findall(str(trainer))
    plain, made = trainer_of(a_pod()), trainer_of(a_pod(trainer=trainer))
    (value,) = (one["value"] for one in made["env"] if one["name"] == name)
    names = [one["name"] for one in made["env"]]
    packed = {one["name"]: one["value"] for one in made["env"]}["DDPJOB_SUPERVISOR"]
    assert (value, name in packed) == (variables_of(plain)[name], False)
    assert name not in {one["name"] for one in plain["env"]}
    assert "OWN" not in names or names.index(name) < names.index("OWN"), "it can refer to it"
    assert variables_of(made).items() >= variables_of(plain).items()


@pytest.mark.parametrize("command", ["ddpjob-supervise", "/opt/bin/ddpjob-train"])
def test_behind_a_supervisor_all_variables_of_the_contract_are_packed_but_where_it_complains(command: str) -> None:
    checkpoint = {"path": "/saved", "everySteps": 5}
    made, plain = (
        trainer_of(a_pod(trainer=trainer, checkpoint=checkpoint)) for trainer in ({"command": [command]}, {})
    )
    requests = {"DDPJOB_CHECKPOINT_REQUEST_FILE": "/var/run/ddpjob.dev/checkpoint-request"}
    assert variables_of(made) == variables_of(plain) | requests
    by_name = {one["name"] for one in made["env"]} & CONTRACT_VARIABLES
    assert by_name == {"DDPJOB_SUPERVISOR", "DDPJOB_TERMINATION_LOG"}


def test_behind_a_supervisor_what_the_template_mentions_is_set_by_name() -> None:
    made = trainer_of(a_pod(trainer={"command": ["ddpjob-supervise"], "args": ["train.py", "--world=$(WORLD_SIZE)"]}))
    names = {one["name"] for one in made["env"]} & CONTRACT_VARIABLES
    assert names == {"DDPJOB_SUPERVISOR", "DDPJOB_TERMINATION_LOG", "WORLD_SIZE"}


def test_what_scripts_without_a_supervisor_want_is_set_by_name() -> None:
    checkpoint = {"path": "/saved", "everySteps": 5, "everySeconds": 60}
    names = {one["name"] for one in trainer_of(a_pod(checkpoint=checkpoint))["env"]}
    assert {name for name in names if name.startswith("DDPJOB_")} == {
        "DDPJOB_NAME",
        "DDPJOB_ATTEMPT",
        "DDPJOB_BACKEND",
        "DDPJOB_CHECKPOINT_DIR",
        "DDPJOB_CHECKPOINT_EVERY_SECONDS",
        "DDPJOB_CHECKPOINT_EVERY_STEPS",
        "DDPJOB_CHECKPOINT_KEEP",
        "DDPJOB_TERMINATION_LOG",
        "DDPJOB_SUPERVISOR",
    }


def test_a_checkpoint_in_an_object_store_has_no_volume_and_the_program_gets_its_url() -> None:
    saved = {"/saved": True, "s3://bucket/saved": False}
    for path, mounted in saved.items():
        pod = a_pod(checkpoint={"path": path})
        names = {
            *(volume["name"] for volume in pod["spec"]["volumes"]),
            *(mount["name"] for mount in trainer_of(pod)["volumeMounts"]),
        }
        assert ("ddpjob-checkpoint" in names) is mounted
        assert variables_of(trainer_of(pod))["DDPJOB_CHECKPOINT_DIR"] == path


@pytest.mark.parametrize("path", ["/history", "s3://bucket/history"])
def test_supervisors_are_told_where_to_keep_the_history(path: str) -> None:
    assert variables_of(trainer_of(a_pod(history={"path": path})))["DDPJOB_HISTORY"] == path
    assert "DDPJOB_HISTORY" not in variables_of(trainer_of(a_pod()))


ON_A_CLAIM = {"path": "/out", "volume": {"persistentVolumeClaim": {"claimName": "out"}}}


def histories(moment: Moment) -> set[str | None]:
    """Where the pods that are made now are to keep the history."""
    return {variables_of(trainer_of(pod)).get("DDPJOB_HISTORY") for pod in pods_of(moment).values()}


def of_an_older_operator(moment: Moment) -> Moment:
    """The same job, started by an operator that kept a history only where the spec names a place."""
    job = moment.snapshot.job
    return moment.but(job=job.with_status(changed(job.status, history_path=None)))


def test_a_job_keeps_its_history_where_it_was_when_it_started_until_it_is_resumed() -> None:
    started = a_job(nodes=2, checkpoint=ON_A_CLAIM)
    assert histories(started) == {"/out/history"}
    running = started.running()
    assert running.status.history_path == "/out/history"
    assert histories(running.fails(1).decided().gone().after(1)) == {"/out/history"}
    assert histories(running.asks(nodes=3).decided().gone()) == {"/out/history"}
    resumed = running.suspended().asks(suspend=False, history={"mode": "Disabled"})
    assert histories(resumed) == {None}
    assert resumed.decided().status.history_path is None


def test_an_upgraded_operator_gives_no_history_to_some_pods_of_a_gang() -> None:
    job = a_job(nodes=2, checkpoint=ON_A_CLAIM, restart={"mode": "InPlace"})
    running = of_an_older_operator(job.running())
    assert histories(running.hears(attempt=1).node_dies(1).decided().gone().after(1)) == {None}
    assert histories(running.asks(nodes=3).decided().gone()) == {None}
    assert histories(running.suspended().asks(suspend=False)) == {"/out/history"}


def told_incidents(moment: Moment) -> dict[int, str]:
    """The causes of the incidents of which the pods that are made now tell their supervisors, by node."""
    told = {node: variables_of(trainer_of(pod)).get("DDPJOB_LAST_INCIDENT") for node, pod in pods_of(moment).items()}
    return {node: json.loads(incident)["cause"] for node, incident in told.items() if incident}


def test_only_pods_whose_supervisors_write_why_the_gang_began_again_get_the_incident() -> None:
    started = a_job(nodes=3, checkpoint=ON_A_CLAIM)
    assert told_incidents(started) == {}
    restarted = started.running().fails(1, message="$(HOME)").decided().gone().after(1)
    assert (len(pods_of(restarted)), told_incidents(restarted)) == (3, {0: "Application"})
    in_place = a_job(nodes=3, checkpoint=ON_A_CLAIM, restart={"mode": "InPlace"}).running().hears().settled()
    replaced = in_place.disrupted(1, "EvictionByEvictionAPI", "a drain").decided().gone()
    assert (len(pods_of(replaced)), told_incidents(replaced)) == (1, {1: "Evicted"})
    resized = restarted.running().asks(nodes=2).decided().gone()
    assert (len(pods_of(resized)), told_incidents(resized)) == (2, {}), "no incident has ended the last attempt"
    resumed = restarted.running().suspended().asks(suspend=False)
    assert (len(pods_of(resumed)), told_incidents(resumed)) == (3, {})


@pytest.mark.parametrize("character", ["a", "\\", '"', "€", "\U0001f600"])
def test_the_longest_incident_is_passed_on_by_the_supervisor(character: str) -> None:
    job = a_job(checkpoint=ON_A_CLAIM)
    (pod,) = pods_of(job.running().fails(0, message=character * 512).decided().gone().after(1)).values()
    told = str(variables_of(trainer_of(pod))["DDPJOB_LAST_INCIDENT"])
    assert json.loads(told)["message"] == character * min(300, 512 // len(character.encode()))
    incident = read_settings({"DDPJOB_LAST_INCIDENT": told}, None).incident
    assert seen_by_operator(incident) is not None
    hello = Hello("u" * 36, 9999, 99999, 99999, 29502, "1.2.3", nonce="f" * 64, at="x" * 64, incident=incident)
    assert len(to_line(hello)) < FIRST_BYTES


def test_a_job_without_a_history_has_no_incidents_in_its_pods() -> None:
    assert told_incidents(a_job(nodes=3).running().fails(1).decided().gone().after(1)) == {}


def test_a_gang_of_an_older_operator_keeps_the_history_that_its_spec_names() -> None:
    running = of_an_older_operator(a_job(nodes=2, checkpoint=ON_A_CLAIM, history={"path": "/kept"}).running())
    assert histories(running.fails(1).decided().gone().after(1)) == {"/kept"}


INTERVALS: dict[str, tuple[Context, str | None, str | None]] = {
    "the end of each epoch": ({}, None, None),
    "the same, in so many words": ({"interval": "Epochs"}, None, None),
    "what is worthwhile": ({"interval": "Auto"}, None, "Auto"),
    "steps": ({"everySteps": 5}, "5", None),
    "seconds": ({"everySeconds": 60}, None, "60"),
}


@pytest.mark.parametrize(("interval", "steps", "seconds"), INTERVALS.values(), ids=INTERVALS)
def test_when_to_save(interval: Context, steps: str | None, seconds: str | None) -> None:
    told = variables_of(trainer_of(a_pod(checkpoint={"path": "/saved", **interval})))
    assert told.get("DDPJOB_CHECKPOINT_EVERY_STEPS") == steps
    assert told.get("DDPJOB_CHECKPOINT_EVERY_SECONDS") == seconds


@pytest.mark.parametrize(
    ("limit", "told"), [(None, None), ("0", "0"), ("500", "500"), ("2G", "2000000000"), ("3Mi", "3145728")]
)
def test_how_large_a_local_copy_may_be_is_told_in_bytes(limit: str | None, told: str | None) -> None:
    checkpoint = {"path": "/saved", **({} if limit is None else {"localCopySizeLimit": limit})}
    variables = variables_of(trainer_of(a_pod(checkpoint=checkpoint)))
    assert variables.get("DDPJOB_CHECKPOINT_LOCAL_COPY_BYTES") == told


TOLD = (
    "--num_machines 2 --num_processes {ranks} --machine_rank $(NODE_RANK) --main_process_ip $(MASTER_ADDR) "
    "--main_process_port $(MASTER_PORT)"
)
LAUNCHED: dict[str, tuple[Manifest, Context, tuple[str, str]]] = {
    # what the template has, how many processes on what, the command and its arguments
    "torchrun reads its variables": (
        {"command": ["torchrun"], "args": ["train.py"]},
        {"procsPerNode": 2},
        ("torchrun", "train.py"),
    ),
    "on CPUs": (
        {"command": ["accelerate", "launch", "train.py", "--lr"]},
        {"procsPerNode": 2},
        ("accelerate launch", f"{TOLD.format(ranks=4)} --multi_gpu train.py --lr"),
    ),
    "on GPUs": (
        {"command": ["accelerate"], "args": ["launch", "train.py"]},
        {"procsPerNode": 2, "backend": Backend.NCCL},
        ("accelerate launch", f"{TOLD.format(ranks=4)} train.py"),
    ),
    "in a mode of its own": (
        {"command": ["python3", "-m", "accelerate.commands.launch", "--cpu", "train.py"]},
        {},
        ("python3 -m accelerate.commands.launch", f"{TOLD.format(ranks=2)} --cpu train.py"),
    ),
    "what the template says comes last, and so wins": (
        {"command": ["accelerate", "launch", "--cpu", "--main_process_port", "7", "train.py"]},
        {},
        ("accelerate launch", f"{TOLD.format(ranks=2)} --cpu --main_process_port 7 train.py"),
    ),
}


@pytest.mark.parametrize(("trainer", "spec", "words"), LAUNCHED.values(), ids=LAUNCHED)
def test_a_launcher_is_told_its_place_where_it_reads_no_variables(
    trainer: Manifest, spec: Context, words: tuple[str, str]
) -> None:
    container = trainer_of(a_pod(trainer=trainer, **spec))
    assert (" ".join(container["command"]), " ".join(container["args"])) == words


FETCH = {"initContainers": [{"name": "fetch", "image": "fetch:1"}]}
WAITING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "rank 0 waits for nobody": ({"rank": 0, "pod": FETCH}, ["fetch"]),
    "the others wait": ({}, ["wait-for-master"]),
    "they wait last": ({"pod": FETCH}, ["fetch", "wait-for-master"]),
    "they do not where they are told not to": ({"network": {"waitForMaster": False}, "pod": FETCH}, ["fetch"]),
    "a template that waits by itself waits once": (
        {"pod": {"initContainers": [{"name": "wait-for-master", "image": "own:1"}]}},
        ["wait-for-master"],
    ),
}


@pytest.mark.parametrize(("asked", "names"), WAITING.values(), ids=WAITING)
def test_waiting_for_the_master(asked: dict[str, Any], names: list[str]) -> None:
    pod = a_pod(**{"rank": 1, **asked})
    assert [container["name"] for container in pod["spec"].get("initContainers", ())] == names


def wait_container(**how: Any) -> Manifest:
    found: Manifest = a_pod(rank=1, **how)["spec"]["initContainers"][-1]
    return found


def test_waiting_needs_no_other_image_right_or_address_than_the_trainer() -> None:
    pod = a_pod(
        rank=1,
        trainer={"imagePullPolicy": "Never", "securityContext": {"runAsUser": 7}},
        network={"masterPort": 12345},
    )
    waiting, trainer = pod["spec"]["initContainers"][-1], trainer_of(pod)
    for field in ("image", "imagePullPolicy", "securityContext"):
        assert waiting[field] == trainer[field]
    names = ("MASTER_ADDR", "MASTER_PORT", "DDPJOB_CONTROL_PORT")
    assert variables_of(waiting) == {name: variables_of(trainer)[name] for name in names}
    assert variables_of(waiting)["MASTER_PORT"] == "12345"


LARGE = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "1Ti"}
ROOMS: dict[str, tuple[Manifest, Manifest]] = {
    "all": ({"requests": LARGE, "limits": LARGE}, {"requests": LARGE, "limits": LARGE}),
    "devices as well": (
        {"requests": {"cpu": "16"}, "limits": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4, "memory": "64Gi"}},
        {"requests": {"cpu": "16"}, "limits": {"memory": "64Gi"}},
    ),
    "claimed devices": ({"requests": {"cpu": "2"}, "claims": [{"name": "gpu"}]}, {"requests": {"cpu": "2"}}),
}


@pytest.mark.parametrize(("asked", "room"), ROOMS.values(), ids=ROOMS)
def test_waiting_satisfies_a_limit_range_or_a_quota_wherever_the_trainer_does_and_takes_no_devices(
    asked: Manifest, room: Manifest
) -> None:
    assert wait_container(trainer={"resources": asked})["resources"] == room


@pytest.mark.parametrize("asked", [None, {"limits": {"nvidia.com/gpu": 1}}])
def test_waiting_leaves_to_a_limit_range_what_the_trainer_leaves_to_it(asked: Manifest | None) -> None:
    assert "resources" not in wait_container(trainer={"resources": asked} if asked else {})


def test_waiting_in_an_image_without_python_fails_the_job_and_says_what_to_do() -> None:
    command = ["/bin/sh", *wait_container()["command"][1:]]
    done = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    failed = a_job(nodes=2).created().fails(1, code=2, message=done.stderr).decided().status
    assert failed.message.endswith(
        "Rank 1 failed: ConfigError: wait-for-master needs python in the image of the trainer and finds none; "
        "set spec.network.waitForMaster: false"
    )


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


def silent(key: str) -> Manifest:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}


TOLERATIONS: dict[str, tuple[list[Manifest], list[Manifest]]] = {
    "nothing": ([], [silent(NOT_READY), silent(UNREACHABLE)]),
    "something else": ([GPU], [GPU, silent(NOT_READY), silent(UNREACHABLE)]),
    "how long one of them": (
        [{**silent(NOT_READY), "tolerationSeconds": 7}],
        [{**silent(NOT_READY), "tolerationSeconds": 7}, silent(UNREACHABLE)],
    ),
    "everything": ([{"operator": "Exists"}], [{"operator": "Exists"}]),
}


@pytest.mark.parametrize(("own", "made"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_how_long_a_silent_node_keeps_its_pod_when_the_template_says(
    own: list[Manifest], made: list[Manifest]
) -> None:
    assert a_pod(pod={"tolerations": own})["spec"]["tolerations"] == made


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ON_FAST = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}}


def after_losing(*ranks: int, **pod: Any) -> Manifest:
    """Rank 0's pod after the nodes of these ranks were lost one after another."""
    containers = [{"name": "trainer", "image": "trainer:1"}]
    template = {"spec": {**pod, "containers": containers}}
    moment = a_job(nodes=3, template=template, restart={"backoffSeconds": 0}).running()
    for rank in ranks:
        moment = moment.node_dies(rank).decided().gone().restarted()
    return pods_of(moment.fails(0).ready_again())[0]


def elsewhere(*nodes: str) -> Manifest:
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return {"weight": 100, "preference": {"matchFields": fields}}


def test_a_pod_has_no_wish_about_nodes_as_long_as_none_was_lost() -> None:
    assert "affinity" not in after_losing()["spec"]


def test_a_pod_prefers_each_node_but_those_that_were_lost() -> None:
    assert after_losing(1, 2)["spec"]["affinity"] == {"nodeAffinity": {PREFERRED: [elsewhere("node-1", "node-2")]}}


def test_and_keeps_the_wishes_of_its_template() -> None:
    own = {"nodeAffinity": {PREFERRED: [ON_FAST], REQUIRED: {"nodeSelectorTerms": []}}, "podAntiAffinity": {}}
    made = after_losing(1, affinity=own)["spec"]["affinity"]
    assert made == {**own, "nodeAffinity": {**own["nodeAffinity"], PREFERRED: [ON_FAST, elsewhere("node-1")]}}


@pytest.mark.parametrize(("weights", "copies"), [([24], 1), ([25], 2), ([50, 50], 5), ([100] * 20, 40)])
def test_the_wish_for_other_nodes_outweighs_those_of_the_template(weights: list[int], copies: int) -> None:
    wishes = [{**ON_FAST, "weight": weight} for weight in weights]
    made = after_losing(1, affinity={"nodeAffinity": {PREFERRED: wishes}})["spec"]["affinity"]["nodeAffinity"]
    assert made == {PREFERRED: [*wishes, *[elsewhere("node-1")] * copies]}


def test_the_spread_is_weaker_while_nodes_are_avoided_unless_the_template_has_its_own() -> None:
    assert [after_losing(*ranks)["spec"]["topologySpreadConstraints"][0]["maxSkew"] for ranks in ((), (1,))] == [
        1,
        15,
    ]
    own = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    assert after_losing(1, topologySpreadConstraints=own)["spec"]["topologySpreadConstraints"] == own


def after_a_broken_gpu(placement: Placement | None = None, **pod: Any) -> Manifest:
    """Rank 0's pod after a device of rank 1's node has failed."""
    template = {"spec": {**pod, "containers": [{"name": "trainer", "image": "trainer:1"}]}}
    moment = a_job(nodes=3, template=template, restart={"backoffSeconds": 0}).running()
    job = moment.reports(1, cause="DeviceFailed").decided().snapshot.job
    return build_pod(job, 0, placement=placement)


FAST, NONE = {"matchExpressions": ON_FAST["preference"]["matchExpressions"]}, {}
BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-5"]}]}
NOT_1 = elsewhere("node-1")["preference"]["matchFields"]


@pytest.mark.parametrize(
    ("own", "made"),
    [
        (None, [{"matchFields": NOT_1}]),
        ([FAST, BY_NAME], [{**FAST, "matchFields": NOT_1}, {"matchFields": [*BY_NAME["matchFields"], *NOT_1]}]),
        ([NONE], [NONE]),
    ],
    ids=["nothing", "either of two terms", "a term that no node matches"],
)
def test_a_broken_node_is_ruled_out_beside_what_the_template_requires(
    own: list[Manifest] | None, made: list[Manifest]
) -> None:
    required = {} if own is None else {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": own}}}}
    affinity = after_a_broken_gpu(**required)["spec"]["affinity"]["nodeAffinity"]
    assert affinity == {REQUIRED: {"nodeSelectorTerms": made}, PREFERRED: [elsewhere("node-1")]}


@pytest.mark.parametrize(
    "chosen", [{"placement": Placement(topology=True)}, {"nodeName": "node-1"}], ids=["by Kueue", "by the template"]
)
def test_a_broken_node_is_not_ruled_out_for_a_pod_whose_node_is_chosen_beforehand(chosen: dict[str, Any]) -> None:
    assert after_a_broken_gpu(**chosen)["spec"]["affinity"]["nodeAffinity"].keys() == {PREFERRED}


def a_reserve(**pod: Any) -> tuple[Manifest, Manifest]:
    """The pod of rank 1 as one that only looks out for a place, and as one of the gang."""
    template = {"spec": {**pod, "containers": [{"name": "trainer", "image": "trainer:1", **limited("8Gi")}]}}
    small = (
        a_job(nodes=2, elastic={}, template=template).created().placed(0).after(120).ready_again().settled().runs(0)
    )
    return pods_of(small)[1], pods_of(small.settled().placed(1).after(5).ready_again())[1]


def test_a_pod_that_looks_out_for_a_place_takes_as_much_room_as_one_of_the_gang() -> None:
    reserve, real = a_reserve(nodeSelector={"gpu": "a100"})
    for container in (trainer_of(reserve), trainer_of(real), reserve["spec"]["initContainers"][0]):
        assert container["resources"] == limited("8Gi")["resources"]
    assert reserve["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert reserve["metadata"]["labels"]["ddpjob.dev/node"] == "1"
    assert reserve["metadata"]["name"] != real["metadata"]["name"]


def test_and_never_comes_to_its_trainer_nor_to_what_the_template_does_before() -> None:
    reserve, real = a_reserve(**FETCH)
    names = [one["name"] for one in reserve["spec"]["initContainers"]]
    assert names == ["wait-for-growth", "fetch"]
    assert [one["name"] for one in real["spec"]["initContainers"]] == ["fetch", "wait-for-master"]


def test_and_ends_at_once_when_it_is_told_to() -> None:
    reserve, _ = a_reserve()
    process = psutil.Popen(["/bin/sh", *reserve["spec"]["initContainers"][0]["command"][1:]])
    while not (sleeping := process.children()):
        assert process.poll() is None, "it ended before anybody told it to"
        time.sleep(0.01)
    process.terminate()
    assert process.wait(timeout=patience(60)) == 0
    for child in sleeping:
        child.kill()  # In a pod it goes with its container.


def test_what_schedulers_and_queues_of_others_go_by_reaches_the_pods() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team", "scheduling.x-k8s.io/pod-group": "digits"}
    notes = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    pod = a_pod(
        metadata={"labels": labels, "annotations": notes}, pod={"schedulingGates": gates, "schedulerName": "own"}
    )
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert notes.items() <= pod["metadata"]["annotations"].items()
    assert (pod["spec"]["schedulingGates"], pod["spec"]["schedulerName"]) == (gates, "own")


TEAM = {"labelSelector": {"matchLabels": {"ddpjob.dev/job-uid": "uid-1"}}, "topologyKey": "example.com/rack"}
OWN_TERM = {"topologyKey": "zone"}


@pytest.mark.parametrize(
    ("topology", "own", "expected"),
    [
        ({"required": "example.com/rack"}, {}, {"requiredDuringSchedulingIgnoredDuringExecution": [TEAM]}),
        (
            {"required": "example.com/rack"},
            {"requiredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]},
            {"requiredDuringSchedulingIgnoredDuringExecution": [OWN_TERM, TEAM]},
        ),
        (
            {"preferred": "example.com/rack"},
            {},
            {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": TEAM}]},
        ),
    ],
    ids=["required", "required beside the template's own", "preferred"],
)
def test_pods_that_are_to_be_close_to_each_other_are_drawn_to_each_other(
    topology: dict[str, str], own: dict[str, Any], expected: dict[str, Any]
) -> None:
    affinity = {"affinity": {"podAffinity": own}} if own else {}
    template = {"spec": {"containers": [{"name": "trainer", "image": "trainer:1"}], **affinity}}
    job = a_job(nodes=2, template=template, scheduling={"topology": topology})
    pods = [action.build() for action in job.decision.actions if isinstance(action, CreatePod)]
    assert [pod["spec"]["affinity"]["podAffinity"] for pod in pods] == [expected] * 2
