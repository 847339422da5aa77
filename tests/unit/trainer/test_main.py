"""`ddpjob-train` from its command line to its exit code, with what trains left out."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import ddpjob_supervisor.main
import pytest
import torch
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, DivergedError
from ddpjob_rank.stopping import StoppedOnRequest
from ddpjob_rank.world import World
from ddpjob_trainer import main as entry
from ddpjob_trainer.config import read_config
from ddpjob_trainer.group import backend
from ddpjob_trainer.inference import commands
from ddpjob_trainer.recording.position import Position


class Left(BaseException):
    """The process has ended with a code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def leave(code: int) -> NoReturn:
    raise Left(code)


@pytest.fixture(autouse=True)
def kills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many processes of this container have been killed for lack of memory, each time that somebody asks."""
    counted: list[int] = []
    monkeypatch.setattr(entry, "leave_at_once", leave)
    monkeypatch.setattr(entry.memory, "kills", lambda: counted.pop(0) if counted else 0)
    return counted


Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command line; gives its exit code, and its failure report."""
    report = tmp_path / "report"

    def ran(*words: str, train: Callable[..., None] = lambda *_: None, **env: str) -> tuple[int, dict[str, Any]]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("DDPJOB_", "RANK", "WORLD"))}
        monkeypatch.setattr(os, "environ", {**own, Env.TERMINATION_LOG: str(report), **env})
        monkeypatch.setattr(sys, "argv", ["ddpjob-train", *words])
        monkeypatch.setattr(entry, "_train", train)
        with pytest.raises(Left) as left:
            entry.main()
        told = json.loads(report.read_text()) if report.exists() and report.read_text() else {}
        return left.value.code, told

    return ran


def raising(error: Exception, step: int = 0) -> Callable[..., None]:
    def train(_config: Any, _world: World, position: Position) -> None:
        position.step, position.activity = step, "training"
        raise error

    return train


def test_a_training_that_ends_well_ends_with_0_and_leaves_no_report(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report").write_text('{"an": "earlier one"}')
    seen: list[Any] = []
    assert run("--epochs", "3", train=lambda config, world, _: seen.extend((config.epochs, world))) == (0, {})
    assert seen == [3, World()]


def test_an_earlier_report_of_another_process_of_the_node_stays(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report").write_text('{"an": "earlier one"}')
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}
    assert run(**env, MASTER_PORT="29500") == (0, {"an": "earlier one"})


def test_a_run_that_was_told_to_stop_says_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(train=raising(StoppedOnRequest("saved step 7, stopped on request"))) == (205, {})
    assert capsys.readouterr().out == "saved step 7, stopped on request\n"


@pytest.mark.parametrize(
    ("error", "end", "said"),
    [
        (ConfigError("--lr is odd"), (2, "ConfigError"), "error: --lr is odd\n"),
        (DivergedError("training has diverged"), (1, "Diverged"), "error: training has diverged\n"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            (2, "ConfigError"),
            f"error: {sys.executable} lacks torch: ",
        ),
        (ModuleNotFoundError("No module named 'pandas'", name="pandas"), (2, "ConfigError"), "Traceback"),
        (
            RuntimeError("Connection closed by peer [10.0.0.2]:1"),
            (1, "PeerLost"),
            "error: lost a peer in training at step 7: ",
        ),
        (ValueError("odd"), (1, "Application"), "Traceback"),
    ],
)
def test_each_error_has_its_code_its_cause_and_its_words(
    run: Run, capsys: pytest.CaptureFixture[str], error: Exception, end: tuple[int, str], said: str
) -> None:
    code, report = run(train=raising(error, step=7))
    assert ((code, report["cause"]), report["exitCode"], report["step"]) == (end, code, 7)
    assert capsys.readouterr().err.startswith(said)


def test_before_the_first_step_a_report_names_none(run: Run) -> None:
    assert run(train=raising(ValueError("odd")))[1].get("step") is None


@pytest.mark.parametrize(
    ("words", "killed", "cause"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Killed.", [1, 2], "OutOfMemory"),
        ("DataLoader worker (pid 7) is killed by signal: Killed.", [1, 1], "Application"),
        ("odd", [1, 2], "Application"),
    ],
)
def test_a_worker_that_was_killed_since_the_start_is_taken_for_one_that_took_too_much(
    run: Run, kills: list[int], words: str, killed: list[int], cause: str
) -> None:
    kills += killed
    assert run(train=raising(RuntimeError(words)))[1]["cause"] == cause


def test_a_wrong_flag_is_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--epochs", "none")[0] == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_command_leaves_the_trainings_report_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "report").write_text('{"of": "the training"}')
    ran: list[Any] = []
    monkeypatch.setattr(commands, "run", ran.append)
    assert run("export", "x") == (0, {"of": "the training"})
    assert ran == [["export", "x"]]
    monkeypatch.setattr(commands, "run", lambda _: raising(ConfigError("no"))(None, None, Position()))
    assert run("predict", "x") == (2, {"of": "the training"})


def test_shards_are_explained_by_one_process_and_nothing_is_trained(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--workload", "random", "--explain-shards", "1", "--batch-size", "3")
    env = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    never = raising(AssertionError("it trains"))
    assert run(*words, train=never, RANK="0", LOCAL_RANK="0", **env)[0] == 0
    assert capsys.readouterr().out.startswith("90 samples for 2 processes: 15 steps in an epoch")
    assert run(*words, train=never, RANK="1", LOCAL_RANK="1", **env)[0] == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("env", "supervised"),
    [
        ({}, False),
        ({Env.CONTROL_PORT: "29502"}, True),
        ({Env.CONTROL_PORT: "29502", Env.HEARTBEAT: "/run/0"}, False),
        ({Env.CONTROL_PORT: "29502", entry.TORCHRUN: "0"}, False),
        (
            {"NNODES": "1", "NODE_RANK": "0", "NPROC_PER_NODE": "2", "WORLD_SIZE": "2"}
            | {"MASTER_ADDR": "x", "MASTER_PORT": "1"},
            True,
        ),
    ],
    ids=["alone", "a pod", "a rank of a supervisor", "a rank of torchrun", "a node"],
)
def test_the_first_process_of_a_pod_or_a_node_becomes_the_supervisor(
    run: Run, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], *, supervised: bool
) -> None:
    started: list[Any] = []

    def supervise(program: Any, *, joining_seconds: float) -> int:
        started.append((program.module, program.name, program.arguments, joining_seconds))
        return 7

    monkeypatch.setattr(ddpjob_supervisor.main, "supervise", supervise)
    words = ("--timeout-seconds", "30")
    assert run(*words, **env)[0] == (7 if supervised else 0)
    assert started == ([(True, entry.TRAINER, words, 30.0)] if supervised else [])


