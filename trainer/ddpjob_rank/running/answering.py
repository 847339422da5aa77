"""Reports to the supervisor what this rank is doing, even while its program is stuck.

There are two mechanisms, because neither works in every case. A signal handler of faulthandler writes the stacks: it
is C code that does not need the GIL, so it works even while a thread is stuck in C code. A thread that sleeps in a
read reports the collectives and exceptions: it runs Python code, so it works unless another thread holds the GIL.
This thread costs nothing until the supervisor asks, and does not make forks less safe: it holds no lock while it
waits, and does not exist in the child. A forked child, such as a worker of a DataLoader, inherits the handler, so it
can also be asked for its stacks. A spawned child has neither mechanism.

The paths of the files consist of the path of the heartbeat file, which the supervisor sets, and a suffix: the handler
appends to `.stack`; the supervisor writes its questions into the pipe `.ask`; and the thread writes its answer to
`.told`, as one JSON object per line.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.failure.failure_report import last_line
from ddpjob_rank.failure.own_code import place_of

SIGNAL = signal.SIGRTMIN + 9 if sys.platform == "linux" else None
"""A real-time signal that no known training program uses. (Schedulers use SIGUSR1 and SIGUSR2.)"""

STACK, ASK, TOLD = ".stack", ".ask", ".told"
"""The suffixes of the files."""

QUESTION, STACKS_TOO = b"?", b"s"
"""The bytes that the supervisor writes into the pipe. STACKS_TOO requests the stacks from the thread as well, because
the handler cannot run while the main thread is stuck in the kernel, as in a read from a server that is gone."""

END: dict[str, Any] = {"end": True}
"""The last line of an answer."""

RECORDERS = {"gloo": "_dump_fr_trace_json", "nccl": "_dump_nccl_trace_json"}
"""The functions that dump PyTorch's flight recorders. Releases before 2.5 have neither of them, and some later
releases have none for gloo."""

JOINING, C10D = "init_process_group", "torch/distributed/distributed_c10d.py"
"""The function that waits for all ranks, and its file."""

RENDEZVOUS = "torch/distributed/rendezvous.py"
"""The file of the functions that `init_process_group` calls to read the number of ranks, unless it is an argument."""

MESSAGE_CHARACTERS = 200

COLLECTIVES_TOLD = 32
"""The number of entries to report from the end of each flight recorder."""


_fallen: list[str] = []
"""The last thread that ended because of an exception, and the exception, as a sentence; empty if there was none."""


def install() -> None:
    """Makes this process answer its supervisor, if it has one. If this fails, the program runs anyway."""
    heartbeat = os.environ.get(Env.HEARTBEAT)
    if not heartbeat or SIGNAL is None:
        return
    threading.excepthook = partial(_note, threading.excepthook)
    with contextlib.suppress(OSError):
        stack = os.open(f"{heartbeat}{STACK}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        faulthandler.register(SIGNAL, file=stack, all_threads=True, chain=False)
        pipe = Path(f"{heartbeat}{ASK}")
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe, 0o600)
        # Opened for writing as well, because otherwise reads would return immediately while no supervisor has the
        # pipe open.
        questions = os.open(pipe, os.O_RDWR)
        answer = Path(f"{heartbeat}{TOLD}")
        ranks = os.environ.get(Env.WORLD_SIZE, "")  # Read now, because the program may change it.
        arguments = (questions, stack, answer, ranks)
        threading.Thread(target=_answer, args=arguments, name="answering", daemon=True).start()


def _answer(asked: int, stack: int, told: Path, ranks: str) -> None:
    while question := os.read(asked, 512):
        if STACKS_TOO in question:
            faulthandler.dump_traceback(stack, all_threads=True)
        with contextlib.suppress(OSError), told.open("w", encoding="utf-8") as file:
            for part in (*_exceptions_told(), *_ranks_expected(ranks), *_collectives_told(), END):
                file.write(json.dumps(part) + "\n")
                file.flush()


def _note(print_it: Callable[[threading.ExceptHookArgs], object], args: threading.ExceptHookArgs) -> None:
    if isinstance(args.exc_value, Exception) and args.thread is not None:  # SystemExit is not a failure.
        _fallen[:] = [f"its thread {args.thread.name} has ended with {_described(args.exc_value)}"]
    print_it(args)


def _exceptions_told() -> Iterator[dict[str, Any]]:
    """The exception that the main thread is handling, and the exception that was the last to end another thread."""
    main = threading.main_thread().ident or 0
    handled: Any = sys._current_exceptions().get(main)  # noqa: SLF001  (documented, in spite of its name)
    error = handled[1] if isinstance(handled, tuple) else handled  # Before Python 3.12 this is a tuple.
    if isinstance(error, Exception):
        yield {"raised": _described(error)}
    yield from ({"fallen": said} for said in _fallen)


def _ranks_expected(ranks: str) -> Iterator[dict[str, Any]]:
    """Why the process group that the main thread is creating can never be complete, if that is so.

    `ranks` is the number of the job's ranks.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  (documented, as above)
    expected = -1
    while frame is not None:
        joins = frame.f_code.co_name == JOINING and frame.f_code.co_filename.endswith(C10D)
        size = frame.f_locals.get("world_size") if joins or frame.f_code.co_filename.endswith(RENDEZVOUS) else None
        if isinstance(size, int):
            expected = max(expected, size)
        if joins and ranks.isdecimal() and expected > int(ranks):
            yield {"expects": f"world_size is {expected}, but the job has {ranks} ranks"}
        frame = frame.f_back


def _described(error: BaseException) -> str:
    place = f" ({found})" if (found := place_of(error)) else ""
    return f"{type(error).__name__}: {last_line(error)[:MESSAGE_CHARACTERS]}{place}"


def _collectives_told() -> Iterator[dict[str, Any]]:
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return
    try:
        groups = c10d._world.pg_map  # noqa: SLF001  (private names, as below)
        numbers = {group: group._get_sequence_number_for_group() for group in groups}  # noqa: SLF001
        yield {"sequences": {f"{group.group_name} {groups[group][0]}": number for group, number in numbers.items()}}
        for backend in sorted({name for names, _ in groups.values() for name in _names(names)}):
            yield {"backend": backend, **_recorded(backend)}
    except Exception as error:  # noqa: BLE001  (these names are private to PyTorch: any release may change them)
        yield {"error": f"{type(error).__name__}: {error}"}


def _names(backends: str) -> list[str]:
    """The names of the backends, such as gloo and nccl for `cpu:gloo,cuda:nccl`."""
    return [name.rpartition(":")[2] for name in backends.split(",")]


def _recorded(backend: str) -> dict[str, Any]:
    """The content of a backend's flight recorder: the number of collectives of each group, and the last entries."""
    dump = getattr(sys.modules["torch._C._distributed_c10d"], RECORDERS.get(backend, ""), None)
    if dump is None:
        return {}
    entries = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
    collectives = [entry for entry in entries if not entry["is_p2p"]]
    return {
        "sequences": {f"{entry['process_group'][0]} {backend}": entry["collective_seq_id"] for entry in collectives},
        "collectives": [_collective(entry) for entry in entries[-COLLECTIVES_TOLD:]],
        "unfinished": [_collective(entry) for entry in collectives if _waits(entry)][:1],
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
    """Whether a collective is unfinished. gloo marks finished entries as retired, but does not update their state."""
    return not entry["retired"] and entry["state"] != "completed"
