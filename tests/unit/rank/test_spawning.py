"""Programs that spawn processes in a way that cannot work are told what to change."""

import os
from pathlib import Path
from typing import NoReturn

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.failure.spawning import spawning_mistake
from ddpjob_rank.failure.taken_port import taken_port

from .test_taken_port import libuv, other

__all__ = ["other"]


class ProcessExitedException(Exception):  # noqa: N818  (torch's name)
    """Named as torch.multiprocessing.spawn's."""


class ProcessRaisedException(Exception):  # noqa: N818  (torch's name)
    """Named as torch.multiprocessing.spawn's."""


EXITED = ProcessExitedException("process 1 terminated with exit code 1")
NESTED = RuntimeError(
    "\n        An attempt has been made to start a new process before the\n"
    "        current process has finished its bootstrapping phase.\n"
)
GUARD = 'if __name__ == "__main__":\n    {}'
CALLS_MAIN = "def main():\n    {}\n\n\nmain()"


def raised_by(script: Path, text: str, error: Exception) -> ConfigError | None:
    """What is made of an error that the script's text raises at `{}`."""

    def spawn() -> NoReturn:
        raise type(error)(*error.args)

    script.write_text(text.format("spawn()"))
    try:
        exec(compile(script.read_text(), script, "exec"), {"__name__": "__main__", "spawn": spawn})
    except type(error) as caught:
        caught.__traceback__ = caught.__traceback__ and caught.__traceback__.tb_next  # Without this test's own frame.
        return spawning_mistake(caught)
    raise AssertionError("the script raises")


@pytest.mark.parametrize("error", [EXITED, NESTED])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n{}", 2),
        (CALLS_MAIN, 5),
        (GUARD, None),
        (f"{CALLS_MAIN.removesuffix('main()')}{GUARD.format('main()')}", None),
        ("if 1 < 2:\n    {}", 2),
        ("import multiprocessing\nif multiprocessing.parent_process() is None:\n    {}", None),
    ],
    ids=[
        "at the top",
        "in a function",
        "guarded",
        "a function, guarded",
        "below another condition",
        "otherwise guarded",
    ],
)
def test_a_script_that_spawns_whenever_it_is_imported_is_told_where(
    tmp_path: Path, error: Exception, text: str, line: int | None
) -> None:
    script = tmp_path / "train.py"
    told = raised_by(script, text, error)
    assert (told is not None) == (line is not None)
    assert told is None or str(told).startswith(f"{script}:{line} starts processes whenever the script is imported")


@pytest.mark.parametrize(
    "said", ["process 1 terminated with exit code 3", "process 0 terminated with signal SIGKILL"]
)
def test_a_process_that_ended_otherwise_is_no_such_mistake(tmp_path: Path, said: str) -> None:
    assert raised_by(tmp_path / "train.py", "{}", ProcessExitedException(said)) is None


def test_a_forked_process_that_exits_with_1_has_not_imported_the_script(tmp_path: Path) -> None:
    text = "def start(start_method):\n    {}\n\n\nstart('%s')"
    assert raised_by(tmp_path / "train.py", text % "spawn", EXITED)
    assert raised_by(tmp_path / "train.py", text % "fork", EXITED) is None


def test_ranks_that_each_spawn_processes_on_the_same_port_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ProcessRaisedException(f"-- Process 0 terminated with the following error:\n{libuv(1233)}\n")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    told = spawning_mistake(error)
    assert told
    assert str(told).startswith("port 1233 is taken, because each rank of this machine spawns processes")
    assert "--procs-per-node 1" in str(told)
    for size in ("1", "01", "", "two", "\u0664"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", size)
        assert spawning_mistake(error) is None
        assert str(taken_port(error, "")).startswith("port 1233 of this machine is taken by another process; ")


def test_a_port_that_a_stranger_has_is_not_blamed_on_the_ranks(
    other: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, port = other
    error = ProcessRaisedException(f"-- Process 0 terminated with the following error:\n{libuv(port)}\n")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert spawning_mistake(error), "a process that was started by whoever started this one"
    monkeypatch.setattr(os, "getppid", lambda: pid + 1)
    assert spawning_mistake(error) is None
    assert f"port {port} of this machine is taken by process {pid}" in str(taken_port(error, ""))
