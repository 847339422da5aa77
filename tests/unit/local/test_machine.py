"""What this machine has to share: GPUs, and ports, each held by a lock on a file where everybody may write."""

import errno
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from ddpjob_operator.api import BadInputError, DDPJobSpec
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import machine
from ddpjob_operator.local.machine import Port, choose_backend, free_port, lock_of, share_of_gpus


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_two_runs_never_hold_the_same_port() -> None:
    first = Port(free_port())
    assert Port(first.number).number != first.number


def test_where_the_file_is_not_ours_to_open_another_port_is_taken() -> None:
    wanted = free_port()
    lock_of(wanted).mkdir()  # Not even root opens that, who may open every file.
    assert Port(wanted).number != wanted


def test_a_file_that_somebody_has_laid_in_the_way_is_neither_opened_nor_emptied(directory: Path) -> None:
    wanted, precious = free_port(), directory / "precious"
    precious.write_text("content")
    lock_of(wanted).symlink_to(precious)
    assert Port(wanted).number != wanted
    assert precious.read_text() == "content"


def test_where_no_file_can_be_made_one_line_says_where_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(BadInputError, match=r"^cannot lock a port in /nowhere: No such file .* set TMPDIR to a"):
        Port(free_port())


def test_where_no_temporary_file_can_be_made_one_line_says_so_before_anything_is_begun(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/home/me']")
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=nowhere))
    monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
    monkeypatch.chdir(directory)
    assert call(parse(["run", "--", "true"])) == 2
    said = "No usable temporary directory found in ['/tmp', '/home/me']; set TMPDIR to a directory of yours that has"
    assert capsys.readouterr() == ("", f"error: cannot lock a port: {said} room\n")
    assert not [*directory.iterdir()]


@pytest.mark.parametrize(
    ("procs_per_node", "shares"), [(1, ["0", "1", "2"]), (2, ["0,1", "2,3", "4,5"]), (3, ["0,1,2", "3,4,5", ""])]
)
def test_each_node_has_the_gpus_that_follow_those_of_the_one_before(procs_per_node: int, shares: list[str]) -> None:
    gpus = [str(gpu) for gpu in range(6)]
    assert [share_of_gpus(gpus, node, procs_per_node) for node in range(3)] == shares


@pytest.mark.parametrize(
    ("nodes", "gpus", "why"),
    [
        (1, [], "on CPU: 0 GPUs for 1 rank"),
        (2, ["0"], "on CPU: 1 GPU for 2 ranks"),
        (1, ["0"], "1 GPU for 1 rank"),
        (2, ["0", "1"], "2 GPUs for 2 ranks"),
    ],
)
def test_why_a_backend_is_chosen_is_told(nodes: int, gpus: list[str], why: str) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    assert choose_backend(DDPJobSpec.model_validate({"nodes": nodes, "template": template}), gpus)[1] == why


def test_a_port_on_which_somebody_listens_is_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = other.getsockname()[1]
        assert Port(wanted).number != wanted


@pytest.mark.parametrize(
    ("chosen", "driver", "found"),
    [
        ("0,2", None, ["0", "2"]),
        ("GPU-a,-1, ,3", ["9"], ["GPU-a", "3"]),
        ("", ["0"], []),
        (None, ["0", "1"], ["0", "1"]),
        (None, [], []),
        (None, None, []),
    ],
    ids=["chosen", "some of them are none", "none is chosen", "all", "the driver fails", "no driver"],
)
def test_the_gpus_are_those_that_cuda_programs_see(
    chosen: str | None, driver: list[str] | None, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Mock(stdout="\n".join(driver or ["failed"]), returncode=0 if driver else 9)
    monkeypatch.setattr(machine.shutil, "which", lambda _: None if driver is None else "/usr/bin/nvidia-smi")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: listed)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert machine.visible_gpus() == found


@pytest.mark.parametrize(("processes", "threads"), [(1, 6), (2, 3), (4, 1), (6, 1), (7, 1), (100, 1)])
def test_the_cores_are_shared_and_each_process_has_one_at_least(
    processes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert machine.threads_per_process(processes) == threads


def test_a_free_port_is_one_on_which_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.create_server((machine.LOOPBACK, 0)) as taken:
        monkeypatch.setattr(machine, "PORTS", [*[taken.getsockname()[1]] * 9, free])
        assert {free_port() for _ in range(5)} == {free}


def test_processes_are_found_by_all_of_the_variables_and_none_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_process(status: str = "running", **env: str) -> Any:
        return SimpleNamespace(status=lambda: status, environ=lambda: env)

    def gone() -> str:
        raise psutil.NoSuchProcess(7)

    ours, other = a_process(A="1", B="2", C="3"), a_process(A="1", B="3")
    left: Any = [SimpleNamespace(status=gone), ours, other, a_process(A="1"), a_process("zombie", A="1", B="2")]
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(left))
    assert machine.processes_of({"A": "1", "B": "2"}) == [ours]
