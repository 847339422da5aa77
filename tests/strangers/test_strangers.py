"""Scripts that strangers wrote, unchanged and in somebody else's directory, by `ddpjob run SCRIPT -n 2`.

`scripts` holds them. What this shows of each is the table of docs/reference/strangers.md.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local.here import Here
from tests.support.waiting import patience

SCRIPTS = Path(__file__).parent / "scripts"
MANY = 100_000


@dataclass(frozen=True)
class Stranger:
    """A script of several epochs that saves and goes on.

    arguments  EPOCHS stands for their number
    begins     what each rank writes when it begins an epoch
    """

    script: str
    arguments: str
    begins: str

    @property
    def name(self) -> str:
        """Of its run."""
        return self.script.removesuffix(".py")

    def command(self, epochs: int) -> list[str]:
        """What is typed after `ddpjob`."""
        return ["run", self.script, "-n", "2", "--", *self.arguments.replace("EPOCHS", str(epochs)).split()]

    def epoch(self, here: Here, rank: int) -> int:
        """The epoch that a rank has begun last; -1 before the first."""
        logs = sorted(here.run(self.name).glob(f"logs/attempt-*/rank-{rank}.log"))
        begun = re.findall(self.begins, logs[-1].read_text()) if logs else []
        return int(begun[-1]) if begun else -1

    def is_together(self, here: Here) -> bool:
        """Whether both ranks are in the same epoch, or one is about to follow."""
        return abs(self.epoch(here, 0) - self.epoch(here, 1)) <= 1


STRANGERS = {
    "multinode": Stranger("multinode.py", "EPOCHS 1", r"Epoch (\d+) \| Batchsize"),
    "imagenet": Stranger(
        "imagenet.py",
        "--epochs EPOCHS --dist-backend gloo --resume checkpoint.pth.tar",
        r"Epoch: \[(\d+)\]\[ *0/",
    ),
    "accelerated": Stranger("accelerated.py", "EPOCHS", r"epoch (\d+) begins"),
}
DEAR = pytest.mark.full("the multinode tutorial shows it, and here are the others")


ROWS = [pytest.param(one, id=name, marks=[] if name == "multinode" else DEAR) for name, one in STRANGERS.items()]


@pytest.mark.parametrize("stranger", ROWS)
def test_a_script_is_killed_and_stopped_and_goes_on_with_its_ranks_together(here: Here, stranger: Stranger) -> None:
    shutil.copy(SCRIPTS / stranger.script, here.directory)
    name = stranger.name
    run = here.start(*stranger.command(MANY))
    here.wait("three epochs", lambda: stranger.epoch(here, 1) >= 3)

    here.ranks(name)[-1].kill()
    here.wait("the restart", lambda: here.status(name)["restarts"] == 1)
    failure = here.status(name)["lastFailure"]
    assert failure["signal"] == 9, failure
    reached = stranger.epoch(here, 0)
    here.wait("two epochs more", lambda: stranger.epoch(here, 1) >= reached + 2)
    assert stranger.is_together(here), here.evidence()

    code, output = here.ddpjob("stop", name)
    assert (code, output.splitlines()[-1]) == (0, f"Go on with: ddpjob run --resume {name}"), output
    output, _ = run.communicate(timeout=patience(60))
    assert run.returncode == 130, output
    assert here.processes(name) == []
    reached = stranger.epoch(here, 0)

    here.start("run", "--resume", name)
    here.wait("two epochs more", lambda: stranger.epoch(here, 1) >= reached + 2)
    assert stranger.is_together(here), here.evidence()
    here.wait("its progress", lambda: here.status(name).get("progress", {}).get("display"))
