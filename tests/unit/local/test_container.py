"""What stands in for a container ends its process in time, and records how that ended."""

import errno
import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.local import container

WRITE = container._write


def failing(*errors: int) -> object:
    """A way to write files that fails so often, then does not."""
    left = list(errors)

    def write(path: Path, value: dict[str, object]) -> None:
        if left:
            raise OSError(left.pop(0), "no")
        WRITE(path, value)

    return write


def test_on_a_full_disk_the_end_of_a_process_is_recorded_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "RETRY_SECONDS", 0)
    monkeypatch.setattr(container, "_write", failing(errno.ENOSPC, errno.EDQUOT))
    container._record(tmp_path / "exit.json", {"code": 3})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 3, "full": True}


def test_a_directory_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        container._record(tmp_path / "gone" / "exit.json", {"code": 3})


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ([], [30.0]),
        ([("stop", 60)], [60.0]),
        ([("stop", 60), ("delete", 5)], [60.0, 5.0]),
        ([("delete", 60), ("delete", 5), ("delete", 0)], [60.0, 5.0, container.SHORTEST_TIMER]),
        ([("stop", 5), ("delete", 60)], [5.0, 5.0]),
    ],
    ids=["a signal from elsewhere", "one", "a shorter one later", "shorter and shorter", "a longer one later"],
)
def test_the_shortest_time_that_a_process_was_given_counts(
    asked: list[tuple[str, int]], seconds: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers, signals = list[float](), list[int]()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda _, after: timers.append(after))
    monkeypatch.setattr(os, "kill", lambda _, number: signals.append(number))
    stop = container._StopRequest(tmp_path)
    stop.watch(17)
    for name, grace in asked or [("", 0)]:
        if name:
            (tmp_path / f"{name}.json").write_text(json.dumps({"gracePeriodSeconds": grace}))
        stop._receive()
    assert timers == seconds
    assert signals == [signal.SIGTERM] * len(timers)


V1 = {
    "/proc/self/cgroup": ["7:cpu,cpuacct:/other", "4:memory:/a:b", "0::/c"],
    "/sys/fs/cgroup/memory/a:b/memory.oom_control": ["oom_kill_disable 0", "under_oom 1", "oom_kill 3"],
}
V2 = {
    "/proc/self/cgroup": ["0::/a/b"],
    "/sys/fs/cgroup/a/b/memory.events": ["low 1", "high 2", "max 4", "oom 5", "oom_kill 6", "oom_group_kill 7"],
}
OLD = {**V1, "/sys/fs/cgroup/memory/a:b/memory.oom_control": ["oom_kill_disable 0", "under_oom 1"]}


