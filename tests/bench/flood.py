"""How soon training goes on after a pod is lost while strangers flood its gang's control ports, and without them."""

import multiprocessing
import socket
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.kills import LONG, NODES
from tests.bench.notes import Notes
from tests.bench.table import Row
from tests.training.forking import start_supervisor_cold
from tests.training.gang import Gang, a_gang

LOST = 1
"""The node whose pod is killed and recreated."""
CALM_SECONDS = 3.0
PER_SECOND = 500
"""Connections that strangers begin."""
HELD = 1_000
"""They keep so many open: more than a port lets in before they have proved anything."""
STRANGER = "127.0.0.9"
TIMES = 1.5
"""So many times as long it may take."""


def measure(directory: Path, *, pairs: int) -> list[Row]:
    """The pod of one node is lost again and again, in turn without strangers and with them."""
    directory.mkdir(parents=True)
    secret = directory / "secret"
    secret.write_text("0123456789abcdef" * 4)
    calm: list[float] = []
    flooded: list[float] = []
    with a_gang(directory, NODES, launch=start_supervisor_cold, DDPJOB_SECRET_FILE=str(secret)) as gang:
        gang.start("train.py", LONG)
        notes = Notes(directory / "steps", NODES)
        notes.others(())
        for _ in range(pairs):
            calm.append(_lost(gang, notes))
            with _flood([gang.control(node) for node in range(NODES)]):
                flooded.append(_lost(gang, notes))
            print(f"  calm: {calm[-1]:.1f} s, flooded: {flooded[-1]:.1f} s", flush=True)
    times = statistics.median(flooded) / statistics.median(calm)
    beside = f"{times:.2f} times as long ({statistics.median(flooded):.1f} s)"
    return [
        Row("a node's pod is lost → next step of every rank", _told(calm)),
        Row(f"the same, {PER_SECOND} strangers a second at each control port", _told(flooded)),
        Row("flooded beside calm", beside, f"≤ {TIMES} times", times <= TIMES),
    ]


def _told(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s of {len(seconds)}"


def _lost(gang: Gang, notes: Notes) -> float:
    """Seconds from the end of a pod, whose next one starts at once, until every rank has stepped in a new process."""
    notes.watch(CALM_SECONDS)
    before = notes.pids()
    began = time.time()
    gang.kill_node(LOST)
    gang.start_node(LOST, "train.py", LONG)
    return max(step.time for step in notes.others(before).values()) - began


@contextmanager
def _flood(addresses: Sequence[str]) -> Iterator[None]:
    """Strangers come to each address until the block is left."""
    strangers = [multiprocessing.Process(target=_knock, args=(address,), daemon=True) for address in addresses]
    for one in strangers:
        one.start()
    try:
        yield
    finally:
        for one in strangers:
            one.kill()
            one.join()


def _knock(address: str) -> None:
    """Begins connections at an even pace, says nothing on any, and lets go of the oldest."""
    host, port = address.split(":")
    held: deque[socket.socket] = deque()
    began = time.monotonic()
    for number in range(1 << 62):
        time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
        there = socket.socket()
        there.setblocking(False)
        there.bind((STRANGER, 0))
        there.connect_ex((host, int(port)))
        held.append(there)
        if len(held) > HELD:
            held.popleft().close()
