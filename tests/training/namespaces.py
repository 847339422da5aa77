"""Namespaces of a process's own, in words that Python has only from 3.12 on."""

import ctypes
import os
from pathlib import Path

CLONE_NEWNS, CLONE_NEWNET = 1 << 17, 1 << 30
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18


def enter_machine(name: str, hosts: Path | None = None) -> None:
    """Moves this process to one of `machines`, with all that it starts from now on; a file may be its /etc/hosts."""
    with Path("/run/netns", name).open("rb") as network:
        _call("setns", network.fileno(), CLONE_NEWNET)
    if hosts is not None:
        mount_for_itself(str(hosts), "/etc/hosts", flags=MS_BIND)


def mount_for_itself(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts something for this process, and for what it starts.

    Raises:
        OSError: it has no right to.
    """
    _call("unshare", CLONE_NEWNS)
    _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
