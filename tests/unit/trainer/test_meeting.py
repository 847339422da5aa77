"""How the processes of a run meet; here each is a thread, and they meet in a file."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddpjob_rank.errors import ConfigError, PeerLostError, TrainerError
from ddpjob_rank.stopping import StoppedOnRequest
from ddpjob_rank.world import World
from ddpjob_trainer.config import read_config
from ddpjob_trainer.group import joining, stores
from ddpjob_trainer.group.stores import InitMethod, address_of


@dataclass(frozen=True)
class Process:
    """One that comes to the file."""

    rank: int
    size: int = 3
    backend: str = "gloo"
    attempt: int = 1

    def comes(self, file: Path, seconds: float = 20.0) -> Any:
        """The addresses of all; or the error."""
        method = InitMethod(World(self.rank, 0, self.size, 1), self.attempt, seconds, file)
        try:
            store = method.join(self.backend, f"10.0.0.{self.rank}")
        except (TrainerError, PeerLostError) as error:
            return error
        return [address_of(store, rank) for rank in range(self.size)]


def meet(file: Path, *processes: Process, seconds: float = 20.0) -> list[Any]:
    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(lambda process: process.comes(file, seconds), processes))


ALL = [Process(rank) for rank in range(3)]


def test_all_learn_the_addresses_of_all(tmp_path: Path) -> None:
    assert meet(tmp_path / "file", *ALL) == [[f"10.0.0.{rank}" for rank in range(3)]] * 3
    again = [replace(process, attempt=2) for process in ALL]
    assert meet(tmp_path / "file", *again) == [[f"10.0.0.{rank}" for rank in range(3)]] * 3


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (Process(2, backend="nccl"), "has chosen backend "),
        (Process(2, size=4), "is one of "),
        (Process(1), "rank 1 is already at "),
    ],
    ids=["another backend", "another size", "a rank twice"],
)
def test_if_one_does_not_fit_all_hear_why(tmp_path: Path, odd: Process, said: str) -> None:
    met = meet(tmp_path / "file", *ALL[:2], odd)
    assert {type(one) for one in met} == {ConfigError}
    assert all(said in str(one) for one in met)
    assert len({str(one) for one in met}) <= 2, "if the odd one came first, each of the other two says it of itself"


def test_who_waits_in_vain_says_for_whom(tmp_path: Path) -> None:
    met = meet(tmp_path / "file", *(Process(rank, size=12) for rank in (0, 2)), seconds=0.3)
    assert [str(one) for one in met] == [
        f"waited 0 s for rank 1, 3, 4, 5, 6, 7, 8, 9, …: 2 of 12 processes came to {tmp_path}/file"
    ] * 2
    assert {type(one) for one in met} == {PeerLostError}


def test_a_file_that_an_earlier_run_has_left_is_named(tmp_path: Path) -> None:
    meet(tmp_path / "file", *ALL)
    (late,) = meet(tmp_path / "file", Process(0))
    assert isinstance(late, ConfigError)
    assert f"rank 0 is already at {tmp_path}/file: an earlier run has left this file: remove it" in str(late)
    assert meet(tmp_path / "port", Process(0, size=1)) == [["10.0.0.0"]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is not a regular file: name a file that does not exist yet"),
        (lambda path: path.write_text("some words"), "holds something else: name a file that does not exist yet"),
        (lambda path: path.write_bytes(bytes(4)), "holds something else: name a file that does not exist yet"),
    ],
    ids=["a folder", "a text", "an empty key"],
)
def test_a_file_in_which_nobody_can_meet_is_refused(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / "file")
    (error,) = meet(tmp_path / "file", ALL[0])
    assert str(error) == f"{tmp_path}/file, where the processes are to meet, {said}"
    (error,) = meet(tmp_path / "none" / "file", ALL[0])
    assert str(error).startswith(f"cannot write {tmp_path}/none/file, where the processes are to meet: No such file")


@pytest.mark.parametrize(
    ("in_a_job", "kind", "setting"),
    [(False, ConfigError, "MASTER_PORT (--master-port) for all processes"), (True, TrainerError, "spec.network.")],
)
def test_a_port_that_is_taken_is_told_with_the_setting_that_chooses_it(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], setting: str, *, in_a_job: bool
) -> None:
    monkeypatch.setattr(os, "environ", {"DDPJOB_UID": "u"} if in_a_job else {})
    asked: list[tuple[int, bool]] = []

    def store(_address: str, port: int, *, is_master: bool, **_: object) -> None:
        asked.append((port, is_master))
        raise stores.dist.DistNetworkError("EADDRINUSE\nmore" if is_master else "odd\nmore")

    monkeypatch.setattr(stores.dist, "TCPStore", store)
    monkeypatch.setattr(stores, "holder_of", lambda port: f"a program with {port}")
    waited: list[timedelta] = []
    monkeypatch.setattr(stores, "await_rank_0", lambda _, timeout: waited.append(timeout))
    with pytest.raises(TrainerError) as error:
        stores._tcp_store(InitMethod(World(0, 0, 2, 1, "10.0.0.1", 29500), 1, 5.0))
    assert type(error.value) is kind
    assert str(error.value).startswith("port 29500 of this machine is taken by a program with 29500: set another ")
    assert setting in str(error.value)
    with pytest.raises(TrainerError) as error:
        stores._tcp_store(InitMethod(World(1, 0, 2, 1, "10.0.0.1", 29500), 1, 5.0))
    assert str(error.value).startswith("rank 1 cannot use 10.0.0.1:29500: odd; if another program has the port, set ")
    assert (asked, waited) == ([(29500, True), (29500, False)], [timedelta(seconds=5)])
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    with pytest.raises(TrainerError):
        stores._tcp_store(InitMethod(World(0, 0, 2, 1, "10.0.0.1", 29500), 1, 5.0))
    assert asked[-1] == (29500, False), "torchrun serves it"


class Group:
    """torch.distributed, as far as a process joins and leaves a group."""

    class group:  # noqa: N801  (torch's name)
        WORLD = SimpleNamespace(set_timeout=lambda timeout: Group.done.append(("timeout", timeout.total_seconds())))

    ProcessGroup = SimpleNamespace(set_timeout=None)
    done: list[Any] = []  # noqa: RUF012  (reset by the fixture)

    @classmethod
    def init_process_group(cls, backend: str, **how: Any) -> None:
        cls.done.append(("init", backend, how))

    @classmethod
    def barrier(cls) -> None:
        cls.done.append("barrier")

    @classmethod
    def destroy_process_group(cls) -> None:
        cls.done.append("destroyed")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done to the group of rank 1 of two processes, which meet in a file."""
    monkeypatch.setattr(Group, "done", [])
    monkeypatch.setattr(joining, "dist", Group)
    monkeypatch.setattr(joining, "_KEPT", [])
    monkeypatch.setattr(
        joining, "device_of", lambda backend, _: torch.device("cuda", 1) if backend == "nccl" else None
    )
    monkeypatch.setattr(joining, "local_address", lambda _: "10.0.0.1")
    monkeypatch.setattr(joining, "choose_interface", lambda own, others: f"eth of {own} among {[*others]}")
    monkeypatch.setattr(InitMethod, "join", lambda self, backend, _: Group.done.append((self, backend)) or {})
    monkeypatch.setattr(joining, "address_of", lambda _, rank: rank)
    return Group.done


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_group_has_its_ranks_its_backend_and_its_time(
    done: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path, backend: str
) -> None:
    world = World(2, 0, 4, 2)
    config = read_config(
        ["--backend", backend, "--init-method", f"file://{tmp_path}/file", "--timeout-seconds", "9"], {}
    )
    with joining.process_group(world, config):
        (method, asked), (word, made, how), timeout = done
        assert (method, asked) == (InitMethod(world, 0, 9.0, tmp_path / "file"), backend)
        assert (word, made) == ("init", "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo")
        assert (how["rank"], how["world_size"], how["timeout"]) == (2, 4, timedelta(seconds=9))
        assert how["device_id"] == (torch.device("cuda", 1) if backend == "nccl" else None)
        assert timeout == ("timeout", config.group.collective_seconds)
    assert done[-2:] == ["barrier", "destroyed"]
    assert capsys.readouterr().out.splitlines()[0].startswith(f"rank 2 of 4: backend {backend}, device ")
    assert [*joining._addresses({}, world)] == [0, 1, 2, 3], "the next node's first"  # type: ignore[arg-type]
    assert [*joining._addresses({}, World(1, 1, 4, 2))] == [3, 0, 1, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "leaves"), [(None, True), (StoppedOnRequest("saved"), True), (ValueError("odd"), False)]
)
def test_ranks_leave_together_unless_one_has_failed(
    done: list[Any], tmp_path: Path, error: Exception | None, *, leaves: bool
) -> None:
    file = tmp_path / "file"
    for rank in (1, 0):
        file.touch()
        config = read_config(["--backend", "gloo", "--init-method", f"file://{file}"], {})

        def train(rank: int = rank, config: Any = config) -> None:
            with joining.process_group(World(rank, 0, 2, 1), config):
                if error:
                    raise error

        if error:
            with pytest.raises(type(error)):
                train()
        else:
            train()
        assert (done[-2:] == ["barrier", "destroyed"]) is leaves
        assert file.exists() is not (leaves and rank == 0), "rank 0 removes what no other run may use"


