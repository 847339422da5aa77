"""The command, as somebody uses it who has the role `ddpjob-edit` and no other: each line of a log is shown once."""

import os
import re
import subprocess
import sys
import termios
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.plant import Plant, build
from tests.plant.images import PYTHON
from tests.support.jobs import Team
from tests.support.terminals import Seen
from tests.support.waiting import patience

from .work import an_engineer

BIN = Path(sys.executable).parent
DEADLINE_SECONDS = 60.0
STEPS = 20
FAILS_AT = 10
TRAINER = f"""
import os, pathlib, sys, time
for step in range(1, {STEPS} + 1):
    print(f"progress step={{step}}/{STEPS} attempt={{os.environ['DDPJOB_INCARNATION']}}", flush=True)
    time.sleep(0.1)
    if (os.environ["DDPJOB_INCARNATION"], step) == ("1", {FAILS_AT}):
        while not pathlib.Path("/tmp/go").exists():
            time.sleep(0.1)
        sys.exit("ValueError: shard 3 is empty")
"""
SCREENS = ("submit", "follow")
LINE = re.compile(r"^\[rank (\d)\] progress step=(\d+)/\d+ attempt=(\d)$", re.MULTILINE)


@dataclass(frozen=True)
class Terminal:
    """Where somebody calls the command: each call has a screen of its own."""

    plant: Plant
    namespace: str
    kubeconfig: Path
    directory: Path

    def start(self, screen: str, *arguments: str | Path) -> subprocess.Popen[str]:
        path = f"{BIN}:{build.path('kubectl').parent}:{os.environ['PATH']}"
        with (self.directory / screen).open("w") as output:
            return subprocess.Popen(
                ["ddpjob", arguments[0], "-n", self.namespace, *arguments[1:]],
                env=os.environ | self.plant.environment(self.kubeconfig) | {"PATH": path},
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def call(self, *arguments: str | Path) -> Path:
        """What a command that ends well printed."""
        screen = self.directory / arguments[0]
        ends_well(self.start(screen.name, *arguments), screen)
        return screen


def ends_well(process: subprocess.Popen[str], screen: Path) -> None:
    assert process.wait(patience(DEADLINE_SECONDS)) == 0, screen.read_text()


def _let_it_fail(team: Team) -> None:
    """Rank 1 of the first attempt waits for this, which is typed into a shell beside it."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (30, 100))
    process = subprocess.Popen(
        [BIN / "ddpjob", "debug", "talk", "--rank", "1", "-n", team.namespace],
        env=os.environ | team.plant.environment(),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    user = Seen(master)
    try:
        user.until("rank 1 runs in pod talk-1")
        user.type("stty size; hostname\n")
        user.until("30 100\r\n")
        user.until("talk-1-")
        user.type("touch /tmp/go; exit 7\n")
        assert process.wait(patience(DEADLINE_SECONDS)) == 7, user.text
    finally:
        process.kill()
        process.wait()


def lines(screen: Path) -> Counter[tuple[int, int, int]]:
    """How often each line of a trainer is there, by attempt, rank and step."""
    return Counter((int(attempt), int(rank), int(step)) for rank, step, attempt in LINE.findall(screen.read_text()))


@pytest.mark.timeout(600)
def test_every_line_is_shown_once_through_a_restart_and_the_last_attempt_stays_readable(
    real: Plant, tmp_path: Path
) -> None:
    team = Team(real)
    terminal = Terminal(real, team.namespace, an_engineer(real, team.namespace), tmp_path)
    container = {"name": "trainer", "image": PYTHON, "command": ["python3", "-c", TRAINER]}
    document = {
        "apiVersion": "ddpjob.dev/v1alpha2",
        "kind": "DDPJob",
        "metadata": {"name": "talk"},
        "spec": {
            "nodes": 2,
            "network": {"waitForMaster": False},
            "restart": {"gracePeriodSeconds": 1},
            "template": {"spec": {"containers": [container]}},
        },
    }
    file = tmp_path / "talk.yaml"
    file.write_text(yaml.safe_dump(document))
    submitted = terminal.start("submit", "submit", "--wait", file)
    try:
        real.wait("the job", lambda: team.job("talk"))
        followed = terminal.start("follow", "logs", "talk", "--follow")
        real.wait("both to see attempt 1", lambda: all(lines(tmp_path / one)[1, 1, FAILS_AT] for one in SCREENS))
        refused = terminal.start("debug", "debug", "talk", "--rank", "1", "--", "true")
        assert refused.wait(patience(DEADLINE_SECONDS)) == 1
        assert "Ask for the ClusterRole ddpjob-debug" in (tmp_path / "debug").read_text()
        _let_it_fail(team)
        ends_well(followed, tmp_path / "follow")
        ends_well(submitted, tmp_path / "submit")
    finally:
        submitted.kill()
    whole = {(2, rank, step) for rank in (0, 1) for step in range(1, STEPS + 1)}
    wanted = whole | {(1, 1, step) for step in range(1, FAILS_AT + 1)} | {(1, 0, 1)}
    for screen in SCREENS:
        shown = lines(tmp_path / screen)
        assert wanted <= set(shown), (tmp_path / screen).read_text()
        assert set(shown.values()) == {1}
    said = (tmp_path / "submit").read_text()
    assert "ddpjob: Restarting: Rank 1 failed: Application: ValueError: shard 3 is empty; restart 1 of 6" in said
    assert "[rank 1] ValueError: shard 3 is empty\n" in said
    assert "\ntalk: Succeeded. 2 nodes finished\n" in said
    assert set(lines(terminal.call("logs", "talk"))) == whole
    assert set(lines(terminal.call("logs", "talk", "--node", "1"))) == {line for line in whole if line[1] == 1}
    assert "\nEvents:\n" in terminal.call("status", "talk").read_text()
    assert terminal.call("delete", "talk").read_text().endswith("\ntalk: deleted\n")