@pytest.mark.parametrize(
    ("files", "kills"), [(V1, 3), (V2, 6), (OLD, 0), ({}, 0)], ids=["v1", "v2", "an old kernel", "no cgroups"]
)
def test_what_the_kernel_has_killed_for_memory_is_counted_in_either_version_of_cgroups(
    files: dict[str, list[str]], kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_lines", lambda file: files.get(file, []))
    assert container._kills_for_memory() == kills


class Stop:
    """Notes which process is watched, and that it is over."""

    def __init__(self, *_: object) -> None:
        self.heard: list[object] = []

    def watch(self, main: int) -> None:
        self.heard.append(main)

    def over(self) -> None:
        self.heard.append("over")


@pytest.mark.parametrize(
    ("argv", "kills", "ended"),
    [
        (["sh", "-c", "echo said; exit 0"], [0, 0], (0, "Completed", "")),
        (["sh", "-c", "echo said >&2; exit 3"], [0, 1], (3, "Error", "")),
        (["sh", "-c", "echo said; kill -TERM $$"], [0, 1], (143, "Error", "")),
        (["sh", "-c", "echo said; kill -KILL $$"], [1, 1], (137, "Error", "")),
        (["sh", "-c", "echo said; kill -KILL $$"], [1, 2], (137, "OOMKilled", "")),
        (["none"], [0], (128, "StartError", "cannot run 'none' on this machine: No such file or directory")),
        (["a\0b"], [0], (128, "StartError", "cannot run 'a\\x00b' on this machine: embedded null byte")),
    ],
    ids=["well", "badly", "told to", "killed", "killed for memory", "no program", "no name"],
)
def test_how_a_process_has_ended_is_told_as_a_kubelet_tells_it(
    argv: list[str],
    kills: list[int],
    ended: tuple[int, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, closed, reaped, stop = iter(kills), [], [], Stop()
    monkeypatch.setattr(container, "_kills_for_memory", lambda: next(counted))
    monkeypatch.setattr(container, "_end_descendants", lambda: reaped.append(True))
    monkeypatch.setattr(container, "os", SimpleNamespace(**{**vars(os), "close": closed.append}))
    process = {"argv": argv, "cwd": str(tmp_path), "env": dict(os.environ), "log": str(tmp_path / "log")}
    found = container._run(tmp_path, process, stop)  # type: ignore[arg-type]
    assert (found["code"], found["reason"], found["message"]) == ended
    if ended[1] == "StartError":
        assert not (tmp_path / "started.json").exists()
        return
    main = json.loads((tmp_path / "started.json").read_text())["main"]
    assert stop.heard == [main, "over"]
    assert reaped == [True]
    assert 1 in closed, "`ddpjob run` learns that it runs"
    assert (tmp_path / "log").read_text() == "said\n"


@pytest.mark.parametrize("what", ["it runs", "it has ended", "it is new"])
def test_a_pod_is_run_once(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(container, "_StopRequest", Stop)
    asked = []
    monkeypatch.setattr(container, "_prctl", lambda *words: asked.append(words))
    monkeypatch.setattr(container, "_run", lambda pod, *_: ran.append(pod) or {"code": 0})
    (tmp_path / "process.json").write_text("{}")
    (tmp_path / "lock").write_text("4194303, a former one\n")
    if what == "it has ended":
        (tmp_path / "exit.json").write_text("{}")
    with (tmp_path / "lock").open() as other:
        if what == "it runs":
            fcntl.flock(other, fcntl.LOCK_EX)
        container.main(tmp_path)
    assert ran == ([tmp_path] if what == "it is new" else [])
    if what == "it is new":
        assert asked == [(36, 1)], "it becomes the parent of all that its process leaves behind"
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        assert json.loads((tmp_path / "started.json").read_text()) == {"pid": os.getpid()}
        assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 0}


def test_on_a_full_disk_a_record_has_the_room_that_was_kept_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / container.ROOM).write_bytes(bytes(container.ROOM_BYTES))
    monkeypatch.setattr(container, "_write", failing(errno.ENOSPC))
    container._record(tmp_path / "exit.json", {"code": 3})
    assert (tmp_path / "exit.json").read_text() == '{"code": 3, "full": true}\n'
    assert not (tmp_path / container.ROOM).exists()


def test_a_stop_reaches_the_main_process_while_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers, sent, timers = dict[int, Any](), list[tuple[int, int]](), list[float]()
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "setitimer", lambda _, after: timers.append(after))

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        if number == signal.SIGKILL:
            raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    stop = container._StopRequest(tmp_path)
    unheeded = {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
    assert handlers.keys() == {signal.SIGTERM, signal.SIGALRM, *unheeded}
    for handler in handlers.values():
        handler(0, None)
    assert (sent, timers) == ([], []), "there is no process yet"
    stop.watch(7)
    assert sent == [], "nobody has asked"
    handlers[signal.SIGALRM](0, None)
    (tmp_path / "stop.json").write_text('{"gracePeriodSeconds": 3}')
    stop.watch(8)
    assert sent == [(7, signal.SIGKILL), (8, signal.SIGTERM)]
    stop.over()
    for handler in handlers.values():
        handler(0, None)
    assert (len(sent), timers) == (2, [3, 0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_descendants_are_killed_and_reaped_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    done, found = list[tuple[str, int, int]](), iter([[5, 6], [7], []])
    monkeypatch.setattr(container, "_children", lambda: next(found))
    monkeypatch.setattr(os, "kill", lambda pid, number: done.append(("kill", pid, number)))
    monkeypatch.setattr(os, "waitpid", lambda pid, how: done.append(("reap", pid, how)))
    container._end_descendants()
    assert done == [
        *(("kill", pid, signal.SIGKILL) for pid in (5, 6)),
        *(("reap", pid, 0) for pid in (5, 6)),
        ("kill", 7, signal.SIGKILL),
        ("reap", 7, 0),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has prctl")
def test_a_process_asks_to_die_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(container, "_LIBC", SimpleNamespace(prctl=lambda *words: asked.append(words)))
    container._die_with_parent()
    assert asked == [(1, signal.SIGKILL, 0, 0, 0)]
    assert container._lines("/nowhere") == []
