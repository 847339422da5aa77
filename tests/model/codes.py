"""The code that supervisors run, and the code to which they go back, simulated after gang/coordinator.py."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ddpjob_operator.api.contract import CODE_VOLUME
from ddpjob_operator.engine.policies.going_back import NOT_OF_THE_CODE

from .pods import RealPod, config_map, digest_of

CODED = {
    "spec": {
        "containers": [
            {
                "name": "trainer",
                "image": "trainer:1",
                "command": ["ddpjob-supervise", "train.py"],
                "volumeMounts": [{"name": CODE_VOLUME, "mountPath": "/ddpjob/archive"}],
            }
        ],
        "volumes": [{"name": CODE_VOLUME, "configMap": {"name": config_map(0)}}],
    }
}
"""A template whose code was sent with the job."""


@dataclass(frozen=True)
class Codes:
    """What a gang knows of codes. Begins anew with each start of the whole gang."""

    code: int | None = None
    """The code of the present or the next attempt; None before all pods have met, or if it is in the image."""
    revision: int = 0
    since: int = 0
    """The first attempt after the code was replaced in place; 0 if it was not."""
    former: int | None = None
    """The code that runs again if the present one fails before its first step."""
    failed: dict[str, Any] = field(default_factory=dict)
    """How code has failed before its first step, as the report says it; empty if none has."""
    settled: int | None = None
    """The last code that has finished a step before the eyes of rank 0's present supervisor."""
    first: str = ""
    """The uid of rank 0's pod."""
    here: frozenset[int] = frozenset()
    """The codes that rank 0's pod has."""

    @property
    def refused(self) -> str:
        """The digest of the code that is not tried again; empty if there is none."""
        return str(self.failed.get("digest", ""))

    @property
    def lacking(self) -> bool:
        """Whether rank 0's pod lacks the code that the others know of, so that all pods have to be made anew."""
        return self.code is not None and self.code not in self.here

    @property
    def untried(self) -> bool:
        """Whether the code has taken the place of other code, and has not finished a step."""
        return self.revision > 0 and self.code != self.settled

    def met(self, gang: list[RealPod]) -> "Codes":
        """After these pods have met."""
        first = next(pod for pod in gang if pod.rank == 0)
        now = self
        if first.uid != self.first:  # The archive of the former code went with the former pod.
            here = frozenset({first.code} - {None})
            now = replace(self, first=first.uid, here=here, former=None, settled=None)
        for pod in gang:
            if pod.code is not None:
                now = now._knows(pod.code, pod.revision)
        return now

    def prepared(self, code: int) -> "Codes":
        """After a command has sent a code, which does not run yet."""
        return replace(self, here=self.here | {code})

    def applied(self, code: int, revision: int, attempt: int) -> "Codes":
        """After the command has said that the job names the code."""
        return replace(self._knows(code, revision), since=attempt)

    def stepped(self) -> "Codes":
        """After a step."""
        return replace(self, settled=self.code, former=None)

    def gone_back(self, attempt: int, rank: int, cause: str, now: datetime) -> "Codes | None":
        """After a failure of untried code for which its supervisors go back in place; None if they do not."""
        if self.former not in self.here or cause in NOT_OF_THE_CODE or self.code is None:
            return None
        told = {"revision": self.revision, "digest": digest_of(self.code), "by": "alice", "time": now.isoformat()}
        failed = {**told, "attempt": attempt, "rank": rank, "message": f"failed in attempt {attempt}"}
        return replace(self, code=self.former, former=None, failed=failed)

    def report(self) -> dict[str, Any]:
        """What the status page says of it."""
        if self.code is None:
            return {}
        brought = {"by": "alice", "attempt": self.since} if self.since else {}
        failed = {"failed": self.failed} if self.failed else {}
        return {
            "code": {
                "revision": self.revision,
                "digest": digest_of(self.code),
                "untried": self.untried,
                **brought,
                **failed,
            }
        }

    def _knows(self, code: int, revision: int) -> "Codes":
        if self.code is not None and revision <= self.revision:
            return self
        if digest_of(code) == self.refused:
            return replace(self, revision=revision, failed={**self.failed, "revision": revision})
        former = self.former if self.code in {None, code} or self.former is not None else self.code
        return replace(self, code=code, revision=revision, former=None if former == code else former, since=0)
