"""Acts as the container of one pod: runs the pod's process, kills any descendants left, and records how it ended.

This is a separate program (`python -I -S container.py POD_DIRECTORY`) that uses only the standard library. It
outlives the `ddpjob run` that started it, so that training goes on if `ddpjob run` is killed. In the pod's directory
it reads `process.json` (what to run), `delete.json` and `stop.json` (the grace period for a stop), holds the lock on
`lock`, and writes `started.json` and `exit.json`. If the lock is free but `exit.json` is missing, this
program was killed.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
START_ERROR_EXIT_CODE = 128
SIGNAL_BASE = 128
DEFAULT_GRACE = 30.0
RETRY_SECONDS = 1.0
ROOM, ROOM_BYTES = ".room", 4096
"""A file whose disk space is already allocated. While the disk is full, a record is written into this file."""
SHORTEST_TIMER = 0.001  # setitimer(0) would cancel the timer.


def main(pod: Path) -> None:
    """Runs the pod's process, and records its start and its end."""
    lock = os.open(pod / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # Another process runs this pod already.
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    if (pod / "exit.json").exists():
        return
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    stop = _StopRequest(pod)
    process = json.loads((pod / "process.json").read_text())
    _record(pod / "started.json", {"pid": os.getpid()})
    (pod / ROOM).write_bytes(bytes(ROOM_BYTES))
    _record(pod / "exit.json", _run(pod, process, stop))


class _StopRequest:
    """Handles SIGTERM, which `ddpjob run` sends after it has written `delete.json` or `stop.json`."""

    def __init__(self, pod: Path) -> None:
        self._pod = pod
        self._main: int | None = None
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGALRM, self._kill)
        for unheeded in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(unheeded, lambda *_: None)  # SIG_IGN would be inherited by the trainer.

    def watch(self, main: int) -> None:
        """From now on, stops the process `main` on request. If a request has arrived already, stops it now."""
        self._main = main
        if self._asked():
            self._stop()

    def over(self) -> None:
        """Sends no more signals, because the main process has ended and another process may get its pid."""
        self._main = None
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _receive(self, *_: object) -> None:
        if self._main is not None:
            self._stop()

    def _stop(self) -> None:
        """Sends SIGTERM to the main process, as a kubelet does, and SIGKILL after the grace period."""
        periods = [float(json.loads(file.read_text())["gracePeriodSeconds"]) for file in self._asked()]
        grace = min(periods, default=DEFAULT_GRACE)  # If neither file exists, somebody else sent the SIGTERM.
        self._signal(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, max(grace, SHORTEST_TIMER))

    def _asked(self) -> list[Path]:
        """The existing files that request a stop."""
        return [file for name in ("delete.json", "stop.json") if (file := self._pod / name).exists()]

    def _kill(self, *_: object) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._main is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._main, number)


def _run(pod: Path, process: dict[str, Any], stop: _StopRequest) -> dict[str, Any]:
    killed_before = _kills_for_memory()
    with _private(process["log"]) as log:
        try:
            main = subprocess.Popen(
                process["argv"],
                cwd=process["cwd"],
                env=process["env"],
                stdin=0,  # Standard input is empty, or the terminal of `ddpjob run --attach`.
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  This process has one thread.
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"cannot run {process['argv'][0]!r} on this machine: {reason}"
            return _ended(START_ERROR_EXIT_CODE, "StartError", message)
    stop.watch(main.pid)
    _record(pod / "started.json", {"pid": os.getpid(), "main": main.pid})
    os.close(1)  # Reports to `ddpjob run`, at the other end of this pipe, that the process is running.
    code = main.wait()
    stop.over()
    _end_descendants()
    if code == -signal.SIGKILL and _kills_for_memory() > killed_before:
        return _ended(SIGNAL_BASE + signal.SIGKILL, "OOMKilled", "")
    return _ended(code if code >= 0 else SIGNAL_BASE - code, "Completed" if code == 0 else "Error", "")


def _private(file: str) -> IO[bytes]:
    """Opens a file for appending. Only its owner can read it, because a program may print secrets."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _end_descendants() -> None:
    """Kills and reaps all descendants of the pod's process, as happens when a container ends."""
    if sys.platform != "linux":
        return  # Only Linux has subreapers. Elsewhere `ddpjob run` finds descendants by their environment.
    while children := _children():
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _children() -> list[int]:
    """Pids of the children of this process. It is a subreaper, so orphaned descendants are its children too."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _kills_for_memory() -> int:
    """How many processes of this cgroup the kernel has killed for lack of memory; 0 if there is no such counter."""
    for membership in _lines("/proc/self/cgroup"):
        _, controllers, path = membership.split(":", 2)
        v1, v2 = f"/sys/fs/cgroup/memory{path}/memory.oom_control", f"/sys/fs/cgroup{path}/memory.events"
        for line in _lines({"memory": v1, "": v2}.get(controllers, os.devnull)):
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, argument, 0, 0, 0)


_LIBC = ctypes.CDLL(None)


def _ended(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"code": code, "reason": reason, "message": message, "finishedAt": time.time()}


def _record(path: Path, value: dict[str, Any]) -> None:
    """Writes a record. Retries while the disk is full, because the record of an exit must not be lost."""
    while True:
        try:
            return _write(path, value)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        value["full"] = True
        with contextlib.suppress(OSError):
            return _write_into_room(path, value)
        time.sleep(RETRY_SECONDS)


def _write_into_room(path: Path, value: dict[str, Any]) -> None:
    room = path.with_name(ROOM)
    with room.open("r+b") as file:
        file.write(f"{json.dumps(value)}\n".encode())
        file.truncate()
    room.replace(path)


def _write(path: Path, value: dict[str, Any]) -> None:
    """Does the same as files.write_json, which is not imported so that this program starts within 20 ms."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
