"""A training that never ends and notes each step of each rank: a test sees when all have gone on."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpjob_operator.api.contract import Label

from tests.support.jobs import Team

from .faults import TOLERANT
from .work import CODE_MOUNT, LONG, a_training, logs_of_pods, with_script

SOON = 120
"""Seconds that a restart may take here at most. Figures are printed."""

NOTES = "notes"
"""A file in the job's shared folder."""

FURTHER = 100
"""More steps than are made between two saves, a second and a write apart, at 20 ms each."""

TASK = f"""
import os
import time

from ddpjob_examples.mlp import MlpTask


class Noting(MlpTask):
    def test_data(self):
        return None

    def loss(self, output, target):
        time.sleep(0.02)  # The machine has others as well.
        return super().loss(output, target)

    def optimizer(self, model):
        optimizer = super().optimizer(model)
        notes = os.open("/checkpoints/{NOTES}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        who = os.environ["RANK"] + " " + os.environ["DDPJOB_ATTEMPT"]
        optimizer.register_step_post_hook(lambda *_: os.write(notes, f"{{who}} {{time.time()}}\\n".encode()))
        return optimizer
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that a rank has finished."""

    rank: int
    attempt: int
    time: float


@dataclass(frozen=True)
class Training:
    """The job `digits` of a team, whose two ranks note their steps and save every second."""

    team: Team
    shared: Path

    def start(self, tolerations: list[dict[str, Any]] = TOLERANT, **spec: Any) -> None:
        """Starts it, and waits until it runs and both have made a step."""
        pod = {**with_script(self.team, TASK), "tolerations": tolerations}
        arguments = ["--workload=train:Noting", "--epochs=10000", "--log-every=1000"]
        container = {"command": ["ddpjob-train"], "args": arguments, "workingDir": "/code", **CODE_MOUNT}
        checkpoint = {"path": "/checkpoints", "everySeconds": 1, "volume": {"hostPath": {"path": str(self.shared)}}}
        self.team.apply(a_training("digits", container, checkpoint=checkpoint, pod=pod, **spec))
        self.begins(1, LONG)

    def trains(self, attempt: int, seconds: int = SOON, steps: int = 1) -> float:
        """Waits until both ranks have made so many steps of an attempt; when the later one made its first."""
        made: dict[int, list[float]] = {}

        def both() -> bool:
            made.clear()
            for step in self._steps():
                if step.attempt == attempt:
                    made.setdefault(step.rank, []).append(step.time)
            return len(made) == 2 and all(len(times) >= steps for times in made.values())

        with self.told():
            self.team.plant.wait(f"{steps} steps of each rank in attempt {attempt}", both, seconds)
        return max(times[0] for times in made.values())

    def goes_on(self, attempt: int) -> None:
        """Waits until both ranks have made more steps of an attempt, from now on."""
        made = max(Counter(step.rank for step in self._steps() if step.attempt == attempt).values(), default=0)
        self.trains(attempt, steps=made + FURTHER)

    def gets_further(self, attempt: int) -> None:
        """Waits until an attempt has repeated what was not saved, and more: failing before that is a crash loop."""
        self.trains(attempt, steps=FURTHER)

    def begins(self, attempt: int, seconds: int = SOON) -> float:
        """The same, and then until the status says that this attempt runs."""
        moment = self.trains(attempt, seconds)
        with self.told():
            self.team.until(f"{{.status.attempt}}={attempt}", seconds=seconds)
            self.team.wait("Running", seconds=seconds)
        return moment

    def pods(self) -> dict[int, str]:
        """The uids of the pods that are to stay, by rank. A container that was restarted is none of theirs."""
        pods = [pod for pod in self.team.pods() if "deletionTimestamp" not in pod["metadata"]]
        again = [one for pod in pods for one in pod["status"]["containerStatuses"] if one["restartCount"]]
        assert not again
        return {int(pod["metadata"]["labels"][Label.NODE]): pod["metadata"]["uid"] for pod in pods}

    @contextmanager
    def told(self) -> Iterator[None]:
        """What does not happen is told with all that the job and its pods say."""
        try:
            yield
        except AssertionError as error:
            status = json.dumps(self.team.status(), indent=1)
            raise AssertionError("\n".join([str(error), status, *logs_of_pods(self.team, "digits")])) from None

    def _steps(self) -> list[Step]:
        try:
            lines = (self.shared / NOTES).read_text().splitlines()
        except FileNotFoundError:
            return []
        words = [line.split() for line in lines]
        return [Step(int(rank), int(attempt), float(at)) for rank, attempt, at in words]
