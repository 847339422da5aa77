"""Processes of one node: started, told of requests, ended together. Real processes, though none that trains."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

LAUNCHER = """
import os, sys
from pathlib import Path
from ddpjob_trainer import launch
from ddpjob_trainer.world import Node
node = Node(node_rank=1, processes=2, world_size=4)
launch.GRACE_SECONDS = 0.2
sys.exit(launch.run_node(node, [sys.executable, "-S", "-c", sys.argv[1]], os.environ, Path(os.environ["REPORT"])))
"""
"""The second of two nodes with two processes each, so ranks 2 and 3; the argument is the processes' program."""

PRELUDE = """
import os, signal, sys, time
rank = os.environ["RANK"]
def say(*words): os.write(1, f"{' '.join(words)}\\n".encode())
"""
WAIT = "say('waits'); time.sleep(60)"
DEADLINE_SECONDS = 30


@dataclass
class Launched:
    process: subprocess.Popen[str]
    report_file: Path

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, output

    def report(self) -> dict[str, object]:
        report: dict[str, object] = json.loads(self.report_file.read_text())
        return report


class Launcher:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.launched: list[Launched] = []

    def __call__(self, program: str) -> Launched:
        report = self._directory / "report"
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, PRELUDE + program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "REPORT": str(report)},
        )
        self.launched.append(Launched(process, report))
        return self.launched[-1]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    for launched in launcher.launched:
        launched.process.kill()
        launched.process.communicate()


def test_each_process_knows_its_place(launch: Launcher) -> None:
    code, output = launch("e = os.environ; say(rank, e['LOCAL_RANK'], e['LOCAL_WORLD_SIZE'])").end()
    assert code == 0
    assert sorted(output.splitlines()) == ["2 0 2", "3 1 2", "node 1: started 2 processes"]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("sys.exit(7 if rank == '3' else 0)", 7),
        ("sys.exit(205)", 205),
        ("sys.exit(205 if rank == '3' else 0)", 205),
        (f"if rank == '2': sys.exit(2)\n{WAIT}", 2),
        (f"if rank == '3': os.kill(os.getpid(), 9)\n{WAIT}", 137),
    ],
    ids=["one fails", "all saved and stopped", "one is done", "one fails while another waits", "one is killed"],
)
def test_the_first_that_fails_decides_and_ends_the_others(launch: Launcher, program: str, code: int) -> None:
    assert launch(program).end()[0] == code


def test_when_one_fails_the_others_may_end_by_themselves(launch: Launcher, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ending = (
        f"signal.signal(signal.SIGTERM, lambda *_: (say('told'), sys.exit(0))); open({str(ready)!r}, 'w'); {WAIT}"
    )
    failing = f"while not os.path.exists({str(ready)!r}): time.sleep(0.01)\n    sys.exit(3)"
    code, output = launch(f"if rank == '3':\n    {failing}\n{ending}").end()
    assert (code, "told" in output.split()) == (3, True)


def test_one_that_does_not_end_by_itself_is_killed(launch: Launcher, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    stubborn = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(ready)!r}, 'w'); {WAIT}"
    failing = f"while not os.path.exists({str(ready)!r}): time.sleep(0.01)\n    sys.exit(3)"
    launched = launch(f"if rank == '3':\n    {failing}\n{stubborn}")
    assert launched.end()[0] == 3


@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGINT])
def test_a_request_reaches_every_process(launch: Launcher, request_: signal.Signals) -> None:
    handler = f"signal.signal({int(request_)}, lambda *_: sys.exit(205))"
    launched = launch(f"{handler}\n{WAIT}")
    launched.lines(3)
    launched.process.send_signal(request_)
    assert launched.end()[0] == 205


def test_a_killed_process_leaves_no_report_so_one_is_written_for_it(launch: Launcher) -> None:
    launched = launch(f"if rank == '3': os.kill(os.getpid(), 9)\n{WAIT}")
    _, output = launched.end()
    assert "error: rank 3 was killed by SIGKILL" in output
    report = launched.report()
    assert (report["rank"], report["exitCode"], report["message"]) == (3, 137, "killed by SIGKILL")
