"""When `ddpjob run` looks again, and which ports it takes."""

import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from ddpjob_operator.api import BadInputError, DDPJob, DDPJobStatus, State
from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.status import NetworkStatus
from ddpjob_operator.engine import Action, Asked, DeletePod, Exit, Needs, Pod, RequestCheckpoint, StopPod
from ddpjob_operator.local import ASIDE, RunDirectory
from ddpjob_operator.local import runner as runner_module
from ddpjob_operator.local.process_spec import Machine
from ddpjob_operator.local.runner import Runner, _seen, check_runs_here

from tests.unit.engine.builders import a_job as a_story

JOB = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": {"spec": {"containers": []}}}})


def test_while_nothing_happens_it_sleeps_until_it_is_to_look_again(tmp_path: Path) -> None:
    runner, began = Runner(RunDirectory(tmp_path), JOB, [], print), time.monotonic()
    runner._wait(datetime.now(UTC) + timedelta(seconds=0.03))
    assert time.monotonic() - began > 0.02


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (0, []),
        (1, ["port {0} is taken; using {3}"]),
        (2, ["ports {0} and {1} are taken; using {3} and {4}"]),
        (3, ["ports {0}, {1} and {2} are taken; using {3}, {4} and {5}"]),
    ],
)
def test_of_all_ports_that_are_taken_one_line_tells(taken: int, words: list[str], tmp_path: Path) -> None:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(3)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        ports = [listener.getsockname()[1] for listener in sockets]
        for listener in sockets[taken:]:
            listener.close()
        for listener in sockets[:taken]:
            listener.listen()
        network = NetworkStatus(master_port=ports[0], status_port=ports[1], control_port=ports[2])
        job = JOB.model_copy(update={"status": DDPJobStatus(network=network)})
        told: list[Any] = []
        chosen = Runner(RunDirectory(tmp_path), job, [], told.append)._free_ports()
    found = [chosen.master, chosen.status, chosen.control]
    assert [event.message for event in told] == [text.format(*ports, *found) for text in words]
    assert all(event.reason == ASIDE for event in told)
    assert found[taken:] == ports[taken:]


def test_while_a_person_debugs_a_rank_nothing_starts_again_and_nobody_hurries() -> None:
    rule = {"causes": ["Application"], "action": "RestartFree"}
    spec = {**JOB.spec.to_dict(), "restart": {"maxRestarts": 3, "rules": [rule]}, "finishTimeoutSeconds": 5}
    job = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": spec})
    seen = _seen(job, attached=True)
    attached, restart = seen.job.spec, seen.job.spec.restart
    assert seen.settings.no_restarts == "nothing is restarted with --attach"
    assert (restart.max_restarts, restart.max_disruptions, restart.rules) == (0, 0, ())
    assert attached.finish_timeout_seconds >= 365 * 86400
    alone = _seen(job)
    assert (alone.job.spec.restart.max_restarts, alone.settings.no_restarts) == (3, "")


def test_where_nothing_can_be_written_it_tries_again_each_second_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, told, waits, stopped = RunDirectory(tmp_path), [], [], Mock()
    runner = Runner(run, JOB, [], lambda event: told.append(event.message))

    def refused() -> None:
        if len(waits) == 3:
            runner.stop()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.job_file))

    run.create()
    monkeypatch.setattr(runner, "_round", refused)
    monkeypatch.setattr(runner._pods, "terminate", stopped)
    monkeypatch.setattr(runner, "_wait", lambda until: waits.append((until - datetime.now(UTC)).total_seconds()))
    runner.run()
    assert waits == pytest.approx([1.0] * 3, abs=0.5)
    stopped.assert_called_once_with()
    why = f"No space left on device: {run.job_file}"
    assert told == [
        f"{why}; retrying until it can be written",
        f"{why}; the ranks are told to stop, and the next ddpjob run sees how they end",
    ]


@pytest.mark.parametrize("there", [True, False])
def test_the_directories_of_a_job_outside_its_run_are_made_before_it_starts(tmp_path: Path, *, there: bool) -> None:
    run, data = RunDirectory(tmp_path / "digits"), tmp_path / "some" / "data"
    if there:
        data.mkdir(parents=True)
    check_runs_here(run, a_job_with_a_volume(data))
    assert data.is_dir()
    assert not run.root.exists(), "nothing of the run is there before it starts"


def test_a_directory_that_cannot_be_made_is_named_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    says = f"cannot make the directory {tmp_path}/file/data, which the job's volumes need: Not a directory"
    with pytest.raises(BadInputError, match=says):
        check_runs_here(RunDirectory(tmp_path / "digits"), a_job_with_a_volume(tmp_path / "file" / "data"))


