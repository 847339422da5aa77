"""Measures how soon training continues after a pod is lost while strangers flood its control ports or other ports."""

import multiprocessing
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.kills import LONG, NODES
from bench.notes import Notes
from bench.table import Row
from tests.training.forking import start_supervisor_cold
from tests.training.gang import Gang, a_gang

LOST = 1
"""The node whose pod is killed and recreated."""
CALM_SECONDS = 3.0
PER_SECOND = 2_000
"""How many connections per second strangers open, to the ports of all nodes together."""
HELD = 1_000
"""How many connections strangers keep open. A port accepts fewer connections that have not authenticated."""
STRANGERS = [f"127.0.9.{1 + number}" for number in range(250)]
BARE = ["127.0.8.1", "127.0.8.2"]
"""Addresses of listeners without a supervisor, for comparison: on two cores the flood itself slows the training
down."""
TIMES = 1.5
"""The limit for the ratio of two times: with the control ports flooded, and with bare listeners flooded in the same
way."""


def measure(directory: Path, *, pairs: int) -> list[Row]:
    """Kills a node's pod in turn without a flood, with bare listeners flooded, and with control ports flooded."""
    directory.mkdir(parents=True)
    secret = directory / "secret"
    secret.write_text("0123456789abcdef" * 4)
    calm: list[float] = []
    beside: list[float] = []
    flooded: list[float] = []
    with (
        bare_listeners() as elsewhere,
        a_gang(directory, NODES, launch=start_supervisor_cold, DDPJOB_SECRET_FILE=str(secret)) as gang,
    ):
        gang.start("train.py", LONG)
        notes = Notes(directory / "steps", NODES)
        notes.others(())
        for _ in range(pairs):
            calm.append(_lost(gang, notes))
            with flood(elsewhere):
                beside.append(_lost(gang, notes))
            with flood([gang.control(node) for node in range(NODES)]):
                flooded.append(_lost(gang, notes))
            print(f"  calm: {calm[-1]:.1f} s, elsewhere: {beside[-1]:.1f} s, here: {flooded[-1]:.1f} s", flush=True)
    times = statistics.median(flooded) / statistics.median(beside)
    told = f"{times:.2f} times as long ({statistics.median(flooded):.1f} s)"
    return [
        Row("a node's pod is lost → next step of every rank", _told(calm)),
        Row(f"the same, {PER_SECOND} knocks a second from {len(STRANGERS)} hosts, at other ports", _told(beside)),
        Row("the same, at the control ports", _told(flooded)),
        Row("at the control ports beside at others", told, f"≤ {TIMES} times", times <= TIMES),
    ]


def _told(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s of {len(seconds)}"


def _lost(gang: Gang, notes: Notes) -> float:
    """Kills a pod and replaces it immediately.

    Returns the seconds until each rank has made a step in a new process.
    """
    notes.watch(CALM_SECONDS)
    before = notes.pids()
    began = time.time()
    gang.kill_node(LOST)
    gang.start_node(LOST, "train.py", LONG)
    return max(step.time for step in notes.others(before).values()) - began


@contextmanager
def flood(addresses: Sequence[str], words: bytes = b"") -> Iterator[None]:
    """Opens connections to the addresses in turn while the block runs, and sends `words` on each connection."""
    with _process(_knock, addresses, words):
        yield


@contextmanager
def bare_listeners() -> Iterator[list[str]]:
    """The addresses of listeners that accept connections, and close the oldest ones."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server((host, 0), backlog=512)) for host in BARE]
        for listener in listeners:
            stack.enter_context(_process(_accept, listener))
        yield [f"{host}:{port}" for host, port in (listener.getsockname() for listener in listeners)]


@contextmanager
def _process(does: Callable[..., None], *words: object) -> Iterator[None]:
    process = multiprocessing.get_context("fork").Process(target=does, args=words, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _accept(listener: socket.socket) -> None:
    held: deque[socket.socket] = deque()
    while True:
        held.append(listener.accept()[0])
        if len(held) > HELD:
            held.popleft().close()


def _knock(addresses: Sequence[str], words: bytes) -> None:
    """Opens connections at an even pace, and closes the oldest ones."""
    targets = [(host, int(port)) for host, port in (address.split(":") for address in addresses)]
    held: deque[socket.socket] = deque()
    began = time.monotonic()
    for number in range(1 << 62):
        time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
        there = socket.socket()
        there.setblocking(False)
        there.bind((STRANGERS[number % len(STRANGERS)], 0))
        there.connect_ex(targets[number // len(STRANGERS) % len(targets)])
        if words:
            with suppress(OSError):
                there.send(words)
        held.append(there)
        if len(held) > HELD:
            held.popleft().close()