def test_only_rank_0_says_which_interface_is_used_and_what_is_set(
    done: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "settings", lambda: "NCCL_DEBUG=INFO")
    for rank, lines in ((1, 1), (0, 3)):
        with joining.process_group(World(rank, 0, 2, 1), read_config(["--backend", "gloo"], {})):
            said = capsys.readouterr().out.splitlines()
        assert len(said) == lines
    assert "eth of 10.0.0.1 among [1, 0]" in said[1]
    assert said[2] == "set for the backend: NCCL_DEBUG=INFO"
    assert done


def test_mpi_gives_each_process_the_rank_that_its_environment_has(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        joining,
        "dist",
        SimpleNamespace(
            init_process_group=lambda backend, timeout: made.append((backend, timeout.total_seconds())),
            get_rank=lambda: 1,
            get_world_size=lambda: 2,
        ),
    )
    config = read_config(["--timeout-seconds", "9"], {})
    joining._join_by_mpi(World(1, 0, 2, 1), config)
    assert made == [("mpi", 9.0)]
    for world in (World(0, 0, 2, 1), World(1, 0, 3, 1)):
        with pytest.raises(ConfigError, match=f"this is rank 1 of 2, not {world.rank} of {world.world_size}: "):
            joining._join_by_mpi(world, config)
