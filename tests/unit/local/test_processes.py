"""What the files in a pod's directory say of it."""

import json
import os
import platform
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine import DeletePod, Exit, Pod
from ddpjob_operator.local import RunDirectory, container, processes
from ddpjob_operator.local.files import Lock, read_json, write_json
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


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pods, RunDirectory, list[str]]:
    """Three pods, of which one has ended, and what is signalled or changes."""
    run, heard = RunDirectory(tmp_path), list[str]()
    for name, more in {"digits-0": {}, "digits-1": {}, "digits-2": ENDED}.items():
        (run.pods / name).mkdir(parents=True)
        for file, text in {"pod.json": '{"spec": {"terminationGracePeriodSeconds": 60}}', **RUNS, **more}.items():
            (run.pods / name / file).write_text(text)
    monkeypatch.setattr(
        Lock, "signal", lambda lock, number: heard.append(f"{signal.Signals(number).name} {lock._path.parent.name}")
    )
    return Pods(run, lambda: heard.append("changed")), run, heard


def test_a_pod_that_is_to_stop_is_told_once_and_for_how_long(pods: tuple[Pods, RunDirectory, list[str]]) -> None:
    several, run, heard = pods
    several.stop("digits-0")
    several.stop("digits-0")
    several.stop("digits-9")
    assert read_json(run.pods / "digits-0" / "stop.json") == {"gracePeriodSeconds": 60}
    assert heard == ["SIGTERM digits-0", "changed"]
    assert not (run.pods / "digits-9").exists()


def test_a_request_for_a_checkpoint_is_where_the_pods_supervisor_reads_it(
    pods: tuple[Pods, RunDirectory, list[str]],
) -> None:
    several, run, _ = pods
    for request in ("soon", "sooner"):
        several.request_checkpoint("digits-0", request)
        several.request_checkpoint("digits-9", request)
        assert LocalPod(run.pods / "digits-0").checkpoint_request == request
    assert not (run.pods / "digits-9").exists()


def test_all_pods_end_without_a_word_on_disk_or_at_once(pods: tuple[Pods, RunDirectory, list[str]]) -> None:
    several, run, heard = pods
    before = sorted(run.pods.rglob("*"))
    several.terminate()
    assert heard == ["SIGTERM digits-0", "changed", "SIGTERM digits-1", "changed", "SIGTERM digits-2", "changed"]
    assert sorted(run.pods.rglob("*")) == before
    heard.clear()
    several.kill()
    assert heard == ["SIGTERM digits-0", "changed", "SIGTERM digits-1", "changed"], "the third has ended"
    assert read_json(run.pods / "digits-1" / "delete.json") == {"gracePeriodSeconds": 0}


