"""The part of a rank that reports to its supervisor what the rank is doing while the rank itself is stuck.

There are two parts, since neither can tell everything. A signal handler of faulthandler writes the stacks: it is C,
does not need Python's lock, and so works while a thread is stuck in C code. A thread that sleeps in a read reports
collectives: that takes Python, and so works unless Python's lock is held. It costs nothing while nobody asks, and a
fork is as safe as before: the thread holds no lock while it waits, and does not exist in the child. A forked child,
such as a worker of a DataLoader, keeps the handler, and so can be asked for its stack as well; a spawned one has
neither.

The files' names are that of the heartbeat file, whose path the supervisor gives, with a suffix: `.stack`, to which
the handler appends; `.ask`, a pipe into which the supervisor writes; and `.told`, a JSON object in a line for each
thing that the thread tells.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpjob_rank.environment import Env

SIGNAL = signal.SIGRTMIN + 9 if sys.platform == "linux" else None
"""A real-time signal that no training program is known to use: SIGUSR1 and 2 are taken by schedulers."""

STACK, ASK, TOLD = ".stack", ".ask", ".told"
"""Suffixes of the files' names."""

QUESTION, STACKS_TOO = b"?", b"s"
"""What is written into the pipe. The thread can write the stacks as well, and does so if the handler does not run
because the main thread is stuck in the kernel, for example in a read from a server that is gone."""

END: dict[str, Any] = {"end": True}
"""What is reported last."""

RECORDERS = {"gloo": "_dump_fr_trace_json", "nccl": "_dump_nccl_trace_json"}
"""PyTorch's flight recorders. Releases before 2.5 have none of these, and some later ones none for gloo."""

COLLECTIVES_TOLD = 32
"""How many of the last entries of each of PyTorch's flight recorders."""


def install() -> None:
    """Makes this process able to answer, if it is the rank of a supervisor. If that fails, it runs without."""
    heartbeat = os.environ.get(Env.HEARTBEAT)
    if not heartbeat or SIGNAL is None:
        return
    with contextlib.suppress(OSError):
        stack = os.open(f"{heartbeat}{STACK}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        faulthandler.register(SIGNAL, file=stack, all_threads=True, chain=False)
        pipe = Path(f"{heartbeat}{ASK}")
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe, 0o600)
        asked = os.open(pipe, os.O_RDWR)  # Also for writing: then it never ends, even without a writer.
        told = Path(f"{heartbeat}{TOLD}")
        threading.Thread(target=_answer, args=(asked, stack, told), name="answering", daemon=True).start()


def _answer(asked: int, stack: int, told: Path) -> None:
    while question := os.read(asked, 512):
        if STACKS_TOO in question:
            faulthandler.dump_traceback(stack, all_threads=True)
        with contextlib.suppress(OSError), told.open("w", encoding="utf-8") as file:
            for said in (*_collectives_told(), END):
                file.write(json.dumps(said) + "\n")
                file.flush()


def _collectives_told() -> Iterator[dict[str, Any]]:
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return
    try:
        groups = c10d._world.pg_map  # noqa: SLF001  As below.
        numbers = {group: group._get_sequence_number_for_group() for group in groups}  # noqa: SLF001
        yield {"sequences": {f"{group.group_name} {groups[group][0]}": number for group, number in numbers.items()}}
        for backend in sorted({name for names, _ in groups.values() for name in _names(names)}):
            yield {"backend": backend, **_recorded(backend)}
    except Exception as error:  # noqa: BLE001  These are PyTorch's own names, which any release may change.
        yield {"error": f"{type(error).__name__}: {error}"}


def _names(backends: str) -> list[str]:
    """Of `cpu:gloo,cuda:nccl` gloo and nccl."""
    return [name.rpartition(":")[2] for name in backends.split(",")]


def _recorded(backend: str) -> dict[str, Any]:
    """What PyTorch's flight recorder has for a backend: how many collectives of each group, and the last ones."""
    dump = getattr(sys.modules["torch._C._distributed_c10d"], RECORDERS.get(backend, ""), None)
    if dump is None:
        return {}
    entries = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
    ours = [entry for entry in entries if not entry["is_p2p"]]
    return {
        "sequences": {f"{entry['process_group'][0]} {backend}": entry["collective_seq_id"] for entry in ours},
        "collectives": [_collective(entry) for entry in entries[-COLLECTIVES_TOLD:]],
        "unfinished": [_collective(entry) for entry in ours if _waits(entry)][:1],
    }


def _collective(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": entry["process_group"][0],
        "number": entry["collective_seq_id"],
        "name": entry["profiling_name"],
        "sizes": entry["input_sizes"],
        "state": "waits" if _waits(entry) else "done",
    }


def _waits(entry: dict[str, Any]) -> bool:
    """Finished entries are retired; gloo's state stays as it was at first."""
    return not entry["retired"] and entry["state"] != "completed"
