"""Runs without an operator: nodes in shells, processes that meet in a file or at a port, and what may be wrong."""

import codecs
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.group import stores
from ddpjob_trainer.group.stores import InitMethod

from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for
from tests.training.forking import Supervisor, fork_supervisor
from tests.training.namespaces import enter_machine
from tests.training.ranks import world
from tests.training.runs import Runs

DEADLINE_SECONDS = 60
TRAIN = ("ddpjob_trainer", "--threads", "1", "--epochs", "1")
SUPERVISE = ("ddpjob_supervisor",)
ANOTHER = 54321
"""A user who is not this one."""
SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(205))
print("started", os.environ["RANK"], flush=True)
until = sys.argv[1]
while not (os.path.exists(until) and (code := open(until).read())): time.sleep(0.01)
sys.exit(int(code))
"""
"""Ends with the code that a file gives, once that is there."""


@dataclass
class Shell:
    """A command of a user's, and what it prints."""

    process: Supervisor
    screen: Path

    def wait_for(self, word: str) -> None:
        def there() -> bool:
            ended = self.process.poll() is not None
            if word in self.said:
                return True
            assert not ended, f"ended without {word!r}:\n{self.said}"
            return False

        wait_for(repr(word), there, story=lambda: self.said)

    def end(self) -> int:
        try:
            return self.process.wait(patience(DEADLINE_SECONDS))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end:\n{self.said}") from None

    @property
    def said(self) -> str:
        return self.screen.read_text()


