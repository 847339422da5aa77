"""Real runs of `ddpjob run`: real processes, real signals, in a directory of their own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
import yaml
from ddpjob_operator.cli.main import main
from ddpjob_supervisor.node.zygote_process import PRELOADED

from tests.support.waiting import patience, wait_for
from tests.support.warm import Command, pipe_command

BIN = Path(sys.executable).parent
ITSELF = "from ddpjob_operator.cli.main import main\nmain()"
DEADLINE_SECONDS = 150.0

Started = Command | subprocess.Popen[str]
"""A command, forked from a process that has imported it or started, and its output."""


def script(body: str) -> tuple[str, str, str]:
    """A trainer that is a few lines of Python."""
    return sys.executable, "-c", f"import json, os, pathlib, signal, subprocess, sys, time\n{body}"


def without_torch(directory: Path) -> None:
    """Has zygotes import empty modules in place of PyTorch's, which cost each of them three seconds of a core.

    For scripts in this directory, which must not use PyTorch.
    """
    for module in PRELOADED:
        package = directory.joinpath(*module.split("."))
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    (directory / "torch" / "__init__.py").write_text("def set_num_threads(number): pass\n")


@dataclass
class Here:
    """A directory in which `ddpjob` is called, and all that was started in it."""

    directory: Path
    bin: Path = BIN
    """Of the environment whose `ddpjob` it is."""
    warm: bool = False
    """Whether `ddpjob` is forked from a process that has imported it: that costs a tenth of a start."""
    started: list[Started] = field(default_factory=list)

    @property
    def state(self) -> dict[str, str]:
        """Where runs are registered: nobody else's are found."""
        return {"XDG_STATE_HOME": str(self.directory / "state")}

    def job(self, name: str, *command: str, **spec: Any) -> Path:
        """Writes the YAML of a job whose trainer runs a command."""
        trainer = {"name": "trainer", "image": "any", "command": list(command), **spec.pop("container", {})}
        pod = {"containers": [trainer], **spec.pop("pod", {})}
        document = {
            "apiVersion": "ddpjob.dev/v1alpha2",
            "kind": "DDPJob",
            "metadata": {"name": name},
            "spec": {**spec, "template": {"spec": pod}},
        }
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        return file

    def start(self, *arguments: str | Path, **env: str) -> Started:
        """Starts `ddpjob` with these arguments."""
        if self.warm:
            command = (self.bin / "ddpjob", *arguments)
            self.started.append(process := pipe_command(command, self._environment(env), self.directory))
            return process
        return self._start(self.bin / "ddpjob", *arguments, **env)

    def start_after(self, code: str, *arguments: str | Path) -> subprocess.Popen[str]:
        """The same, in a Python that has run some code before."""
        return self._start(sys.executable, "-c", f"{code}\n{ITSELF}", *arguments)

    def python(self, program: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Starts a program that is written into a file here."""
        (self.directory / "program.py").write_text(program, encoding="utf-8")
        return self.start_in_python("program.py", *arguments, **env)

    def start_in_python(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Starts Python with these arguments."""
        return self._start(sys.executable, *arguments, **env)

    def _start(self, *command: str | Path, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self._environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        return os.environ | {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"} | self.state | env

    def ddpjob(self, *arguments: str | Path, **env: str) -> tuple[int, str]:
        """Calls `ddpjob` to its end: exit code and output."""
        process = self.start(*arguments, **env)
        output, _ = process.communicate(timeout=patience(DEADLINE_SECONDS))
        return process.wait(), output

    def says(self, *arguments: str | Path) -> tuple[int, str]:
        """What `ddpjob` says that starts nothing: exit code and output. It is called in this process."""
        output, argv = io.StringIO(), ["ddpjob", *map(str, arguments)]
        with (
            chdir(self.directory),
            mock.patch("sys.argv", argv),
            mock.patch.dict("os.environ", self.state),
            redirect_stdout(output),
            redirect_stderr(output),
            pytest.raises(SystemExit) as end,
        ):
            main()
        return int(end.value.code or 0), output.getvalue()

    def status(self, name: str) -> dict[str, Any]:
        """The status of a job; empty before it has one."""
        file = self.run(name) / "job.json"
        return dict(json.loads(file.read_text()).get("status", {})) if file.exists() else {}

    def run(self, name: str) -> Path:
        """The run directory of a job."""
        return self.directory / "ddpjob-runs" / name

    def log(self, name: str, rank: int, attempt: int = 1) -> str:
        """What a rank has written."""
        file = self.run(name) / "logs" / f"attempt-{attempt}" / f"node-{rank}.log"
        return file.read_text() if file.exists() else ""

    def trainers(self, name: str) -> dict[int, psutil.Process]:
        """The living main processes of a job's ranks."""
        found = {}
        for process in self.processes(name):
            parent = process.parent()
            if parent is not None and "container.py" in " ".join(parent.cmdline()):
                found[int(process.environ()["NODE_RANK"])] = process
        return found

    def processes(self, name: str) -> list[psutil.Process]:
        """Every living process that a job has started, by what its environment says."""
        file = self.run(name) / "job.json"
        uid = json.loads(file.read_text())["metadata"]["uid"] if file.exists() else "?"
        return [process for process in psutil.process_iter() if _variable(process, "DDPJOB_UID") == uid]

    def ranks(self, name: str) -> list[psutil.Process]:
        """The living training processes of a job: what its supervisors have forked."""
        processes = ((process, process.parent()) for process in self.processes(name))
        return [process for process, parent in processes if parent and "node.zygote" in " ".join(parent.cmdline())]

    def end(self) -> None:
        """Kills whatever is left of what was started here."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        for file in self.directory.glob("ddpjob-runs/*/job.json"):
            for left in self.processes(file.parent.name):
                with contextlib.suppress(psutil.NoSuchProcess):  # It may end by itself meanwhile.
                    left.kill()

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        """Waits until a condition holds, and gives its value; fails with all that is known of the jobs."""
        return wait_for(what, condition, DEADLINE_SECONDS, story=self.evidence)

    def evidence(self) -> str:
        """Status and last lines of every job here."""
        parts = []
        for file in sorted(self.directory.glob("ddpjob-runs/*/job.json")):
            parts.append(json.dumps(json.loads(file.read_text()).get("status"), indent=1))
            parts += [f"--- {log}\n{log.read_text()[-2000:]}" for log in sorted(file.parent.glob("logs/*/*.log"))]
        return "\n".join(parts)


def alive(process: psutil.Process) -> bool:
    """Whether a process runs, as something else than a zombie that nobody has reaped yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _variable(process: psutil.Process, name: str) -> str | None:
    try:
        return process.environ().get(name) if alive(process) else None
    except psutil.Error:
        return None