def a_job_with_a_volume(path: Path) -> DDPJob:
    """A job that wants a directory of the machine, and one of its own."""
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "own")]
    volumes = [
        {"name": "data", "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}},
        {"name": "own", "emptyDir": {}},
    ]
    container = {"name": "trainer", "image": "any", "command": ["x"], "volumeMounts": mounts}
    template = {"spec": {"containers": [container], "volumes": volumes}}
    return DDPJob.from_dict({"metadata": {"name": "digits", "uid": "uid-1"}, "spec": {"template": template}})


@dataclass
class Gang:
    """The pods of a run without processes: what becomes of each is `ends`, by its node and its incarnation."""

    ends: Callable[[int, int], int | None]
    pods: dict[str, Pod] = field(default_factory=dict)
    places: list[tuple[int, Machine, Path]] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    specs: list[dict[str, Any]] = field(default_factory=list)

    def create(self, manifest: dict[str, Any], machine: Machine, logs: Path) -> list[str]:
        labels, name = manifest["metadata"]["labels"], manifest["metadata"]["name"]
        node, incarnation = int(labels[Label.NODE]), int(labels[Label.INCARNATION])
        self.places.append((node, machine, logs))
        self.specs.append(manifest["spec"])
        code = self.ends(node, incarnation)
        ended = None if code is None else Exit(code, "Error" if code else "Completed", "", datetime.now(UTC))
        running = code is None
        self.pods[name] = Pod(name, name, node, incarnation, running=running, exit=ended, node_name="here")
        return ["a volume is a directory here"]

    def observe(self) -> tuple[Pod, ...]:
        return tuple(self.pods.values())

    def one_of_gang(self, incarnation: int) -> Any:
        there = any(pod.incarnation >= incarnation for pod in self.pods.values())
        _, machine, logs = self.places[-1] if there else (0, None, None)
        return machine and SimpleNamespace(ports=machine.ports, log=logs / "node-0.log")

    def resume(self, *, starting: bool) -> None:
        self.asked.append(("resume", str(starting)))

    def stop(self, name: str) -> None:
        self._end(name, "stop", stopped=True)

    def delete(self, action: DeletePod) -> None:
        self._end(action.name, "delete", deleting=True)

    def kill(self) -> None:
        for name in [*self.pods]:
            self._end(name, "kill", deleting=True)

    def request_checkpoint(self, name: str, request: str) -> None:
        self.asked.append(("request", name, request))
        self.pods[name] = replace(self.pods[name], checkpoint_request=request)

    def status_port(self, name: str) -> int:
        return next(machine.ports.status for _, machine, _ in self.places if name in self.pods)

    def remove_gone(self, seen: tuple[Pod, ...]) -> None:
        for pod in seen:
            if pod.deleting and pod.exit:
                self.pods.pop(pod.name, None)

    def _end(self, name: str, how: str, **change: bool) -> None:
        pod = self.pods[name]
        self.asked.append((how, name))
        self.pods[name] = replace(pod, exit=pod.exit or Exit(143, "Error", "", datetime.now(UTC)), **change)


@pytest.fixture
def gang_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Runner, Gang, list[str]]]:
    """A runner of a job with so many nodes, its gang, and what it says."""
    monkeypatch.chdir(tmp_path)

    def made(
        ends: Callable[[int, int], int | None], gpus: list[str] | None = None, **spec: Any
    ) -> tuple[Runner, Gang, list[str]]:
        container = {"name": "trainer", "image": "any", "command": ["x"]}
        spec = {"template": {"spec": {"containers": [container]}}, "nodes": 2, "backend": "Gloo", **spec}
        run, told = RunDirectory(tmp_path / "digits"), list[str]()
        run.create()
        run.work_in(tmp_path)
        job = DDPJob.from_dict({"metadata": {"name": "digits", "uid": "uid-1"}, "spec": spec})
        made = Runner(run, job, gpus or [], lambda event: told.append(event.message))
        gang = Gang(ends)
        monkeypatch.setattr(made, "_pods", gang)
        return made, gang, told

    return made


GangOf = Callable[..., tuple[Runner, Gang, list[str]]]


def test_a_job_whose_pods_all_end_well_runs_once_and_is_kept_as_it_ended(gang_of: GangOf, tmp_path: Path) -> None:
    runner, gang, told = gang_of(lambda *_: 0)
    status = runner.run()
    run = RunDirectory(tmp_path / "digits")
    assert (status.state, status.restarts) == (State.SUCCEEDED, 0)
    assert runner.job.status == status == getattr(run.load(), "status", None)
    assert (run.service_file.exists(), run.made is not None) == (True, True)
    (first, machine, logs), (second, *same) = gang.places
    assert ([first, second], same) == ([0, 1], [machine, logs]), "a gang has its ports and its logs together"
    assert (machine.work, logs, machine.visible_devices, machine.attached) == (tmp_path, run.logs_of(1), None, None)
    assert "securityContext" not in gang.specs[0], "processes run as the user"
    assert told.count("a volume is a directory here") == 1, "what is the same for all is said once"
    assert gang.asked[0] == ("resume", "True")


