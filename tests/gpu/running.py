"""Runs of the plan: on the GPUs of this machine, or over gloo on its CPUs."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Self

from tests.support.ports import hold_port

from . import scripts

ROOT = Path(__file__).parents[2]
WITHOUT_GPUS = 2
"""Processes."""
STEPS = {True: 400, False: 40}
"""Of the comparison with a bare loop, with and without a GPU."""
PACE = re.compile(r"^pace: ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One that has ended."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the plan is carried out."""

    gpus: int
    name: str
    """Of its first GPU; without one, of what stands in."""
    until: float = inf
    """When its runs have to be over, by the monotonic clock."""

    def within(self, seconds: float) -> Self:
        """The same machine, for so long."""
        return replace(self, until=time.monotonic() + seconds)

    @property
    def processes(self) -> int:
        """Of each run that has several."""
        return self.gpus or WITHOUT_GPUS

    @property
    def backend(self) -> str:
        """What they communicate with."""
        return "nccl" if self.gpus else "gloo"

    def trains(self, directory: Path, *flags: str, processes: int | None = None) -> Run:
        """`ddpjob-train` with these flags, in processes of one node."""
        count = str(self.processes if processes is None else processes)
        port = ["--master-port", str(hold_port())]
        return self._run(directory, [sys.executable, "-m", "ddpjob_trainer", "-g", count, *port, *flags], {})

    def runs(self, directory: Path, script: str) -> Run:
        """A plain script in one process."""
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "alone.py"
        file.write_text(script)
        return self._run(directory, [sys.executable, str(file), self.backend], {})

    def supervises(self, directory: Path, script: str, **env: str) -> Run:
        """A plain script in all processes, under a supervisor that may restart them in place."""
        file = directory / "train.py"
        file.write_text(script)
        count = str(self.processes)
        place = {
            "NNODES": "1",
            "NODE_RANK": "0",
            "NPROC_PER_NODE": count,
            "WORLD_SIZE": count,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(hold_port()),
            "DDPJOB_UID": "gpu",
            "DDPJOB_ATTEMPT": "1",
            "DDPJOB_INCARNATION": "1",
            "DDPJOB_BACKEND": self.backend,
            "DDPJOB_IN_PLACE_RESTARTS": "2",
            "DDPJOB_STATUS_PORT": str(hold_port()),
            "DDPJOB_CONTROL_PORT": str(hold_port()),
            "DDPJOB_RUN_DIR": str(directory),
            "DDPJOB_TERMINATION_LOG": str(directory / "report"),
        }
        command = [sys.executable, "-m", "ddpjob_supervisor", str(file), self.backend]
        return self._run(directory, command, place | env)

    def paces(self, directory: Path) -> tuple[float, float]:
        """Steps per second of a bare loop and of ours, with the same model and the same batches."""
        steps = STEPS[bool(self.gpus)]
        (directory / "bare").mkdir(parents=True)
        bare = self.supervises(directory / "bare", scripts.BARE, GPU_STEPS=str(steps))
        assert bare.code == 0, bare.output
        workload = ["--workload", "tests.gpu.model:Task", "--max-steps", str(steps), "--log-every", str(steps)]
        ours = self.trains(directory, *workload)
        assert ours.code == 0, ours.output
        return float(PACE.findall(bare.output)[0]), float(PACE.findall(ours.output)[0])

    def _run(self, directory: Path, command: list[str], env: dict[str, str]) -> Run:
        directory.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DDPJOB_")}
        everything = inherited | {"PYTHONPATH": str(ROOT)} | env
        left = max(0.0, self.until - time.monotonic())
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env=everything,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=None if left == inf else left,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
            return Run(-1, f"{said.decode() if isinstance(said, bytes) else said}\nno end within {left:.0f} s")
        return Run(done.returncode, done.stdout)


def this_machine() -> Machine:
    """What PyTorch sees."""
    import torch  # noqa: PLC0415  It takes seconds, and whoever only asks for the plan does not need it.

    count = torch.cuda.device_count()
    return Machine(count, torch.cuda.get_device_name(0) if count else "no GPU, gloo on the CPU")
