"""Supervisors in a job's pods, as far as an operator can learn of them. The gang restarts in place at any time."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ddpjob_operator.engine import SupervisorReport, fingerprint, parse_report

from .codes import Codes
from .pods import RealPod, is_bad


@dataclass
class Supervisors:
    """One gang after the other.

    A gang consists of all pods that were created since the job last started as a whole.
    """

    start: int = 0
    """The gang's number."""
    attempt: int = 0
    begun: bool = False
    """Whether the attempt's number has been used."""
    runs: bool = False
    since: datetime | None = None
    missed: int | None = None
    """A rank whose supervisor cannot reach rank 0's."""
    incidents: list[dict[str, Any]] = field(default_factory=list)
    members: set[str] = field(default_factory=set)
    """The uids of the pods whose supervisors are present."""
    codes: Codes = field(default_factory=Codes)
    refused_in: set[int] = field(default_factory=set)
    """The attempts in which untried code failed, so that the gang has gone back in place."""

    def copy(self) -> "Supervisors":
        """A copy that changes independently from now on."""
        own = {"members": set(self.members), "refused_in": set(self.refused_in)}
        return replace(self, incidents=list(self.incidents), **own)

    def meet(self, pods: list[RealPod], now: datetime) -> bool:
        """Makes the supervisors start the next attempt.

        Returns False if some of them are missing, or rank 0's lacks the code.
        """
        gang = self._of_one_start(pods, now)
        if self.missed is not None or not gang or {pod.rank for pod in gang} != set(range(gang[0].world_size)):
            return False
        self.codes = self.codes.met(gang)
        if self.codes.lacking:
            return False
        if not self.runs:
            self.attempt = max(self.attempt + self.begun, *(pod.attempt for pod in gang), 1)
            self.begun = self.runs = True
            self.since = now
        return True

    @property
    def restarts(self) -> bool:
        """Whether the gang runs, and starts again in place if a rank fails. Code that gets nowhere needs new pods."""
        return self.runs and (self.codes.former in self.codes.here or not is_bad(self.codes.code))

    def fail(self, rank: int, cause: str, now: datetime, *, leaves: bool) -> None:
        """Makes a rank fail. The supervisors answer with a restart in place, of the former code if this was new.

        `leaves` says whether a pod has ended, or was told to: then ranks may fail in any way.
        """
        self.runs, self.since = False, now
        back = None if leaves else self.codes.gone_back(self.attempt, rank, cause, now)
        if back is not None:
            self.codes = back
            self.refused_in.add(self.attempt)
            return
        told = {"attempt": self.attempt, "time": now.isoformat(), "node": rank, "cause": cause, "step": self.attempt}
        self.incidents.append({**told, "exitCode": 1, "message": f"in place at {self.attempt}"})

    def step(self) -> None:
        """Makes the ranks finish a step."""
        self.codes = self.codes.stepped()

    def take(self, code: int, revision: int, now: datetime) -> None:
        """Makes the ranks start again with other code, which rank 0's supervisor has."""
        self.codes = self.codes.applied(code, revision, self.attempt + 1)
        self.runs, self.since = False, now

    def lose(self, rank: int | None, now: datetime) -> None:
        """Makes rank 0's supervisor lose the connection to another one."""
        self.missed, self.runs, self.since = rank, False, now

    def report(self, pods: list[RealPod], now: datetime, uid: str) -> SupervisorReport | None:
        """The report of rank 0's supervisor, if there is one."""
        gang = self._of_one_start(pods, now)
        first = next((pod for pod in gang if pod.rank == 0), None)
        if first is None:
            return None
        there = {pod.rank for pod in gang} - {self.missed}
        missing = [rank for rank in range(first.world_size) if rank not in there]
        said = {
            "version": 2,
            "job": fingerprint(uid),
            "attempt": self.attempt or first.attempt,
            "phase": "Running" if self.runs else "Gathering",
            "since": (self.since or now).isoformat(),
            "missing": missing,
            "incidents": self.incidents[-16:],
            **self.codes.report(),
        }
        return parse_report(said, now, uid=uid, pod=first.name)

    def _of_one_start(self, pods: list[RealPod], now: datetime) -> list[RealPod]:
        """The running pods of the present gang. If a pod disappears, the attempt ends."""
        running = [pod for pod in pods if pod.running and not pod.dead and not pod.reserve]
        newest = max((pod.start for pod in running), default=self.start)
        if newest != self.start:
            self.start, self.attempt, self.begun, self.runs = newest, 0, False, False
            self.since, self.missed, self.incidents, self.codes = now, None, [], Codes()
        gang = [pod for pod in running if pod.start == self.start]
        if self.runs and {pod.uid for pod in gang} != self.members:
            self.runs, self.since = False, now
        self.members = {pod.uid for pod in gang}
        return gang
