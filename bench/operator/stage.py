"""The environment of a scenario: a plant with a running contestant, and the resources that its processes use."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.plant import Plant, start_fake
from tests.plant.audit import position

from .audit import Life, job_name, lives
from .client import Client, Manifest, a_client
from .contestants import MANAGER, SERVER, Contestant, Running

Figures = dict[str, float]

MIB = 1 << 20
QUIET_SHARE = 0.05
"""A process that uses less than this share of a core counts as idle."""
LOOK_SECONDS = 0.5
LONGEST_SECONDS = 900.0


@dataclass
class Stage:
    """A contestant on its own plant."""

    plant: Plant
    contestant: Contestant
    client: Client
    running: Running
    quick: bool
    since: int = 0
    namespace: str = ""
    _began: dict[str, float] = field(default_factory=dict)

    @property
    def pods(self) -> str:
        """The API path of the pods in the present namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def begin(self) -> None:
        """Creates a new namespace, waits until the contestant is idle, and starts measuring."""
        self.namespace = self.plant.new_namespace()
        await self.quiet()
        self.measure()

    def measure(self) -> None:
        """Starts measuring: later figures count from here."""
        self.since = position(self.plant)
        self._began = self._cpu()

    def lives(self) -> dict[str, Life]:
        """The lives of the namespace's jobs since the measurement started."""
        return lives(self.plant, self.since, self.namespace, self.contestant.plural, self.contestant.users)

    def used(self) -> Figures:
        """CPU seconds of the contestant, the controller manager and the API server since the measurement started."""
        return {name: seconds - self._began[name] for name, seconds in self._cpu().items()}

    def _cpu(self) -> Figures:
        beside = {name: psutil.Process(self.plant.programs.running[name].process.pid) for name in (MANAGER, SERVER)}
        return {"contestant": self._own(), **{name: cpu_seconds(process) for name, process in beside.items()}}

    def _own(self) -> float:
        return sum(map(cpu_seconds, self.running.processes))

    async def submit(self, jobs: Iterable[Manifest]) -> None:
        """Creates jobs, as fast as possible."""
        await self.client.create_all(self.contestant.path(self.namespace), jobs)

    async def until_phase(self, phase: str, count: int) -> None:
        """Waits until `count` pods have been in a phase."""
        await self.until(self.pods, count, lambda pod: pod["status"]["phase"] == phase)

    async def until_done(self, count: int) -> None:
        """Waits until `count` jobs of the namespace have succeeded."""
        await self.until(self.contestant.path(self.namespace), count, self.contestant.is_done)

    async def until(self, path: str, count: int, is_so: Callable[[Manifest], bool]) -> None:
        """Waits until `is_so` has been true for `count` objects below a path.

        Raises:
            BenchError: This has taken longer than LONGEST_SECONDS.
            PlantError: A program of the plant has ended.
        """
        waiting = asyncio.create_task(self.client.until(path, count, is_so, LONGEST_SECONDS))
        try:
            while not waiting.done():
                self.plant.programs.check()
                await asyncio.wait((waiting,), timeout=LOOK_SECONDS)
        finally:
            waiting.cancel()
        await waiting

    async def quiet(self) -> None:
        """Waits until the contestant is idle."""
        async with asyncio.timeout(LONGEST_SECONDS):
            busy = True
            while busy:
                before = self._own()
                await asyncio.sleep(LOOK_SECONDS)
                busy = self._own() - before > QUIET_SHARE * LOOK_SECONDS


@asynccontextmanager
async def a_stage(
    contestant: Contestant, *, nodes: int, node_grace_seconds: int, quick: bool
) -> AsyncIterator[Stage]:
    """Starts a plant and the contestant on it."""
    policy = f"--audit-policy-file={Path(__file__).with_name('audit.yaml')}"
    with start_fake(
        policy, nodes=nodes, node_grace_seconds=node_grace_seconds, manager_flags=contestant.manager_flags
    ) as plant:
        async with a_client(plant) as client:
            with contestant.start(plant) as running:
                stage = Stage(plant, contestant, client, running, quick)
                await _warm_up(stage)
                yield stage


async def _warm_up(stage: Stage) -> None:
    """Runs a first job that is not measured, to fill caches and open connections."""
    await stage.begin()
    await stage.submit([stage.contestant.job(job_name(0), 2, {})])
    await stage.until_done(1)


def cpu_seconds(process: psutil.Process) -> float:
    """The CPU seconds that a process and its children have used."""
    own = process.cpu_times()
    children = sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))
    return sum(own[:4]) + children


def memory(process: psutil.Process) -> Figures:
    """The present memory of a process and its children in MiB: all resident memory, and its anonymous part.

    The anonymous part grows only if there is a leak.
    """
    infos = [one.memory_info() for one in (process, *process.children(recursive=True))]
    resident, of_files = (sum(getattr(one, name) for one in infos) / MIB for name in ("rss", "shared"))
    return {"RSS": resident, "anonymous": resident - of_files}


def most_memory(process: psutil.Process) -> float:
    """The peak of a process's resident memory, in MiB, without its children."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of the values for `share`, such as 0.99, by nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
