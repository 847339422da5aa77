"""What the files in a pod's directory say of it."""

import json
from pathlib import Path

import pytest
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine import DeletePod
from ddpjob_operator.local import RunDirectory, processes
from ddpjob_operator.local.files import read_json, write_json
from ddpjob_operator.local.process_spec import Machine, Ports
from ddpjob_operator.local.processes import LocalPod, Pods, _is_attached

UNDER_WAY = {"started.json": '{"pid": 1}'}
RUNS = {"started.json": '{"pid": 1, "main": 2}'}
ENDED = {"exit.json": "{}"}
NEEDED = {"DDPJOB_TERMINATION_LOG": "/dev/termination-log", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("files", "running"),
    [({}, False), (UNDER_WAY, False), (RUNS, True), (RUNS | ENDED, False), (UNDER_WAY | ENDED, False)],
    ids=["made", "under way", "runs", "ended", "could not be started"],
)
def test_a_pod_runs_once_its_process_does(tmp_path: Path, files: dict[str, str], *, running: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert LocalPod(tmp_path).running is running


@pytest.mark.parametrize(
    ("spec", "given", "seconds"),
    [
        ({}, None, 30),
        ({"terminationGracePeriodSeconds": 60}, None, 60),
        ({"terminationGracePeriodSeconds": 60}, 5, 5),
    ],
    ids=["Kubernetes' default", "its own", "less than its own"],
)
def test_a_pod_gets_its_own_grace_period_unless_it_is_to_hurry(
    spec: dict[str, int], given: int | None, seconds: int, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    (run.pods / "digits-0").mkdir(parents=True)
    write_json(run.pods / "digits-0" / "pod.json", {"spec": spec})
    Pods(run, lambda: None).delete(DeletePod("digits-0", "", given))
    assert read_json(run.pods / "digits-0" / "delete.json") == {"gracePeriodSeconds": seconds}


def test_of_a_job_that_is_to_stop_nothing_is_started(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    (run.pods / "digits-0").mkdir(parents=True)
    labels = {Label.JOB_UID: "uid", Label.NODE: "0", Label.INCARNATION: "1"}
    write_json(run.pods / "digits-0" / "pod.json", {"metadata": {"labels": labels}, "spec": {}})
    write_json(run.pods / "digits-0" / "process.json", {"argv": ["touch", str(tmp_path / "started")], "env": {}})
    Pods(run, lambda: None).resume(starting=False)
    assert not (run.pods / "digits-0").exists()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("files", "signals"),
    [({}, 0), ({"delete.json": "{}"}, 1), ({"stop.json": "{}"}, 1), ({"delete.json": "{}"} | ENDED, 0)],
    ids=["runs", "is deleted", "is stopped", "has ended"],
)
def test_what_a_former_run_may_not_have_sent_is_sent_once_more(
    files: dict[str, str], signals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sent = RunDirectory(tmp_path), list[str]()
    pod = run.pods / "digits-0"
    pod.mkdir(parents=True)
    for name, text in {"pod.json": "{}", **UNDER_WAY, **files}.items():
        (pod / name).write_text(text)
    monkeypatch.setattr(processes, "_in_background", lambda *_: None)
    monkeypatch.setattr(Pods, "_signal", lambda _, pod: sent.append(pod.directory.name))
    monkeypatch.setattr(LocalPod, "lost", False)
    Pods(run, lambda: None).resume(starting=True)
    assert sent == ["digits-0"] * signals


def test_each_pod_of_a_node_ends_with_its_own_last_words_though_all_of_an_attempt_write_into_one_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pods, "_start", lambda *_: None)
    pods, machine = (
        Pods(RunDirectory(tmp_path), lambda: None),
        Machine(tmp_path, Ports(1, 2, 3), threads=1, environment={}),
    )
    said = {}
    for name, node in {"digits-1-a": 1, "digits-0-a": 0, "digits-1-b": 1, "digits-1-c": 1}.items():
        labels = {Label.NODE: str(node), Label.INCARNATION: "1"}
        env = [{"name": key, "value": value} for key, value in NEEDED.items()]
        spec = {"containers": [{"name": "trainer", "command": ["x"], "env": env}]}
        pods.create({"metadata": {"name": name, "labels": labels}, "spec": spec}, machine, tmp_path)
        pod = LocalPod(tmp_path / "pods" / name)
        with pod.log.open("a") as log:
            log.write(f"ValueError: {name}\n")
        (pod.directory / "exit.json").write_text(
            json.dumps({"code": 1, "reason": "Error", "message": "", "finishedAt": 0})
        )
        ended = pod.observed().exit
        said[name] = ended and ended.message
    assert said == {name: f"ValueError: {name}" for name in said}
    assert len((tmp_path / "node-1.log").read_text().splitlines()) == 3


RAISED = "Traceback (most recent call last):\n  File x\n    y\nValueError: no\n"


@pytest.mark.parametrize(
    ("code", "full", "report", "log", "said"),
    [
        (1, True, "", "[", "OSError: [Errno 28] No space left on device: "),
        (2, True, "", "Traceback (most recent call last):\n  File", "OSError: [Errno 28] No space left on device: "),
        (1, True, '{"cause": "ConfigError"}', "[", '{"cause": "ConfigError"}'),
        (1, True, "", f"a\n{RAISED}", f"a\n{RAISED}".strip()),
        (1, True, "", f"{RAISED}b", "OSError: [Errno 28] No space left on device: "),
        (3, True, "", "[", "["),
        (137, True, "", "[", "["),
        (1, False, "", "[", "["),
        (0, True, "", "[", ""),
    ],
    ids=[
        "its report is missing",
        "its traceback is cut off",
        "it had room for its report",
        "it had room for its traceback",
        "another traceback is in its log",
        "it has ended with a code of its own",
        "it was killed",
        "there was room",
        "it had not failed",
    ],
)
def test_where_the_disk_was_full_the_end_of_the_log_may_be_missing(
    tmp_path: Path, code: int, report: str, log: str, said: str, *, full: bool
) -> None:
    pod = tmp_path / "pods" / "digits-0-a"
    pod.mkdir(parents=True)
    labels = {Label.NODE: "0", Label.INCARNATION: "1"}
    write_json(pod / "pod.json", {"metadata": {"name": pod.name, "uid": "1", "labels": labels}})
    (tmp_path / "node-0.log").write_text(log)
    write_json(pod / "process.json", {"log": str(tmp_path / "node-0.log"), "logStart": 0})
    (pod / "termination.log").write_text(report)
    ended = {"code": code, "reason": "Error", "message": "", "finishedAt": 0, **({"full": True} if full else {})}
    write_json(pod / "exit.json", ended)
    observed = LocalPod(pod).observed().exit
    assert observed is not None
    assert observed.message.startswith(said)
    assert bool(observed.message) is bool(said)


@pytest.mark.parametrize(
    ("rank", "node", "processes", "attached"),
    [(0, 0, 1, True), (1, 0, 1, False), (1, 1, 1, True), (3, 1, 2, True), (3, 0, 2, False), (4, 1, 2, False)],
)
def test_the_terminal_goes_to_the_node_of_its_rank(rank: int, node: int, processes: int, *, attached: bool) -> None:
    env = {"DDPJOB_ATTACH": str(rank), "NODE_RANK": str(node), "NPROC_PER_NODE": str(processes)}
    assert _is_attached(env) is attached


def test_without_a_terminal_it_goes_to_none() -> None:
    assert not _is_attached({"NODE_RANK": "0", "NPROC_PER_NODE": "1"})


@pytest.mark.parametrize(("wanted", "found"), [(1, 1), (2, 2), (3, 5), (5, 5), (6, None)])
def test_a_gang_is_there_from_the_first_pod_of_its_incarnation_or_a_later_one(
    wanted: int, found: int | None, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    for incarnation in (1, 2, 5):
        (directory := run.pods / f"pod-{incarnation}").mkdir(parents=True)
        write_json(directory / "pod.json", {"metadata": {"labels": {Label.INCARNATION: str(incarnation)}}})
    one = Pods(run, lambda: None).one_of_gang(wanted)
    assert (one and one.directory.name) == (found and f"pod-{found}")