Type = Callable[..., Shell]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Type]:
    """Types `python -m MODULE ...` in a shell of its own, in which something may have been called before."""
    started: list[Shell] = []
    clean = {name: value for name, value in os.environ.items() if name not in world(0, 1, 1)}

    def start(module: str, *words: object, before: Callable[[], None] | None = None, **env: str) -> Shell:
        screen = tmp_path / f"screen-{len(started)}"
        process = fork_supervisor(module, [*map(str, words)], {**clean, **env}, tmp_path, screen, before=before)
        started.append(Shell(process, screen))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def node_of(nodes: int, rank: int, port: int) -> dict[str, str]:
    """A node with one process, as its variables tell it."""
    return {
        "NNODES": str(nodes),
        "NODE_RANK": str(rank),
        "NPROC_PER_NODE": "1",
        "WORLD_SIZE": str(nodes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def test_two_nodes_with_two_processes_each_train_in_two_shells_of_one_machine(shell: Type) -> None:
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(hold_port())}
    nodes = [shell(*TRAIN, "-n", 2, "-g", 2, "-nr", rank, **master) for rank in (1, 0)]
    assert [node.end() for node in nodes] == [0, 0], "".join(node.said for node in nodes)
    assert {f"rank {rank} of 4: backend gloo, device cpu" for rank in (2, 3)} <= set(nodes[0].said.splitlines())
    assert {f"rank {rank} of 4: backend gloo, device cpu" for rank in (0, 1)} <= set(nodes[1].said.splitlines())
    assert "backend gloo: 0 GPUs for 2 processes of a node; over Ethernet\n" in nodes[1].said
    assert [node.said.count("finished ") for node in nodes] == [0, 1]


def test_on_a_machine_whose_own_name_leads_to_itself_gloo_takes_the_way_to_the_others(
    shell: Type, machines: list[str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0123456789abcdef" * 4)
    words = (*TRAIN, "--nodes", 2, "--procs-per-node", 1, "--master-addr", "first", "--secret-file", secret)
    nodes = []
    for rank, address in enumerate(["127.0.1.1", "10.77.0.10"]):  # As on Debian; as a name server says.
        hosts = tmp_path / f"hosts-{rank}"
        hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n{address} first\n")
        inside = partial(enter_machine, machines[rank], hosts)
        nodes.append(shell(*words, "--node-rank", rank, before=inside, NCCL_DEBUG="WARN"))
    assert [node.end() for node in nodes] == [0, 0], "".join(node.said for node in nodes)
    assert "gloo uses eth0, which leads to the other machines" in nodes[0].said
    assert "set for the backend: GLOO_SOCKET_IFNAME=eth0 NCCL_DEBUG=WARN\n" in nodes[0].said


@pytest.mark.parametrize("rank", [0, 1])
def test_beyond_this_machine_nobody_trains_without_a_secret(shell: Type, rank: int) -> None:
    node = shell(*TRAIN, "--nodes", 2, "--master-addr", "10.77.0.10", "--node-rank", rank)
    assert node.end() == 2, node.said
    assert "and add --secret-file FILE on each node, or set DDPJOB_SECRET_FILE; if " in node.said


@pytest.fixture
def script(tmp_path: Path) -> tuple[Path, Path]:
    """A script whose ranks wait for a file, and that file."""
    (tmp_path / "wait.py").write_text(SCRIPT)
    return tmp_path / "wait.py", tmp_path / "until"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else, too")
def test_on_one_machine_another_user_takes_no_place_in_a_gang(
    shell: Type, script: tuple[Path, Path], elsewhere: Path
) -> None:
    port = hold_port()
    first = shell(*SUPERVISE, *script, **node_of(2, 0, port))
    environment = {**os.environ, **node_of(2, 1, port)}
    words = [shutil.copy(script[0], elsewhere), str(script[1])]
    stranger = fork_supervisor(*SUPERVISE, words, environment, elsewhere, elsewhere / "screen", before=be_another)
    try:
        first.wait_for(
            "refused a connection to the control port from 127.0.0.1: it does not prove that it belongs to this job\n"
        )
    finally:
        stranger.kill()
        stranger.wait()
    assert "started" not in first.said
    nodes = [first, shell(*SUPERVISE, *script, **node_of(2, 1, port))]
    for rank, node in enumerate(nodes):
        node.wait_for(f"started {rank}")
    script[1].write_text("0")
    assert [node.end() for node in nodes] == [0, 0], "".join(node.said for node in nodes)


def be_another() -> None:
    codecs.lookup("ascii")  # Who is another user may not read this Python, if it is in somebody's home.
    os.setgroups([])
    os.setgid(ANOTHER)
    os.setuid(ANOTHER)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory for everybody, and afterwards nothing of another user's."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o777)
        (directory / "screen").touch()
        (directory / "screen").chmod(0o666)
        yield directory
    shutil.rmtree(directory.parent / f"ddpjob-{ANOTHER}", ignore_errors=True)


@pytest.mark.parametrize("stopped", [0, 1])
def test_when_one_node_is_asked_to_stop_all_save_and_stop(
    shell: Type, script: tuple[Path, Path], stopped: int
) -> None:
    port = hold_port()
    nodes = [shell(*SUPERVISE, *script, **node_of(2, rank, port)) for rank in (0, 1)]
    for rank, node in enumerate(nodes):
        node.wait_for(f"started {rank}")
    nodes[stopped].process.send_signal(signal.SIGTERM)
    script[1].write_text("205")  # The ranks themselves agree on it.
    assert [node.end() for node in nodes] == [205, 205], "".join(node.said for node in nodes)


@pytest.mark.parametrize(
    ("lost", "codes", "message"),
    [
        (0, [-9, 1], "error: rank 0's supervisor is gone, and its ranks with it\n"),
        (1, [204, -9], "error: node 1 failed: PeerLost: it went away\n"),
    ],
)
def test_when_one_node_is_lost_the_other_says_so_and_ends(
    shell: Type, script: tuple[Path, Path], lost: int, codes: list[int], message: str
) -> None:
    port = hold_port()
    nodes = [shell(*SUPERVISE, *script, **node_of(2, rank, port)) for rank in (0, 1)]
    for rank, node in enumerate(nodes):
        node.wait_for(f"started {rank}")
    nodes[lost].process.kill()
    assert [node.end() for node in nodes] == codes, "".join(node.said for node in nodes)
    assert message in nodes[1 - lost].said


def test_when_a_rank_fails_every_shell_says_which(shell: Type, script: tuple[Path, Path]) -> None:
    port = hold_port()
    nodes = [
        shell(*SUPERVISE, script[0], script[1].with_suffix(f".{rank}"), **node_of(2, rank, port)) for rank in (0, 1)
    ]
    for rank, node in enumerate(nodes):
        node.wait_for(f"started {rank}")
    script[1].with_suffix(".1").write_text("7")
    assert [node.end() for node in nodes] == [204, 7], "".join(node.said for node in nodes)
    assert "error: node 1 failed: Application: ended with exit code 7\n" in nodes[0].said


def test_a_second_node_with_the_same_number_is_turned_away(shell: Type, script: tuple[Path, Path]) -> None:
    port = hold_port()
    nodes = [shell(*SUPERVISE, *script, **node_of(2, rank, port)) for rank in (0, 1)]
    nodes[1].wait_for("started 1")
    second = shell(*SUPERVISE, *script, **node_of(2, 1, port))
    assert second.end() == 2, second.said
    assert "node 1 has already joined: each node needs a different number" in second.said
    second_first = shell(*SUPERVISE, *script, **node_of(2, 0, port))
    assert second_first.end() == 1, second_first.said
    taken = f"cannot listen on port {port + 2} for the other supervisors: it is taken by process "
    assert taken in second_first.said
    script[1].write_text("0")
    assert [node.end() for node in nodes] == [0, 0], "".join(node.said for node in nodes)


@pytest.mark.parametrize(
    ("rank", "code", "message"),
    [
        (0, 204, "error: node 1 failed: PeerLost: it has not joined within 1 s\n"),
        (1, 1, "error: waited 1 s for rank 0's supervisor at 127.0.0.1:"),
    ],
)
def test_whoever_waits_in_vain_says_for_whom(shell: Type, rank: int, code: int, message: str) -> None:
    words = ("--nodes", 2, "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", hold_port())
    node = shell(*TRAIN, *words, "--timeout-seconds", 1)
    assert node.end() == code, node.said
    assert message in node.said


def test_processes_meet_in_a_file_and_leave_none(runs: Runs, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    run = runs.train(2, "--epochs", 1, "--init-method", f"file://{meeting}")
    assert "rank 1 of 2: backend gloo" in run.output(1)
    assert not meeting.exists()


@pytest.mark.parametrize("came", [0, 1])
def test_the_file_of_an_earlier_run_is_known_by_whom_it_names_and_nobody_waits(
    runs: Runs, tmp_path: Path, came: int
) -> None:
    words = ("--epochs", 1, "--init-method", f"file://{tmp_path / 'meeting'}")
    first = runs.start(2, *words, "--timeout-seconds", 1, ranks=[came])
    assert first.end() == [1], first.story()
    again = runs.start(2, *words)
    assert again.end() == [2, 2], again.story()
    for rank in (0, 1):
        assert f"rank {came} is already at {tmp_path / 'meeting'}: an earlier run has left" in again.errors(rank)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            lambda file: file.parent.rmdir(),
            "cannot write {}, where the processes are to meet: No such file or directory",
        ),
        (Path.mkdir, "{}, where the processes are to meet, is not a regular file"),
        (os.mkfifo, "{}, where the processes are to meet, is not a regular file"),
        (
            lambda file: file.write_text("my notes of today\n"),
            "{}, where the processes are to meet, holds something else",
        ),
    ],
    ids=["nowhere", "directory", "pipe", "text"],
)
def test_a_file_in_which_nobody_can_meet_is_named(tmp_path: Path, there: Callable[[Path], object], said: str) -> None:
    meeting = tmp_path / "shared" / "meeting"
    meeting.parent.mkdir()
    there(meeting)
    with pytest.raises(ConfigError, match=re.escape(said.format(meeting))):
        InitMethod(World(rank=0, world_size=2), 1, DEADLINE_SECONDS, meeting).join("gloo", "here")


def test_processes_that_count_differently_are_told_apart(runs: Runs) -> None:
    port = str(hold_port())
    two = runs.start(2, ranks=[0], env={"MASTER_PORT": port})
    three = runs.start(3, ranks=[2], env={"MASTER_PORT": port})
    assert two.end() == [2], two.story()
    assert three.end() != [0]  # It may lose rank 0 before it has heard why.
    assert "processes are to meet at 127.0.0.1" in two.errors()
    assert "all processes of a run need the same numbers of nodes and processes" in two.errors()


def test_processes_that_have_chosen_other_backends_all_say_so_at_once(tmp_path: Path) -> None:
    methods = [
        InitMethod(World(rank=rank, world_size=2), 1, DEADLINE_SECONDS, tmp_path / "meeting") for rank in (0, 1)
    ]
    with ThreadPoolExecutor() as threads:
        came = [threads.submit(one.join, backend, "") for one, backend in zip(methods, ("gloo", "nccl"), strict=True)]
    for one in came:
        refused = r"chosen backend \w+, but other ranks chose \w+: name one for all with --backend"
        assert re.search(refused, str(one.exception()))


def test_who_waits_in_vain_asks_once_for_each_rank_whoever_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Asked(stores.PrefixStore):
        def check(self, keys: list[str]) -> bool:
            asked.extend(keys)
            return bool(super().check(keys))

    monkeypatch.setattr(stores, "PrefixStore", Asked)
    methods = [InitMethod(World(rank=rank, world_size=5), 1, 1.0, tmp_path / "meeting") for rank in (0, 1, 3)]
    with ThreadPoolExecutor() as threads:
        came = [threads.submit(one.join, "gloo", "") for one in methods]
    for one in came:
        assert str(one.exception()).startswith("waited 1 s for rank 2, 4: 3 of 5 processes came to ")
    assert asked == [f"arrived/{rank}" for rank in range(5)]


@pytest.mark.parametrize(
    ("env", "code", "setting"),
    [({}, 2, "MASTER_PORT (--master-port) for all processes"), ({"DDPJOB_UID": "b7"}, 1, "spec.network.masterPort")],
    ids=["by hand", "of a job"],
)
def test_a_port_that_is_taken_is_named_with_what_to_do_and_a_job_tries_again(
    runs: Runs, env: dict[str, str], code: int, setting: str
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        run = runs.start(2, ranks=[0], env={**env, "MASTER_PORT": str(port)})
        assert run.end() == [code], run.story()
    taken_by = f"port {port} of this machine is taken by process {os.getpid()} "
    assert re.search(rf"{taken_by}\(\S+\): set another {re.escape(setting)}\n", run.errors())


def test_mpi_is_asked_for_in_vain_where_pytorch_is_built_without_it(runs: Runs) -> None:
    run = runs.start(1, "--backend", "mpi")
    assert run.end() == [2]
    assert "is built without it, and has gloo" in run.errors()
    assert "build PyTorch from source on a machine with MPI" in run.errors()
