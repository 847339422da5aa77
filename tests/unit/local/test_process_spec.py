"""Where the nodes of a job find each other on one machine, and in which directory they work."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine import SECRET_VOLUME, WAIT_CONTAINER, CreatePod
from ddpjob_operator.local import RunDirectory, process_spec
from ddpjob_operator.local.process_spec import Machine, Ports, ProcessSpec, _value, translate

from tests.unit.engine.builders import a_job

PORTS = Ports(master=1, status=2, control=3)
RANK_0 = "digits-0-abcde.digits.default.svc:29502"
CLAIM = {"persistentVolumeClaim": {"claimName": "saved"}}
LIVING = "127.0.0.1:29502,127.0.0.3:29502"


def translated(
    directory: Path,
    rank: int = 0,
    peers: str = RANK_0,
    container: Any = None,
    pod: Any = None,
    *,
    attached: int | None = None,
    **more: Any,
) -> ProcessSpec:
    """A pod's process, of a run that works in a directory."""
    packed = {"DDPJOB_PEERS": peers, "DDPJOB_IN_PLACE_RESTARTS": "5", "DDPJOB_SECRET_FILE": "/secrets/secret"}
    packed |= dict.fromkeys(("DDPJOB_STATUS_PORT", "DDPJOB_CONTROL_PORT"), "29501")
    given = {"MASTER_PORT": "29501", "DDPJOB_TERMINATION_LOG": "/dev/termination-log"}
    given["DDPJOB_SUPERVISOR"] = json.dumps(packed)
    env = [{"name": name, "value": value} for name, value in given.items()]
    env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in more.items()]
    labels = {"ddpjob.dev/node": str(rank), "ddpjob.dev/incarnation": "1"}
    trainer = {"name": "trainer", "command": ["x"], "env": env, **(container or {})}
    document = {"metadata": {"labels": labels}, "spec": {"containers": [trainer], **(pod or {})}}
    machine = Machine(directory, PORTS, threads=1, attached=attached, environment={})
    return translate(document, RunDirectory(directory / "run"), directory / "run" / "pod", machine)


def variables(rank: int, peers: str, directory: Path, **more: Any) -> dict[str, str]:
    """The environment of a pod's process."""
    return translated(directory, rank, peers, **more).env


@pytest.mark.parametrize(
    ("rank", "address"), [(0, "127.0.0.1"), (1, "127.0.0.2"), (255, "127.0.1.0"), (4095, "127.0.16.0")]
)
def test_each_node_listens_on_an_address_of_its_own(rank: int, address: str, tmp_path: Path) -> None:
    env = variables(rank, RANK_0, tmp_path, ITS_IP="status.podIP")
    assert (env["DDPJOB_LISTEN_ADDR"], env["ITS_IP"]) == (address, address)
    assert (env["MASTER_PORT"], env["DDPJOB_STATUS_PORT"], env["DDPJOB_CONTROL_PORT"]) == ("1", "2", "3")
    assert env["DDPJOB_IN_PLACE_RESTARTS"] == "5"
    assert env["DDPJOB_RUN_DIR"] == str(tmp_path / "run")


@pytest.mark.parametrize("attached", [None, 0, 3])
def test_each_node_knows_which_rank_has_a_terminal(attached: int | None, tmp_path: Path) -> None:
    env = variables(1, RANK_0, tmp_path, attached=attached)
    assert env.get("DDPJOB_ATTACH") == (None if attached is None else str(attached))


@pytest.mark.parametrize(
    ("peers", "here"), [(RANK_0, "127.0.0.1:3"), (f"{RANK_0},{LIVING}", "127.0.0.1:3,127.0.0.1:3,127.0.0.3:3")]
)
def test_supervisors_find_each_other_at_the_ports_of_this_machine(peers: str, here: str, tmp_path: Path) -> None:
    assert variables(1, peers, tmp_path)["DDPJOB_PEERS"] == here


@pytest.mark.parametrize(("rank", "status_port"), [(0, "2"), (1, "0")])
def test_where_there_is_but_one_address_nothing_restarts_in_place_and_no_port_is_taken_twice(
    rank: int, status_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_spec, "MANY_ADDRESSES", False)
    env = variables(rank, RANK_0, tmp_path)
    assert (env["DDPJOB_LISTEN_ADDR"], env["DDPJOB_IN_PLACE_RESTARTS"]) == ("127.0.0.1", "0")
    assert env["DDPJOB_STATUS_PORT"] == status_port


