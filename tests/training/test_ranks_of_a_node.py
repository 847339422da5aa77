"""Ranks of one node: started warm or cold, told of requests, ended together. Real processes, though none trains."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from tests.support.waiting import patience, wait_for
from tests.training.forking import FORKS, Forked, settle
from tests.training.node import NODE, supervise

PRELUDE = """
import os, signal, sys, time
rank = os.environ["RANK"]
def say(*words): os.write(1, f"{' '.join(words)}\\n".encode())
"""
WAIT = """say('waits')
for _ in range(600): time.sleep(0.1)"""
"""Not in one sleep: a signal that comes just before it begins is heard only once it is over."""
DEADLINE_SECONDS = 30


def _forked(environment: Mapping[str, str], screen: Path, method: str, script: str) -> NoReturn:
    os.setsid()
    settle(environment, [(1, screen), (2, screen)])
    supervise(method, script)


@dataclass
class Launched:
    process: Forked
    screen: Path
    report_file: Path
    seen: int = 0

    def lines(self, count: int) -> list[str]:
        """The next lines of the screen."""
        wait_for(f"{count} lines", lambda: self._unseen().count("\n") >= count, story=self.screen.read_text)
        lines = self._unseen().splitlines(keepends=True)[:count]
        self.seen += sum(map(len, lines))
        return [line.strip() for line in lines]

    def end(self) -> tuple[int, str]:
        """The exit code, and what is on the screen below those lines."""
        return self.process.wait(patience(DEADLINE_SECONDS)), self._unseen()

    def _unseen(self) -> str:
        return self.screen.read_text()[self.seen :]

    def report(self) -> dict[str, object]:
        report: dict[str, object] = json.loads(self.report_file.read_text())
        return report


class Launcher:
    def __init__(self, directory: Path, method: str) -> None:
        self._directory = directory
        self._method = method
        self.launched: list[Launched] = []

    def __call__(self, program: str) -> Launched:
        report, screen, script = (self._directory / name for name in ("report", "screen", "program.py"))
        script.write_text(PRELUDE + program)
        screen.touch()
        environment = {**os.environ, **NODE, "DDPJOB_TERMINATION_LOG": str(report)}
        process = FORKS.Process(target=_forked, args=(environment, screen, self._method, str(script)), daemon=True)
        process.start()
        self.launched.append(Launched(Forked(process), screen, report))
        return self.launched[-1]


@pytest.fixture(params=["warm", "cold"])
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, request.param)
    yield launcher
    for launched in launcher.launched:
        launched.process.kill()
        launched.process.wait()


def test_each_process_knows_its_place(launch: Launcher) -> None:
    code, output = launch("e = os.environ; say(rank, e['LOCAL_RANK'], e['LOCAL_WORLD_SIZE'])").end()
    assert code == 0
    assert sorted(output.splitlines()) == ["0 0 2", "1 1 2"]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("sys.exit(7 if rank == '1' else 0)", 7),
        ("sys.exit(205)", 205),
        ("sys.exit(205 if rank == '1' else 0)", 205),
        (f"if rank == '0': sys.exit(2)\n{WAIT}", 2),
        (f"if rank == '1': os.kill(os.getpid(), 9)\n{WAIT}", 137),
    ],
    ids=["one fails", "all saved and stopped", "one is done", "one fails while another waits", "one is killed"],
)
def test_the_first_that_fails_decides_and_ends_the_others(launch: Launcher, program: str, code: int) -> None:
    assert launch(program).end()[0] == code


def test_when_one_fails_the_others_are_ended_at_once_with_all_that_they_have_started(
    launch: Launcher, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    stubborn = (
        "import subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True); say('child', str(child.pid))\n"
        f"open({str(ready)!r}, 'w'); {WAIT}"
    )
    failing = f"while not os.path.exists({str(ready)!r}): time.sleep(0.01)\n    sys.exit(3)"
    launched = launch(f"if rank == '1':\n    {failing}\n{stubborn}")
    child = next(int(line.split()[1]) for line in launched.lines(2) if line.startswith("child"))
    assert launched.end()[0] == 3
    assert not psutil.pid_exists(child)


def test_what_comes_to_light_when_its_own_parent_has_ended_is_ended_too(launch: Launcher) -> None:
    shell = "['bash', '-c', 'sleep 60 & echo $!; wait']"
    launched = launch(
        "import subprocess\n"
        f"shell = subprocess.Popen({shell}, start_new_session=True, stdout=subprocess.PIPE)\n"
        "say('grandchild', shell.stdout.readline().decode().strip())\n"
        "sys.exit(3 if rank == '1' else 0)"
    )
    code, output = launched.end()
    grandchildren = [int(line.split()[1]) for line in output.splitlines() if line.startswith("grandchild")]
    assert code == 3
    assert grandchildren
    assert not any(map(psutil.pid_exists, grandchildren))


@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGINT])
def test_a_request_reaches_every_process(launch: Launcher, request_: signal.Signals) -> None:
    handler = f"signal.signal({int(request_)}, lambda *_: sys.exit(205))"
    launched = launch(f"{handler}\n{WAIT}")
    launched.lines(2)
    launched.process.send_signal(request_)
    assert launched.end()[0] == 205


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGHUP])
def test_a_signal_of_a_terminal_tells_every_process_to_stop_even_if_it_comes_twice(
    launch: Launcher, number: signal.Signals
) -> None:
    launched = launch(f"signal.signal({int(signal.SIGINT)}, lambda *_: sys.exit(205))\n{WAIT}")
    launched.lines(2)
    launched.process.send_signal(number)
    if number is signal.SIGHUP:
        launched.process.send_signal(number)
    assert launched.end() == (205, "")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_for_a_script_ends_neither_the_supervisor_nor_what_its_ranks_come_from(
    launch: Launcher, number: signal.Signals
) -> None:
    handler = f"signal.signal({int(signal.SIGINT)}, lambda *_: sys.exit(205))"
    launched = launch(f"assert signal.getsignal({int(number)}) is signal.SIG_DFL\n{handler}\n{WAIT}")
    launched.lines(2)
    for process in psutil.Process(launched.process.pid).children():
        if "zygote" in " ".join(process.cmdline()):
            process.send_signal(number)
    launched.process.send_signal(number)
    whose = f"warning: ddpjob-supervise does not pass {number.name} on to the ranks; send it to the process of a rank"
    assert launched.lines(1) == [whose]
    launched.process.send_signal(signal.SIGTERM)
    assert launched.end() == (205, "")


def test_a_second_request_ends_those_that_do_not_heed_any(launch: Launcher) -> None:
    launched = launch(f"signal.signal(signal.SIGINT, lambda *_: say('heard'))\n{WAIT}")
    launched.lines(2)
    launched.process.send_signal(signal.SIGINT)
    assert launched.lines(2) == ["heard", "heard"]  # Two requests that come at once are one.
    launched.process.send_signal(signal.SIGINT)
    code, output = launched.end()
    assert (code, set(output.split()) <= {"heard"}) == (137, True), output


def test_a_killed_process_leaves_no_report_so_one_is_written_for_it(launch: Launcher) -> None:
    launched = launch(f"if rank == '1': os.kill(os.getpid(), 9)\n{WAIT}")
    _, output = launched.end()
    assert "error: rank 1 was killed by SIGKILL" in output
    report = launched.report()
    assert (report["rank"], report["exitCode"], report["message"]) == (1, 137, "killed by SIGKILL")


def test_a_program_finds_itself_as_if_it_had_been_started_by_itself(launch: Launcher, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("name = 'beside'")
    code, output = launch(
        "import beside, builtins, __main__\n"
        "assert __builtins__ is builtins\n"
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


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such policy")
def test_threads_of_a_program_let_each_other_go_on(launch: Launcher) -> None:
    code, output = launch(
        "import os, threading\n"
        "threading.Thread(target=lambda: say(str(os.sched_getscheduler(0) != os.SCHED_OTHER))).start()"
    ).end()
    assert (code, output.splitlines()) == (0, ["True", "True"])


def test_ranks_draw_random_numbers_of_their_own(launch: Launcher) -> None:
    _, output = launch("import random; say(str(random.random()))").end()
    assert len(set(output.splitlines())) == 2


def test_an_error_is_told_without_our_own_frames_and_reported(launch: Launcher) -> None:
    launched = launch("if rank == '1': raise ValueError('no data')")
    code, output = launched.end()
    lines = output.splitlines()
    assert (code, lines[0], lines[-1]) == (1, "Traceback (most recent call last):", "ValueError: no data")
    assert sum("File" in line for line in lines) == 1, output
    report = launched.report()
    assert (report["rank"], report["exception"], report["message"]) == (1, "ValueError", "no data")


STOPPED = ("Stopped", None, "it stopped, although its supervisor had not been told to")
LATE = """
class Late:
    def write(self, text):
        os.write(2, text.encode())
        signal.raise_signal(signal.SIGTERM)
    def flush(self): pass