def test_several_processes_do_not_train_in_a_mode_for_one(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}
    assert run("--mode", "single", **env, MASTER_PORT="1")[0] == 2
    assert "--mode single trains with one process, but 2 are started" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpus", "local", "own", "backend_", "index"),
    [(0, 1, False, "gloo", None), (2, 2, False, "nccl", 1), (1, 2, False, "gloo", None), (1, 2, True, "nccl", 0)],
)
def test_a_process_has_the_backend_and_the_gpu_that_there_are(
    monkeypatch: pytest.MonkeyPatch, gpus: int, local: int, backend_: str, index: int | None, *, own: bool
) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(backend, "gives_each_task_its_gpu", lambda _: own)
    world = World(rank=local - 1, local_rank=local - 1, world_size=local, local_world_size=local)
    assert backend.backend_of(None, world) == backend_
    device = backend.device_of(backend_, world)
    assert device == (torch.device("cpu") if index is None else torch.device("cuda", index))
    assert chosen == ([] if index is None else [device])
    if index is None:
        with pytest.raises(ConfigError, match=f"local rank {local - 1} sees {gpus}; use fewer processes per node"):
            backend.device_of("nccl", world)


def test_a_backend_that_this_pytorch_lacks_is_named_with_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for nccl, has in ((True, "gloo, nccl"), (False, "gloo")):
        monkeypatch.setattr(backend.dist, "is_nccl_available", lambda nccl=nccl: nccl)
        monkeypatch.setattr(backend.dist, "is_mpi_available", lambda: False)
        with pytest.raises(ConfigError, match=rf"backend mpi: .* and has {has}\. Use gloo"):
            backend.backend_of("mpi", World())
    with pytest.raises(ConfigError, match=r"backend nccl: this PyTorch .* is built without it: use gloo"):
        backend.backend_of("nccl", World())
    monkeypatch.setattr(backend.dist, "is_mpi_available", lambda: True)
    assert [backend.backend_of(asked, World()) for asked in ("mpi", "gloo")] == ["mpi", "gloo"]


def test_rank_0_says_why_it_has_this_backend_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for world in (World(), World(rank=1, world_size=2, local_world_size=2, local_rank=1)):
        backend.backend_of(None, world)
    assert capsys.readouterr().out == ""
    backend.backend_of(None, World(world_size=2, local_world_size=2))
    assert capsys.readouterr().out == "backend gloo: 0 GPUs for 2 processes of a node\n"
    backend.backend_of(None, World(world_size=2, local_world_size=1))
    assert "over Ethernet" in capsys.readouterr().out or backend.fabric().infiniband


def test_the_backends_variables_are_told_but_for_the_supervisors_own(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {
        "NCCL_DEBUG": "INFO",
        "GLOO_X": "1",
        "TORCH_NCCL_TRACE": "/run/ddpjob/0.trace",
        "OTHER": "1",
        "A_NCCL_": "1",
    }
    monkeypatch.setattr(os, "environ", env)
    assert backend.settings() == "GLOO_X=1 NCCL_DEBUG=INFO TORCH_NCCL_TRACE=/run/ddpjob/0.trace"
    env[Env.HEARTBEAT] = "/run/ddpjob/0"
    assert backend.settings() == "GLOO_X=1 NCCL_DEBUG=INFO"


def test_a_training_has_room_its_place_in_the_queue_and_ears_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(entry, "check_temporary", lambda: done.append("room"))
    monkeypatch.setattr(entry, "run_as_batch", done.append)
    monkeypatch.setattr(entry.StopRequest, "listen", lambda _: done.append("listens"))
    monkeypatch.setattr("ddpjob_trainer.train.train", lambda *how: done.append(how))
    config, world, position = read_config(["--backend", "gloo"], {}), World(), Position(0, 1, 0)
    entry._train(config, world, position)
    assert done[:3] == ["room", "gloo", "listens"]
    assert done[3][:3] == (config, world, position)
    assert isinstance(done[3][3], entry.StopRequest)