def test_a_gang_that_fails_starts_again_with_ports_and_logs_of_its_own(gang_of: GangOf) -> None:
    restart = {"backoffSeconds": 0, "gracePeriodSeconds": 0}
    runner, gang, _ = gang_of(lambda node, incarnation: 3 if incarnation == node == 1 else 0, restart=restart)
    status = runner.run()
    assert (status.state, status.restarts) == (State.SUCCEEDED, 1)
    assert [(node, logs.name) for node, _, logs in gang.places] == [
        *((0, "attempt-1"), (1, "attempt-1")),
        *((0, "attempt-2"), (1, "attempt-2")),
    ]
    assert gang.places[2][1].ports == gang.places[3][1].ports


def test_each_node_has_its_share_of_the_gpus(gang_of: GangOf) -> None:
    runner, gang, _ = gang_of(lambda *_: 0, ["a", "b", "c", "d"], backend="NCCL", procsPerNode=2)
    runner.run()
    assert [machine.visible_devices for _, machine, _ in gang.places] == ["a,b", "c,d"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_that_is_interrupted_is_suspended_and_killed_if_it_is_interrupted_again(
    times: int, gang_of: GangOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, gang, told = gang_of(lambda *_: None)
    create = gang.create

    def interrupted(*given: Any) -> list[str]:
        for _ in range(times if len(gang.places) == 1 else 0):
            runner.interrupt()
        return create(*given)

    monkeypatch.setattr(gang, "create", interrupted)
    status = runner.run()
    assert (status.state, runner.job.spec.suspend, runner.interrupted) == (State.SUSPENDED, True, True)
    assert ("kill" in {word for word, *_ in gang.asked}) is (times == 2)
    assert told.count("stopping; interrupt again to stop immediately") == 1


@pytest.mark.parametrize(
    ("action", "asked"),
    [
        (StopPod("digits-0", "uid"), ("stop", "digits-0")),
        (DeletePod("digits-0", "uid", 5), ("delete", "digits-0")),
        (RequestCheckpoint("digits-0", "uid", "soon"), ("request", "digits-0", "soon")),
    ],
)
def test_what_the_engine_decides_about_a_pod_the_pod_is_asked(
    action: Action, asked: tuple[str, ...], gang_of: GangOf
) -> None:
    runner, gang, _ = gang_of(lambda *_: None)
    gang.pods["digits-0"] = Pod("digits-0", "uid", 0, 1, running=True)
    runner._act(action)
    assert gang.asked == [asked]


def test_the_supervisor_that_the_engine_asks_about_is_asked_at_its_own_port(
    gang_of: GangOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, gang, _ = gang_of(lambda *_: None)
    asked = Asked("digits-0-x", "127.0.0.1", 29501)
    questions = [Needs(supervisor=asked), Needs(node_names=frozenset({"a"})), Needs()]
    seen: list[Any] = []

    def decide(snapshot: Any) -> Any:
        seen.append(snapshot.answered)
        return SimpleNamespace(needs=questions[len(seen) - 1])

    listener = Mock(report=None)
    monkeypatch.setattr(runner_module, "decide", decide)
    monkeypatch.setattr(runner, "_listener", listener)
    monkeypatch.setattr(gang, "status_port", {"digits-0-x": 40001}.__getitem__, raising=False)
    runner._decision(a_story().snapshot)
    assert seen == [Needs(), questions[0], questions[0] | questions[1]]
    assert listener.attend.mock_calls == [call("uid-1", Asked("digits-0-x", "127.0.0.1", 40001))]


def test_where_the_engine_asks_about_no_supervisor_none_is_asked(
    gang_of: GangOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, _, _ = gang_of(lambda *_: None)
    listener = Mock(report=None)
    monkeypatch.setattr(runner, "_listener", listener)
    runner._decision(a_story().snapshot)
    assert listener.attend.mock_calls == [call("uid-1", None)]


@pytest.mark.parametrize("wakes", [Runner.stop, Runner.look, Runner.interrupt])
def test_who_calls_it_wakes_it(gang_of: GangOf, wakes: Callable[[Runner], None]) -> None:
    runner, *_ = gang_of(lambda *_: None)
    wakes(runner)
    runner._dirty.get_nowait()
    assert runner.interrupted is (wakes is not Runner.look)
