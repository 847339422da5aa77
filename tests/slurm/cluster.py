"""A real Slurm on this machine: munged, slurmctld, and a slurmd for each of two nodes, in a directory of its own."""

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.plant.needs import leave_out
from tests.plant.real import machine
from tests.support.packages import install
from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for

PACKAGES = {
    "/usr/sbin/slurmctld": "slurmctld",
    "/usr/sbin/slurmd": "slurmd",
    "srun": "slurm-client",
    "/usr/sbin/munged": "munge",
}
NODES = ("node1", "node2")
CPUS = 64
"""Of each node, whatever there is: a busy machine may be long in clearing up after a job, which keeps its share."""

DEADLINE_SECONDS = 150.0
"""For a job that trains on a machine which becomes busy meanwhile: the load is looked at when it begins."""

CONFIGURATION = """
# Masters of jobs have ports by the jobs' numbers, and there may be another Slurm beside this one.
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
FirstJobId={port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
KillWait=5
SchedulerParameters=batch_sched_delay=0
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname=localhost NodeAddr={address} Port={port} CPUs={cpus}\n"


def demand() -> None:
    """Skips the test where this machine cannot host Slurm; fails it where nothing may be left out."""
    if lack := _what_is_lacking():
        leave_out(f"left out: Slurm cannot run here ({lack}); run it on a Debian, as root")


def _what_is_lacking() -> str | None:
    if sys.platform != "linux":
        return "it is not Linux"
    if os.geteuid() != 0:
        return "not root"
    if machine.missing(PACKAGES) and not machine.can_install():
        return f"no {', '.join(machine.missing(PACKAGES))}, and no apt-get to install them"
    return None


class Cluster:
    """Two nodes, on which commands run by srun, salloc and sbatch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Starts it, and waits until both nodes are idle."""
        install(PACKAGES)
        self._configure()
        try:
            self._start_all()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, with all that still runs."""
        try:
            self.run("scancel", "--user=root", "--signal=KILL")
        finally:
            self._end_all()

    def _start_all(self) -> None:
        here = self.directory
        munge = [f"--{name}-file={here / name}" for name in ("key", "pid", "seed", "log")]
        self._start("munged", "--foreground", "--force", f"--socket={here / 'munge.socket'}", *munge)
        wait_for("munged", (here / "munge.socket").exists, story=self.story)
        self._start("slurmctld", "-D", "-c")
        for name in NODES:
            # A node's name leads to its address for all that runs on it, and for nobody else.
            hosts = f"mount --bind {here / 'hosts'} /etc/hosts && exec slurmd -D -N {name}"
            self._start("unshare", "--mount", "sh", "-c", hosts)
        wait_for("both nodes", self._both_nodes_are_idle, story=self.story)

    def _both_nodes_are_idle(self) -> bool:
        return self.run("sinfo", "-h", "-o", "%T %D").stdout.split() == ["idle", "2"]

    def _end_all(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(
        self, *command: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's to its end, in an environment without another run's place."""
        try:
            return subprocess.run(
                [str(word) for word in command],
                env={**self._env, **(env or {})},
                cwd=cwd or self.directory,
                capture_output=True,
                text=True,
                timeout=patience(DEADLINE_SECONDS),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{command} does not end:\n{self.story()}") from None

    def output(self, *command: object, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """What a command prints that ends well."""
        done = self.run(*command, env=env, cwd=cwd)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def batch(self, script: Path, *arguments: str, cwd: Path) -> str:
        """What a batch script has written into its log, in a directory of its own, when it has ended well."""
        done = self.run("sbatch", "--wait", script, *arguments, cwd=cwd)
        said = "".join(log.read_text() for log in cwd.glob("*.log"))
        assert done.returncode == 0, f"{done.stderr}\n{said}"
        return said

    @property
    def _env(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.directory / "slurm.conf")}

    def _configure(self) -> None:
        here = self.directory
        here.chmod(0o755)  # munged wants to be sure of the way to its socket.
        (here / "state").mkdir()
        key = here / "key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        addresses = {name: f"127.0.0.{1 + number}" for number, name in enumerate(NODES)}
        hosts = Path("/etc/hosts").read_text(encoding="utf-8")
        (here / "hosts").write_text(hosts + "".join(f"{address} {name}\n" for name, address in addresses.items()))
        configuration = CONFIGURATION.format(directory=here, port=hold_port()) + "".join(
            NODE.format(name=name, address=address, port=hold_port(), cpus=CPUS)
            for name, address in addresses.items()
        )
        (here / "slurm.conf").write_text(configuration)

    def _start(self, *command: str) -> None:
        with (self.directory / f"daemon-{len(self._daemons)}.log").open("wb") as log:
            self._daemons.append(subprocess.Popen(command, env=self._env, stdout=log, stderr=subprocess.STDOUT))

    def story(self) -> str:
        """What the daemons have said."""
        return "\n".join(
            f"{log.name}:\n{log.read_text(errors='replace')}" for log in sorted(self.directory.glob("daemon-*.log"))
        )
