"""Ranks of one node: started warm or cold, told of requests, ended together. Real processes, though none trains."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from ddpjob_trainer.supervisor import node
from ddpjob_trainer.supervisor.cold import Cold
from ddpjob_trainer.supervisor.program import program_of
from ddpjob_trainer.supervisor.ranks import Place
from ddpjob_trainer.supervisor.warm import Warm
from ddpjob_trainer.world import Node

async def run(method, script):
    here = Node(node_rank=1, processes=2, world_size=4)
    places = [Place(program_of([script]), {**os.environ, **here.process_env(local)}) for local in range(2)]
    async with Warm(preloaded=["json"]) if method == "warm" else Cold() as starter:
        return await node.run_ranks(places, 2, starter, Path(os.environ["REPORT"]))

node.GRACE_SECONDS = 0.2
sys.exit(asyncio.run(run(*sys.argv[1:])))
"""
"""The second of two nodes with two processes each, so ranks 2 and 3; the arguments are the method and the script."""

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
    def __init__(self, directory: Path, method: str) -> None:
        self._directory = directory
        self._method = method
        self.launched: list[Launched] = []

    def __call__(self, program: str) -> Launched:
        report = self._directory / "report"
        script = self._directory / "program.py"
        script.write_text(PRELUDE + program)
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, self._method, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "REPORT": str(report), "DDPJOB_TERMINATION_LOG": str(report)},
        )
        self.launched.append(Launched(process, report))
        return self.launched[-1]


@pytest.fixture(params=["warm", "cold"])
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, request.param)
    yield launcher
    for launched in launcher.launched:
        launched.process.kill()
        launched.process.communicate()


def test_each_process_knows_its_place(launch: Launcher) -> None:
    code, output = launch("e = os.environ; say(rank, e['LOCAL_RANK'], e['LOCAL_WORLD_SIZE'])").end()
    assert code == 0
    assert sorted(output.splitlines()) == ["2 0 2", "3 1 2"]


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
    launched.lines(2)
    launched.process.send_signal(request_)
    assert launched.end()[0] == 205


def test_a_killed_process_leaves_no_report_so_one_is_written_for_it(launch: Launcher) -> None:
    launched = launch(f"if rank == '3': os.kill(os.getpid(), 9)\n{WAIT}")
    _, output = launched.end()
    assert "error: rank 3 was killed by SIGKILL" in output
    report = launched.report()
    assert (report["rank"], report["exitCode"], report["message"]) == (3, 137, "killed by SIGKILL")


def test_a_program_finds_itself_as_if_it_had_been_started_by_itself(launch: Launcher, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("name = 'beside'")
    code, output = launch(
        "import beside, __main__\n"
        "assert __name__ == '__main__' and __main__.__file__ == __file__ == sys.argv[0]\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and os.getsid(0) == os.getpid()\n"
        "say(beside.name)"
    ).end()
    assert (code, output.splitlines()) == (0, ["beside", "beside"])


def test_a_program_may_spawn_processes_of_its_own(launch: Launcher) -> None:
    program = (
        "import multiprocessing\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: say(str(pool.map(double, [21])))\n"
    )
    code, output = launch(program).end()
    assert (code, output.splitlines()) == (0, ["[42]", "[42]"])


def test_ranks_draw_random_numbers_of_their_own(launch: Launcher) -> None:
    _, output = launch("import random; say(str(random.random()))").end()
    assert len(set(output.splitlines())) == 2


def test_an_error_is_told_without_our_own_frames_and_reported(launch: Launcher) -> None:
    launched = launch("if rank == '3': raise ValueError('no data')")
    code, output = launched.end()
    lines = output.splitlines()
    assert (code, lines[0], lines[-1]) == (1, "Traceback (most recent call last):", "ValueError: no data")
    assert sum("File" in line for line in lines) == 1, output
    report = launched.report()
    assert (report["rank"], report["exception"], report["message"]) == (3, "ValueError", "no data")


def test_no_rank_outlives_its_supervisor(launch: Launcher) -> None:
    launched = launch(f"say(str(os.getpid())); {WAIT}")
    lines = launched.lines(4)
    ranks = [psutil.Process(int(line)) for line in lines if line.isdecimal()]
    launched.process.kill()
    _, alive = psutil.wait_procs(ranks, timeout=DEADLINE_SECONDS)
    assert not alive
