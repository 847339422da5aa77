"""Ranks that are started, asked and ended in each other's moments. Real processes, though none trains."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.gang.local_ranks import LocalRanks, RankSpec, rank_specs
from ddpjob_supervisor.node import open_files, strays
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.node.ranks import Launch, StartError
from ddpjob_supervisor.node.starters import Starter
from ddpjob_supervisor.node.warm import Warm
from ddpjob_supervisor.node.zygote_process import Preload

from tests.support.waiting import patience

DEADLINE_SECONDS = 30
WAIT = "import time; time.sleep(3600)"

TIMES = 20
"""So often that a moment which one start in five falls into is not missed by luck."""

TOO_LONG = "x" * 200_000
"""For a variable: a process is given none of more than 128 KiB."""


@dataclass
class Scene:
    """A node with two processes, and a way to start them."""

    directory: Path
    starter: Starter

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        """The scene, with its starter ready."""

        async def all_of_it() -> None:
            async with asyncio.timeout(patience(DEADLINE_SECONDS)), self.starter:
                await scene()

        asyncio.run(all_of_it())

    def program(self, text: str = WAIT) -> Program:
        script = self.directory / "program.py"
        script.write_text(text)
        return Program(module=False, name=str(script))

    @property
    def launch(self) -> Launch:
        return Launch(self.program(), dict(os.environ))

    @property
    def specs(self) -> list[RankSpec]:
        return rank_specs(os.environ, 0, 2, self.directory)

    def local_ranks(self) -> LocalRanks:
        return LocalRanks(self.starter, lambda _: None, grace=1.0)

    async def appears(self, name: str) -> None:
        """A file that a rank makes."""
        while not (self.directory / name).exists():  # noqa: ASYNC110  (another process makes it)
            await asyncio.sleep(0.01)


@pytest.fixture(params=[lambda: Warm(Preload(["json"])), Cold], ids=["warm", "cold"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(tmp_path, request.param())


@pytest.fixture
def warm(tmp_path: Path) -> Scene:
    return Scene(tmp_path, Warm(Preload(["json"])))


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """With a zygote that never has done with its imports."""
    (tmp_path / "endless.py").write_text(WAIT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return Scene(tmp_path, Warm(Preload(["endless"])))


FACTS = """
import json, os, random, resource, signal, sys, tempfile
handled = {number.name: signal.getsignal(number) for number in signal.Signals}
print(file=open(sys.argv[1], "w"), end=json.dumps({
    "arguments": sys.argv,
    "searches": sys.path[0],
    "variables": {name: os.environ.get(name) for name in ("ONE", "OTHER", "OURS")},
    "works in": os.getcwd(),
    "writes to": tempfile.gettempdir(),
    "cores": sorted(os.sched_getaffinity(0)),
    "leads": os.getsid(0) == os.getpid(),
    "handles": [name for name, handler in handled.items() if callable(handler)],
    "ignores": [name for name, handler in handled.items() if handler == signal.SIG_IGN],
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "number": random.random(),
}))
sys.exit(7)
"""


@pytest.fixture
def terminal() -> Iterator[None]:
    """This process heeds signals as one does that was started in a terminal, not in the background."""
    heeded = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGQUIT: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in heeded.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("terminal")
def test_a_rank_finds_what_a_program_of_a_shell_would_find(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    (works := tmp_path / "works").mkdir()
    env = {name: value for name, value in os.environ.items() if name != "OURS"} | {"TMPDIR": str(works)}
    core = min(os.sched_getaffinity(0))
    told = [tmp_path / "0", tmp_path / "1"]
    program = scene.program(FACTS)

    async def ran() -> None:
        ranks = [
            await scene.starter.start(
                Launch(replace(program, arguments=(str(file),)), env | own, frozenset({core}), works)
            )
            for file, own in zip(told, ({"ONE": "1"}, {"OTHER": "2"}), strict=True)
        ]
        assert [await rank.ended for rank in ranks] == [7, 7]
        assert not any(rank.runs for rank in ranks)

    scene.play(ran)
    found = [json.loads(file.read_text()) for file in told]
    numbers = [each.pop("number") for each in found]
    assert numbers[0] != numbers[1]
    assert found == [
        {
            "arguments": [program.name, str(file)],
            "searches": str(tmp_path),
            "variables": {"ONE": None, "OTHER": None, "OURS": None} | own,
            "works in": str(works),
            "writes to": str(works),
            "cores": [core],
            "leads": True,
            "handles": ["SIGINT"],
            "ignores": ["SIGPIPE", "SIGXFSZ"],  # As in any Python program.
            "blocked": 0,
            "files": list(open_files.FOUND),
        }
        for file, own in zip(told, ({"ONE": "1"}, {"OTHER": "2"}), strict=True)
    ]


def test_a_rank_that_is_killed_just_after_its_start_ends(scene: Scene) -> None:
    async def killed() -> None:
        for _ in range(TIMES):
            rank = await scene.starter.start(scene.launch)
            rank.kill()
            assert await rank.ended == 128 + signal.SIGKILL

    scene.play(killed)


def test_a_rank_that_is_asked_to_stop_just_after_its_start_has_heard_it(scene: Scene) -> None:
    async def asked() -> None:
        for _ in range(TIMES):
            rank = await scene.starter.start(scene.launch)
            rank.send_signal(signal.SIGTERM)
            assert await rank.ended == 128 + signal.SIGTERM

    scene.play(asked)


def test_ranks_that_were_stopped_before_they_start_are_not_started(scene: Scene) -> None:
    async def stopped() -> None:
        for _ in range(TIMES):
            local_ranks = scene.local_ranks()
            local_ranks.stop()
            ends = await local_ranks.run(scene.program(f"open('{scene.directory}/ran', 'w'); {WAIT}"), scene.specs)
            assert [(end.rank, end.exit_code, end.cause) for end in ends] == [(0, 137, ""), (1, 137, "")]

    scene.play(stopped)
    assert not (scene.directory / "ran").exists()


@pytest.mark.parametrize("request_", ["stop", "SIGTERM"])
def test_whoever_asks_for_the_end_waits_for_no_imports(importing: Scene, request_: str) -> None:
    async def asked() -> None:
        local_ranks = importing.local_ranks()
        running = asyncio.create_task(local_ranks.run(importing.program(), importing.specs))
        await asyncio.sleep(0)  # It waits for the zygote by now.
        if request_ == "stop":
            local_ranks.stop()
        else:
            local_ranks.send_signal(signal.SIGTERM)
        assert [end.exit_code for end in await running] == [137 if request_ == "stop" else 143] * 2

    importing.play(asked)


def test_what_a_zygote_cannot_import_is_the_users_mistake(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Warm(Preload(["json", "nosuchmodule"])))

    async def imported() -> None:
        message = "cannot import nosuchmodule, which is imported before the ranks are forked: No module named"
        with pytest.raises(ConfigError, match=message):
            await scene.local_ranks().run(scene.program(), scene.specs)
        with pytest.raises(ConfigError, match=message):
            await scene.starter.start(scene.launch)

    scene.play(imported)


@pytest.mark.parametrize(
    "starter", [lambda place: Warm(Preload(["own"], place)), lambda _: Cold()], ids=["warm", "cold"]
)
def test_a_rank_imports_from_where_its_program_is_and_not_from_where_it_works(
    starter: Callable[[str], Starter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "own.py").write_text("import queue\nqueue.Queue\n")
    for name in ("queue", "json"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('it is not of the standard library')\n")
    monkeypatch.chdir(tmp_path)
    scene = Scene(source, starter(str(source)))

    async def ran() -> None:
        rank = await scene.starter.start(Launch(scene.program("import own"), dict(os.environ)))
        assert await rank.ended == 0

    scene.play(ran)


def test_whoever_asked_a_zygote_that_dies_is_told(importing: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def died() -> None:
        asking = asyncio.create_task(importing.starter.start(importing.launch))
        await asyncio.sleep(0)  # It has asked by now, and nobody reads it.
        psutil.Process(importing.starter.zygote).kill()
        with pytest.raises(StartError, match="the process that ranks are forked from has ended"):
            await asking

    importing.play(died)
    importing.starter = Cold()
    gc.collect()  # An error that nobody has seen is told of once it is forgotten.
    assert caplog.text == ""


def test_after_the_death_of_a_zygote_all_ranks_come_from_one_new_one(warm: Scene) -> None:
    async def died() -> None:
        rank = await warm.starter.start(warm.launch)
        for _ in range(2):
            psutil.Process(warm.starter.zygote).kill()
            assert await rank.ended == 128 + signal.SIGKILL
            rank, other = await asyncio.gather(*(warm.starter.start(warm.launch) for _ in range(2)))
            assert {psutil.Process(one.pid).ppid() for one in (rank, other)} == {warm.starter.zygote}

    warm.play(died)


def test_whoever_gives_up_asking_for_a_rank_leaves_none_behind(warm: Scene) -> None:
    async def given_up() -> None:
        await warm.starter.ready()
        asking = asyncio.create_task(warm.starter.start(warm.launch))
        await asyncio.sleep(0)  # It has asked by now.
        asking.cancel()
        rank = await warm.starter.start(warm.launch)
        zygote = psutil.Process(warm.starter.zygote)
        while [child.pid for child in zygote.children()] != [rank.pid]:  # noqa: ASYNC110  (others end)
            await asyncio.sleep(0.01)

    warm.play(given_up)


def test_where_one_rank_cannot_be_started_none_runs(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Cold())

    async def one_only() -> None:
        well, too_long = scene.specs
        local_ranks = scene.local_ranks()
        with pytest.raises(StartError, match="Argument list too long"):
            await local_ranks.run(
                scene.program(), [well, replace(too_long, env={**too_long.env, "TOO_LONG": TOO_LONG})]
            )
        assert scene.starter.pids == set()

    scene.play(one_only)


@pytest.mark.parametrize("request_", ["stop", "SIGTERM"])
def test_a_rank_that_has_said_why_it_failed_is_believed_though_it_was_ended_then(scene: Scene, request_: str) -> None:
    failing = (
        "import atexit, os, time\n"
        f"atexit.register(lambda: (open('{scene.directory}/at exit' + os.environ['RANK'], 'w'), time.sleep(3600)))\n"
        "if os.environ['RANK'] == '0': raise SystemExit(0)\n"
        "raise ValueError('the cause')\n"
    )

    async def failed() -> None:
        local_ranks = scene.local_ranks()
        running = asyncio.create_task(local_ranks.run(scene.program(failing), scene.specs))
        await scene.appears("at exit0")
        await scene.appears("at exit1")
        if request_ == "stop":
            local_ranks.stop()
        else:
            local_ranks.send_signal(signal.SIGTERM)
        ends = [(end.cause, end.message, end.exit_code) for end in await running]
        assert ends == [("", "", 137 if request_ == "stop" else 143), ("Application", "the cause", 1)]

    scene.play(failed)


def test_a_process_that_does_not_end_holds_nobody_up_and_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = strays.Strays(Cold())
    with subprocess.Popen([sys.executable, "-c", WAIT], env=os.environ | {Env.HEARTBEAT: "any"}) as stray:
        monkeypatch.setattr(strays, "ENDING_SECONDS", 0.05)
        monkeypatch.setattr(os, "kill", lambda *_: None)  # As if it waited in the kernel.
        asyncio.run(ours.end())
        monkeypatch.undo()
        assert f"process {stray.pid} (python" in capsys.readouterr().err
        asyncio.run(ours.end())
        assert not psutil.pid_exists(stray.pid)


def test_a_child_that_somebody_else_waits_for_is_neither_ended_nor_reaped() -> None:
    pids = set[int]()
    ours = strays.Strays(Cold(), pids)
    with subprocess.Popen([sys.executable, "-c", WAIT]) as child:
        pids.add(child.pid)
        asyncio.run(ours.end())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        ours.reap()
        assert child.wait() == -signal.SIGKILL


def test_children_from_before_a_supervisor_and_what_they_leave_behind_are_not_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", WAIT]) as former, contextlib.ExitStack() as stack:
        ours = strays.Strays(Cold())
        others, of_a_rank = (
            stack.enter_context(subprocess.Popen([sys.executable, "-c", WAIT], env=os.environ | more))
            for more in ({}, {Env.HEARTBEAT: "any"})
        )
        asyncio.run(ours.end())
        assert [psutil.pid_exists(process.pid) for process in (former, others, of_a_rank)] == [True, True, False]
        for process in (former, others):
            process.kill()
