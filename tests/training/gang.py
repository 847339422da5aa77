"""Several nodes on this machine, each a supervisor with a loopback address of its own."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.notes import Notes, Step
from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for
from tests.training.forking import Launch, Supervisor, fork_supervisor

DEADLINE_SECONDS = 90

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn

steps = os.open(os.environ["STEPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, int(sys.argv[1]) + 1):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    noted = (dist.get_rank(), step, time.time(), os.environ["DDPJOB_ATTEMPT"], os.getpid())
    os.write(steps, (" ".join(map(str, noted)) + "\\n").encode())
    time.sleep(0.01)
dist.destroy_process_group()
"""
"""Trains without an end in sight, and notes each step of each rank."""


@dataclass
class Gang:
    """The nodes of one job, as an operator would start them."""

    directory: Path
    nodes: int
    processes: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    launch: Launch = fork_supervisor
    supervisors: dict[int, Supervisor] = field(default_factory=dict)
    ports: tuple[int, int, int] = field(default_factory=lambda: (hold_port(), hold_port(), hold_port()))
    incarnations: dict[int, int] = field(default_factory=dict)
    module: str = "ddpjob_supervisor"
    uid: str = "a-uid"
    places: Callable[[Path, int], Path] = lambda directory, _: directory
    """The working directory of each node."""

    def start(self, *words: str, nodes: list[int] | None = None) -> None:
        """Starts the supervisors of all nodes, or of some."""
        for node in range(self.nodes) if nodes is None else nodes:
            self.start_node(node, *words)

    def start_node(self, node: int, *words: str, attempt: int = 1, peers: str = "", **env: str) -> None:
        """Starts one node's, as the next incarnation of its pod."""
        self.incarnations[node] = self.incarnations.get(node, 0) + 1
        self.supervisors[node] = self.launch(
            self.module,
            words,
            {**os.environ, **self._env(node, attempt, peers), **self.env, **env},
            self.places(self.directory, node),
            self.directory / f"node-{node}.{self.incarnations[node]}.log",
        )

    def address(self, node: int) -> str:
        """Where a node listens."""
        return f"127.0.0.{1 + node}"

    def control(self, node: int) -> str:
        """Its control address."""
        return f"{self.address(node)}:{self.ports[1]}"

    def _env(self, node: int, attempt: int, peers: str) -> dict[str, str]:
        master, control, status = self.ports
        own = {
            "DDPJOB_UID": self.uid,
            "DDPJOB_INCARNATION": str(self.incarnations[node]),
            "DDPJOB_CONTROL_PORT": str(control),
            "DDPJOB_STATUS_PORT": str(status),
            "DDPJOB_PEERS": ",".join(filter(None, [self.control(0), peers])),
            "DDPJOB_IN_PLACE_RESTARTS": "100",
            "DDPJOB_PREFLIGHT": "Disabled",
        }
        env = {
            "NNODES": str(self.nodes),
            "NODE_RANK": str(node),
            "NPROC_PER_NODE": str(self.processes),
            "WORLD_SIZE": str(self.nodes * self.processes),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": str(master),
            "STEPS": str(self.directory / "steps"),
            "OMP_NUM_THREADS": "1",
            "DDPJOB_ATTEMPT": str(attempt),
            "DDPJOB_LISTEN_ADDR": self.address(node),
            "DDPJOB_TERMINATION_LOG": str(self.directory / f"report-{node}"),
            "DDPJOB_SUPERVISOR": json.dumps(own),
        }
        if self.processes == 1:
            env |= {"RANK": str(node), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return env

    def steps(self) -> list[Step]:
        """All steps that were noted, in the order in which they were."""
        return Notes(self.directory / "steps", self.nodes * self.processes).read()

    def await_steps(self, attempt: int, least: int = 1) -> dict[int, Step]:
        """The first step that is at least that one of each rank in an attempt, once there are such."""
        world = self.nodes * self.processes
        found: dict[int, Step] = {}

        def all_there() -> bool:
            for step in self.steps():
                if step.attempt == attempt and step.step >= least:
                    found.setdefault(step.rank, step)
            return len(found) == world

        self.wait(f"step {least} of attempt {attempt} on each of {world} ranks", all_there)
        return found

    def wait(self, what: str, happens: Callable[[], object]) -> None:
        """Until something is there to be seen."""
        wait_for(what, happens, DEADLINE_SECONDS, story=self.story)

    def ranks(self, node: int) -> list[psutil.Process]:
        """The rank processes of a node: those that noted a step and live."""
        mine = range(node * self.processes, (node + 1) * self.processes)
        pids = {step.pid for step in self.steps() if step.rank in mine}
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]

    def kill_node(self, node: int) -> None:
        """As the end of a pod: everything in it is killed at once."""
        supervisor = self.supervisors[node]
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(supervisor.pid).children(recursive=True)
            for process in [psutil.Process(supervisor.pid), *family]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        supervisor.wait()

    def status(self, node: int = 0) -> dict[str, Any]:
        """What a node's status port says."""
        with urllib.request.urlopen(f"http://{self.address(node)}:{self.ports[2]}/status", timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
            return document

    def is_heard(self, node: int = 0) -> bool:
        """Whether a node's status port says anything yet."""
        try:
            return bool(self.status(node))
        except OSError:
            return False

    def report(self, node: int) -> dict[str, Any]:
        """A node's failure report."""
        document: dict[str, Any] = json.loads((self.directory / f"report-{node}").read_text())
        return document

    def ends(self) -> list[int]:
        """The exit codes, once all supervisors have ended."""
        return [self.end_of(node) for node in range(self.nodes)]

    def end_of(self, node: int) -> int:
        """A supervisor's exit code, once it has ended."""
        try:
            return self.supervisors[node].wait(patience(DEADLINE_SECONDS))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end of node {node}:\n{self.story()}") from None

    def log(self, node: int) -> str:
        """What a node's present incarnation has printed."""
        return (self.directory / f"node-{node}.{self.incarnations[node]}.log").read_text()

    def story(self) -> str:
        """All that was said, for the message of a failed test."""
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.directory.glob("*.log")))


@contextlib.contextmanager
def a_gang(
    directory: Path, nodes: int, processes: int = 1, *, launch: Launch = fork_supervisor, **env: str
) -> Iterator[Gang]:
    """A gang that does not outlive the block; `train.py` in its directory is the script above."""
    (directory / "train.py").write_text(SCRIPT)
    gang = Gang(directory, nodes, processes, env, launch)
    try:
        yield gang
    finally:
        for node in gang.supervisors:
            gang.kill_node(node)
