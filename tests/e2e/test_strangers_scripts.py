"""Scripts that strangers wrote, by `ddpjob submit`, with no image named: the same as tests/strangers, in pods.

What one rank saves the others find again on a volume that the nodes share, which is the working directory.
"""

import json
import shlex
import signal
from pathlib import Path

import pytest
from ddpjob_operator.api import Cause
from ddpjob_operator.api.contract import Label

from tests.plant.machines import Machines
from tests.strangers.stranger import RAISES, STRANGERS, Stranger
from tests.support.jobs import Team

from .processes import rank_of
from .work import LONG, change, claimed, ddpjob, ended, submitted

MANY = 100_000
LIMIT_SECONDS = 20
IMAGES = 1000
"""So many travel along with a script."""

ROWS = [
    pytest.param(STRANGERS[name], id=name, marks=pytest.mark.full("tests/strangers has it without pods"))
    for name in ("multinode", "imagenet", "spawned", "slurm")
]


@pytest.mark.parametrize("stranger", ROWS)
def test_a_strangers_script_goes_on_together_and_says_what_happened_to_it(
    host: Machines, stranger: Stranger, tmp_path: Path
) -> None:
    script = Submitted(host, stranger, tmp_path)
    script.submit()
    every = stranger.every
    host.wait("a save and two epochs more", lambda: all(log[every + 1 :] for log in script.epochs()), LONG)

    rank_of(script.uid, 1).kill()
    script.mark()
    failure = script.failure(1)
    assert "SIGKILL" in failure["message"] or failure.get("signal") == "SIGKILL", json.dumps(failure)
    script.goes_on()

    ddpjob(script.team, "suspend", stranger.name)
    script.team.wait("Suspended", stranger.name, LONG)
    change(script.team, stranger.name, stallTimeoutSeconds=LIMIT_SECONDS)
    ddpjob(script.team, "resume", stranger.name)
    script.mark(0, 0)
    script.goes_on()
    host.wait("its progress", lambda: script.team.status(stranger.name).get("display", {}).get("progress"), LONG)

    rank_of(script.uid, 1).send_signal(signal.SIGSTOP)
    script.mark()
    assert script.failure(2)["cause"] == Cause.STALLED
    script.goes_on()

    script.submit("--replace", "--max-restarts", "0", before=RAISES)
    status = ended(script.team, stranger.name)
    assert (status["state"], status["incidents"][0]["node"]) == ("Failed", 1), json.dumps(status)
    assert "ValueError: batch 30 is broken" in status["incidents"][0]["message"], json.dumps(status)


class Submitted:
    """A script in a namespace, and a volume there."""

    def __init__(self, host: Machines, stranger: Stranger, code: Path) -> None:
        self.team, self.stranger = Team(host), stranger
        self._code, self._shared = code, host.new_folder()
        self._seen = [0, 0]
        claimed(self.team, "shared", self._shared)

    @property
    def uid(self) -> str:
        """The job's."""
        return str((self.team.job(self.stranger.name) or {})["metadata"]["uid"])

    def submit(self, *options: str, before: str = "") -> None:
        """As its user does it, who has the right to run jobs and no other."""
        self.stranger.write(self._code, before, IMAGES)
        ours, _, own = self.stranger.call.replace("EPOCHS", str(MANY)).partition(" -- ")
        command = shlex.split(own) if own.startswith("bash") else []
        if self.stranger.saves:
            where = f"/ddpjob/code/{self.stranger.script}"
            command = ["bash", "-c", f"cd /shared && exec ddpjob-supervise {where} {own}"]
        words = [*("--source", "."), *("--name", self.stranger.name), *("--nodes", "2"), *options]
        words += [*("--volume", "shared:/shared"), *("--env", "OMP_NUM_THREADS=1")]
        words += ["--", *command] if command else [ours.split()[0]]
        submitted(self.team, self._code, *words)

    def failure(self, restarts: int) -> dict[str, str]:
        """The last one, once so many restarts were counted."""
        name = self.stranger.name
        self.team.plant.wait("the restart", lambda: self.team.status(name)["restarts"] == restarts, LONG)
        return dict(self.team.status(name)["incidents"][0])

    def epochs(self) -> list[list[int]]:
        """What each of the two nodes has begun, since its pod is there."""
        pods = {pod["metadata"]["labels"][Label.NODE]: pod["metadata"]["name"] for pod in self._pods()}
        path = f"/api/v1/namespaces/{self.team.namespace}/pods"
        logs = [self.team.plant.text(f"{path}/{pods[rank]}/log?container=trainer") for rank in sorted(pods)]
        return [*map(self.stranger.begun, logs), [], []][:2]

    def mark(self, *seen: int) -> None:
        """What comes from now on is looked at; or what comes after so many epochs of each node."""
        self._seen = [*seen] or [len(log) for log in self.epochs()]

    def goes_on(self) -> None:
        """It goes on from what was marked."""
        self.stranger.goes_on(
            lambda what, condition: self.team.plant.wait(what, condition, LONG),
            lambda: [log[seen:] for log, seen in zip(self.epochs(), self._seen, strict=True)],
            lambda: self.team.status(self.stranger.name),
        )

    def _pods(self) -> list[dict[str, dict[str, dict[str, str]]]]:
        """Those that run."""
        pods = self.team.pods(self.stranger.name)
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]