sys.stderr = Late()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
sys.exit('no data')
"""
"""It is told to stop, which it answers by leaving, while what it said at its end is written."""
LATE_THREAD = """
import threading
def stops():
    threading.main_thread().join()
    os.kill(os.getpid(), signal.SIGTERM)
    say('late')
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
threading.Thread(target=stops).start()
"""
"""The same while a thread goes on."""
HANDLED = "try:\n import lacking\nexcept ImportError:\n sys.exit(-1)"


@pytest.mark.parametrize(
    ("leaves", "code", "told", "prints"),
    [
        pytest.param(
            "sys.exit('no data in /data')",
            1,
            ("Application", "SystemExit", "no data in /data"),
            "no data in /data\n",
            id="a sentence",
        ),
        pytest.param(
            f"exec({LATE!r})",
            1,
            ("Application", "SystemExit", "no data"),
            "no data\n",
            id="a sentence, and told to stop by then",
        ),
        pytest.param(
            "import click; click.Command('train.py').main(['--lrr'], 'train.py')",
            2,
            ("ConfigError", "ConfigError", "No such option '--lrr'."),
            "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option '--lrr'.\n",
            id="wrong options of click",
        ),
        pytest.param(
            "import argparse; argparse.ArgumentParser('train.py').parse_args(['--lrr'])",
            2,
            ("ConfigError", "ConfigError", "train.py: error: unrecognized arguments: --lrr"),
            "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr\n",
            id="wrong arguments",
        ),
        pytest.param(
            "import argparse; argparse.ArgumentParser().exit(3, 'the disk is busy\\n')",
            3,
            ("Application", None, "ended with exit code 3"),
            "the disk is busy\n",
            id="a parser that ends the program for another reason",
        ),
        pytest.param(
            f"exec({HANDLED!r})",
            255,
            ("Application", "ModuleNotFoundError", "No module named 'lacking'"),
            "",
            id="a handled error",
        ),
        pytest.param(f"exec({HANDLED.replace('-1', '205')!r})", 205, STOPPED, "", id="a handled error, and saved"),
    ],
)
def test_what_a_program_said_before_it_exited_is_reported(
    leaves: str, code: int, told: tuple[str, str | None, str], prints: str, launch: Launcher
) -> None:
    launched = launch(f"if rank == '1': {leaves}")
    assert launched.end() == (code, prints)
    report = launched.report()
    said = tuple(report[name] for name in ("rank", "exitCode", "cause", "exception", "message"))
    assert said == (1, code, *told)


def test_no_rank_outlives_its_supervisor(launch: Launcher) -> None:
    launched = launch(f"say(str(os.getpid())); {WAIT}")
    lines = launched.lines(4)
    ranks = [psutil.Process(int(line)) for line in lines if line.isdecimal()]
    launched.process.kill()
    _, alive = psutil.wait_procs(ranks, timeout=patience(DEADLINE_SECONDS))
    assert not alive


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("import atexit; atexit.register(say, 'at exit'); sys.exit(3)", 3, "at exit"),
        ("import threading; threading.Thread(target=lambda: (time.sleep(0.2), say('thread'))).start()", 0, "thread"),
        (LATE_THREAD, 0, "late"),
        ("print('printed', end='')", 0, "printed"),
        ("sys.exit(256 + 7)", 7, ""),
        ("sys.exit(None)", 0, ""),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 130, "KeyboardInterrupt"),
    ],
    ids=["exit functions", "threads", "a signal while threads end", "output", "a large code", "none", "an interrupt"],
)
def test_a_program_ends_as_it_would_by_itself(launch: Launcher, program: str, code: int, said: str) -> None:
    ended, output = launch(program).end()
    assert (ended, said in output) == (code, True), output