def test_each_packed_variable_has_its_own_name_and_a_path_of_this_machine(tmp_path: Path) -> None:
    secret = {"volumeMounts": [{"name": "ddpjob-secret", "mountPath": "/secrets"}]}
    volume = {"volumes": [{"name": "ddpjob-secret", "secret": {"secretName": "digits"}}]}
    env = variables(0, RANK_0, tmp_path, container=secret, pod=volume)
    assert env["DDPJOB_SECRET_FILE"] == f"{RunDirectory(tmp_path / 'run').secrets}/secret"
    assert "DDPJOB_SUPERVISOR" not in env


MOUNTED = {"volumeMounts": [{"name": "code", "mountPath": "/code"}]}
CODE = {"volumes": [{"name": "code", "persistentVolumeClaim": {"claimName": "code"}}]}


def test_a_working_directory_that_no_container_could_have_is_refused_here_too(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    right = f"must be an absolute path, because a container needs one; on this machine: {tmp_path}/src"
    with pytest.raises(BadInputError, match=re.escape(f"containers[trainer].workingDir: 'src' {right}")):
        translated(tmp_path, container={"workingDir": "src"})


@pytest.mark.parametrize(
    ("container", "where", "notice"),
    [
        ({}, ".", ""),
        ({"workingDir": ""}, ".", ""),
        ({"workingDir": "{here}/src"}, "src", ""),
        (
            {"workingDir": "{here}/app"},
            ".",
            "workingDir {here}/app does not exist on this machine; the ranks run in {here}",
        ),
        ({"workingDir": "/code/lib", **MOUNTED}, "run/volumes/code/lib", "workingDir /code/lib: /code is {here}/run"),
    ],
    ids=["none", "empty", "one that is here", "one of an image", "of a volume"],
)
def test_ranks_work_where_the_run_does_or_in_their_working_directory_where_that_is_here(
    container: dict[str, Any], where: str, notice: str, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    container = {
        name: value.format(here=tmp_path) if isinstance(value, str) else value for name, value in container.items()
    }
    process = translated(tmp_path, container=container, pod=CODE)
    assert process.directory == tmp_path / where
    assert process.env["PWD"] == str(process.directory)
    assert "PYTHONPATH" not in process.env, "a container has none"
    assert [said[: len(notice.format(here=tmp_path))] for said in process.notices] == (
        [notice.format(here=tmp_path)] if notice else []
    )
    assert process.directory.is_dir() or process.directory in process.needed


@pytest.mark.parametrize(
    ("source", "is_there", "here"),
    [
        ({"path": "{}/own"}, True, True),
        ({"path": "{}/own"}, False, False),
        ({"path": "{}/own", "type": "DirectoryOrCreate"}, False, True),
    ],
    ids=["there", "not there", "not there, but to be made"],
)
def test_a_directory_of_this_machine_is_itself(
    source: dict[str, str], tmp_path: Path, *, is_there: bool, here: bool
) -> None:
    own = tmp_path / "own"
    if is_there:
        own.mkdir()
    volume = {"name": "own", "hostPath": source | {"path": str(own)}}
    mounts = {"volumeMounts": [{"name": "own", "mountPath": str(own)}], "command": ["x", str(own)]}
    process = translated(tmp_path, container=mounts, pod={"volumes": [volume]})
    place = own if here else tmp_path / "run" / "volumes" / "own"
    assert process.argv == ["x", str(place)]
    assert place in process.needed
    assert bool(process.notices) is not here


def test_variables_in_a_command_are_replaced_as_by_a_kubelet(tmp_path: Path) -> None:
    process = translated(
        tmp_path, container={"args": ["$(DDPJOB_PEERS)", "$(NOWHERE)", "$$(DDPJOB_PEERS)"]}, peers=LIVING
    )
    assert process.argv[1:] == [process.env["DDPJOB_PEERS"], "$(NOWHERE)", "$(DDPJOB_PEERS)"]


def test_what_is_not_run_or_not_used_on_this_machine_is_told_and_what_nobody_misses_is_not(tmp_path: Path) -> None:
    pod = {
        "initContainers": [{"name": WAIT_CONTAINER}, {"name": "download"}],
        "volumes": [{"name": SECRET_VOLUME, "secret": {}}, {"name": "settings", "configMap": {}}, {"name": "tmp"}],
    }
    assert translated(tmp_path, container={"envFrom": []}, pod=pod).notices == [
        "container download is not run on this machine",
        "envFrom of the trainer container is not used on this machine",
        "volume settings (configMap) is an empty directory on this machine",
    ]


@pytest.mark.parametrize("command", [["python"], ["ddpjob-supervise", "train.py"]])
@pytest.mark.parametrize("path", ["/saved/$(NODE_RANK)", "/saved/a$$b", "/saved/$"])
def test_the_program_gets_the_directory_that_is_mounted_although_kubernetes_expands_variables(
    path: str, command: list[str], tmp_path: Path
) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": command}]}}
    actions = a_job(checkpoint={"path": path, "volume": CLAIM}, template=template).decision.actions
    (pod,) = (action.build() for action in actions if isinstance(action, CreatePod))
    assert path in {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    machine = Machine(tmp_path, PORTS, threads=1, environment={})
    process = translate(pod, RunDirectory(tmp_path / "run"), tmp_path / "pod", machine)
    assert process.env["DDPJOB_CHECKPOINT_DIR"] == str(tmp_path / "run" / "volumes" / "saved")


@pytest.mark.parametrize(
    ("word", "here"),
    [
        ("/data/x", "{data}/x"),
        ("/data", "{data}"),
        ("/data/in/x", "{inner}/x"),
        ("--dir=/data/x", "--dir={data}/x"),
        ("--set=dir=/data", "--set=dir={data}"),
        ("dir=/data", "dir=/data"),
        ("/database", "/database"),
        ("--dir", "--dir"),
    ],
)
def test_a_path_in_a_command_is_that_of_this_machine(word: str, here: str, tmp_path: Path) -> None:
    names = ("data", "inner")
    mounts = [{"name": name, "mountPath": path} for name, path in zip(names, ("/data", "/data/in/"), strict=True)]
    spec = translated(
        tmp_path,
        container={"command": ["x", word], "volumeMounts": mounts},
        pod={"volumes": [{"name": name, "emptyDir": {}} for name in names]},
    )
    places = {name: tmp_path / "run" / "pod" / "volumes" / name for name in names}
    assert spec.argv[-1] == here.format(**places)
    assert set(places.values()) <= {*spec.needed}
    assert any(word in notice for notice in spec.notices) is (here != word)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "digits-1-x"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "team"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.0.0.2"),
        ({"fieldRef": {"fieldPath": "status.hostIP"}}, "127.0.0.1"),
        ({"secretKeyRef": {"name": "a", "key": "b"}}, "of the shell"),
    ],
)
def test_a_variable_from_elsewhere_has_what_is_the_same_here(source: dict[str, Any], value: str) -> None:
    pod = {"metadata": {"name": "digits-1-x", "namespace": "team", "labels": {Label.NODE: "1"}}}
    here = Machine(Path("work"), PORTS, threads=1, environment={"KEY": "of the shell"})
    assert _value({"name": "KEY", "valueFrom": source}, pod, here) == value


def test_a_variable_that_only_a_cluster_has_is_told_by_its_name() -> None:
    here = Machine(Path("work"), PORTS, threads=1, environment={})
    says = "variable KEY comes from secretKeyRef, which only a cluster has; set KEY in your shell"
    with pytest.raises(BadInputError, match=says):
        _value({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, {}, here)


def test_a_process_has_its_threads_and_its_gpus_unless_its_user_has_chosen(tmp_path: Path) -> None:
    env = translated(tmp_path).env
    assert (env["OMP_NUM_THREADS"], "CUDA_VISIBLE_DEVICES" in env) == ("1", False)
    given = {"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "0,1,2"}
    machine = Machine(tmp_path, PORTS, threads=1, visible_devices="2", environment=given)
    (pod,) = (action.build() for action in a_job().decision.actions if isinstance(action, CreatePod))
    pod["spec"]["containers"][0]["command"] = ["x"]
    process = translate(pod, RunDirectory(tmp_path / "run"), tmp_path / "pod", machine)
    assert (process.env["OMP_NUM_THREADS"], process.env["CUDA_VISIBLE_DEVICES"]) == ("7", "2")


def test_of_the_shell_a_process_has_everything_but_what_only_a_job_can_say(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path, PORTS, threads=1, environment={"DDPJOB_UID": "x", "TRACEPARENT": "y", "RANK": "7", "LANG": "C"}
    )
    trainer = {"name": "trainer", "command": ["x"], "env": [{"name": "DDPJOB_SUPERVISOR", "value": "{}"}]}
    trainer["env"].append({"name": "DDPJOB_TERMINATION_LOG", "value": "/dev/termination-log"})
    labels = {"ddpjob.dev/node": "0", "ddpjob.dev/incarnation": "1"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [trainer]}}
    process = translate(pod, RunDirectory(tmp_path / "run"), tmp_path / "pod", machine)
    assert process.env["LANG"] == "C"
    assert not {"DDPJOB_UID", "TRACEPARENT", "RANK"} & process.env.keys()