def test_pods_that_are_deleted_and_whose_end_was_seen_are_removed_and_so_are_lost_ones(
    pods: tuple[Pods, RunDirectory, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    several, run, heard = pods
    removed, lost = list[str](), {"digits-1"}
    ended = Exit(0, "Completed", "", None)
    monkeypatch.setattr(LocalPod, "lost", property(lambda pod: pod.directory.name in lost))
    monkeypatch.setattr(Pods, "_remove", lambda _, pod: removed.append(pod.directory.name))
    several.remove_gone((Pod("digits-0", "1", 0, 1, exit=ended), Pod("digits-2", "3", 2, 1, deleting=True)))
    assert (removed, heard) == (["digits-1"], ["changed"])
    lost.clear()
    several.remove_gone((Pod("digits-0", "1", 0, 1), Pod("digits-2", "3", 2, 1, exit=ended, deleting=True)))
    assert (removed, heard) == (["digits-1", "digits-2"], ["changed"] * 2)
    (run.pods / "digits-0" / "started.json").unlink()
    several.remove_gone(())
    write_json(run.pods / "digits-0" / "delete.json", {})
    several.remove_gone(())
    assert removed == ["digits-1", "digits-2", "digits-0"], "it never started"


def test_of_a_job_that_is_to_stop_nothing_is_started(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    (run.pods / "digits-0").mkdir(parents=True)
    labels = {Label.JOB_UID: "uid", Label.NODE: "0", Label.INCARNATION: "1"}
    write_json(run.pods / "digits-0" / "pod.json", {"metadata": {"labels": labels}, "spec": {}})
    write_json(run.pods / "digits-0" / "process.json", {"argv": ["touch", str(tmp_path / "started")], "env": {}})
    Pods(run, lambda: None).resume(starting=False)
    assert not (run.pods / "digits-0").exists()
    assert not (tmp_path / "started").exists()


def test_what_never_started_is_started_with_its_own_variables_and_what_is_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, started = RunDirectory(tmp_path), list[Any]()
    for name, files in {"digits-0": {}, "digits-1": RUNS | ENDED}.items():
        (run.pods / name).mkdir(parents=True)
        for file, text in {"pod.json": '{"spec": {}}', "process.json": '{"env": {"A": "b"}}', **files}.items():
            (run.pods / name / file).write_text(text)
    pods = Pods(run, lambda: None)
    monkeypatch.setattr(pods, "_start", lambda pod, env: started.append((pod.directory.name, env)))
    pods.resume(starting=True)
    assert started == [("digits-0", {"A": "b"})]


def test_the_end_of_pods_is_waited_for_and_then_told(
    pods: tuple[Pods, RunDirectory, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    those, run, heard = pods
    monkeypatch.setattr(Lock, "wait", lambda lock: heard.append(f"waited for {lock._path.parent.name}"))
    those.wait()
    those._report_end(LocalPod(run.pods / "digits-0"))
    assert heard == [*(f"waited for digits-{number}" for number in (0, 1, 2, 0)), "changed"]


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


def test_a_pod_is_started_once_whoever_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[str]()
    monkeypatch.setattr(Pods, "_start", lambda _, pod, env: started.append(f"{pod.directory.name} {env['LANG']}"))
    env = [{"name": key, "value": value} for key, value in NEEDED.items()]
    spec = {"containers": [{"name": "trainer", "command": ["x"], "env": env}]}
    labels = {Label.NODE: "0", Label.INCARNATION: "1"}
    machine = Machine(tmp_path, Ports(1, 2, 3), threads=1, environment={"LANG": "C"})
    pods = Pods(RunDirectory(tmp_path), lambda: None)
    for _ in range(2):
        pods.create({"metadata": {"name": "digits-0", "labels": labels}, "spec": spec}, machine, tmp_path)
    assert started == ["digits-0 C"]
    assert LocalPod(tmp_path / "pods" / "digits-0").manifest["metadata"]["uid"] == "digits-0"


@pytest.mark.parametrize("ended", [True, False])
def test_what_is_left_of_a_pod_is_killed_unless_its_container_has_seen_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    left, asked = [[Mock(), Mock()], []], list[dict[str, str]]()
    killed = list(left[0])
    monkeypatch.setattr(processes, "processes_of", lambda variables: asked.append(variables) or left.pop(0))
    monkeypatch.setattr(processes.psutil, "wait_procs", lambda *_, **__: None)
    run = RunDirectory(tmp_path)
    (run.pods / "digits-1").mkdir(parents=True)
    labels = {Label.JOB_UID: "uid", Label.NODE: "1", Label.INCARNATION: "2"}
    write_json(run.pods / "digits-1" / "pod.json", {"metadata": {"labels": labels}})
    if ended:
        write_json(run.pods / "digits-1" / "exit.json", {})
    Pods(run, lambda: None)._remove(LocalPod(run.pods / "digits-1"))
    assert not (run.pods / "digits-1").exists()
    assert [one.kill.called for one in killed] == [not ended] * 2
    assert asked == [{"DDPJOB_UID": "uid", "NODE_RANK": "1", "DDPJOB_INCARNATION": "2"}] * (0 if ended else 2)


class Terminal:
    """A terminal for rank 1, whose output goes into a log."""

    rank = 1

    def open_terminal(self, log: Path) -> int:
        assert log.name == "node-1.log"
        return 99


@pytest.mark.parametrize(
    ("terminal", "node", "stdin"),
    [(None, 1, subprocess.DEVNULL), (Terminal(), 0, subprocess.DEVNULL), (Terminal(), 1, 99)],
    ids=["no terminal", "another's", "its own"],
)
def test_a_pod_is_started_in_a_session_of_its_own_and_its_start_and_its_end_are_noticed(
    terminal: Terminal | None, node: int, stdin: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, heard = list[tuple[list[str], dict[str, Any]]](), list[str]()
    process = Mock(wait=lambda: heard.append("ended"))

    def popen(argv: list[str], **how: Any) -> Mock:
        started.append((argv, how))
        return process

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    monkeypatch.setattr(processes, "_in_background", lambda what, *given: what(*given))
    write_json(tmp_path / "process.json", {"log": f"node-{node}.log"})
    (tmp_path / "lock").touch()
    env = {"NODE_RANK": str(node), "NPROC_PER_NODE": "1", **({"DDPJOB_ATTACH": "1"} if terminal else {})}
    Pods(RunDirectory(tmp_path), lambda: heard.append("changed"), terminal)._start(LocalPod(tmp_path), env)
    ((argv, how),) = started
    assert argv == [sys.executable, "-I", "-S", container.__file__, str(tmp_path)]
    assert (how["env"], how["stdin"], how["stderr"]) == (env, stdin, subprocess.DEVNULL)
    assert how["start_new_session"]
    assert how["stdout"] > 2, "a pipe, whose end says that it has started"
    assert heard == ["changed", "ended", "changed"]


@pytest.mark.parametrize(
    "files", [{}, {"delete.json": "{}"}, {"stop.json": "{}"}, ENDED], ids=["runs", "goes", "stops", "ended"]
)
def test_the_engine_sees_all_that_is_known_of_a_pod(files: dict[str, str], tmp_path: Path) -> None:
    (directory := tmp_path / "digits-1-x").mkdir()
    labels = {Label.NODE: "1", Label.INCARNATION: "2"}
    write_json(directory / "pod.json", {"metadata": {"name": "digits-1-x", "uid": "uid", "labels": labels}})
    os.utime(directory / "pod.json", (0, 1000))
    end = {"code": 3, "reason": "Error", "message": "said", "finishedAt": 2000}
    for name, text in {**RUNS, **files}.items():
        (directory / name).write_text(json.dumps(end) if name == "exit.json" else text)
    pod, runs = LocalPod(directory), files != ENDED
    pod.request_file.parent.mkdir()
    pod.request_file.write_text("soon\n")
    assert pod.observed() == Pod(
        name="digits-1-x",
        uid="uid",
        node=1,
        incarnation=2,
        running=runs,
        exit=None if runs else Exit(3, "Error", "said", datetime.fromtimestamp(2000, UTC)),
        deleting="delete.json" in files,
        stopped="stop.json" in files,
        node_name=platform.node() or "this machine",
        created_at=datetime.fromtimestamp(1000, UTC),
        address="127.0.0.2" if runs else None,
        checkpoint_request="soon",
    )
