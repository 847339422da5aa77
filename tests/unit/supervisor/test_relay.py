"""A rank's stderr passes through its supervisor, which hears it: real pipes and processes."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_rank.environment import Env
from ddpjob_rank.running.stderr import SUFFIX
from ddpjob_supervisor.watch import relay
from ddpjob_supervisor.watch.relay import Relay

from tests.support.waiting import patience

REDIRECTS = "from ddpjob_rank.running.stderr import redirect; redirect(); import os, sys, time\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where everything is passed on to."""
    file = tmp_path / "log"
    with file.open("wb") as stream:
        monkeypatch.setattr(relay, "STDERR", stream.fileno())
        yield file


def runs(program: str, directory: Path) -> list[str]:
    """What is heard of a program that has such a supervisor."""

    async def play() -> list[str]:
        heard: list[str] = []
        heartbeat = str(directory / "0")
        passage = Relay.of(heartbeat, heard.append)
        assert passage is not None
        env = {**os.environ, Env.HEARTBEAT: heartbeat}
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", REDIRECTS + program, env=env)
        await process.wait()
        await passage.finish()
        return list(heard)

    return asyncio.run(play())


def test_what_it_writes_is_passed_on_as_it_is_and_heard_in_lines(tmp_path: Path, log: Path) -> None:
    program = "os.write(2, b'one\\n50%\\r100%\\rtw'); time.sleep(0.05); os.write(2, b'o\\xff\\nend'); os.abort()"
    assert runs(program, tmp_path) == ["one", "50%", "100%", "two\N{REPLACEMENT CHARACTER}", "end"]
    assert log.read_bytes() == b"one\n50%\r100%\rtwo\xff\nend"


def test_a_flood_is_passed_on_whole(tmp_path: Path, log: Path) -> None:
    assert len(runs("for i in range(50_000): print(i, 'x' * 30, file=sys.stderr)", tmp_path)) == 50_000
    assert log.read_text().splitlines()[::10_000] == [f"{i} {'x' * 30}" for i in range(0, 50_000, 10_000)]


def test_a_line_without_an_end_is_heard_in_parts(tmp_path: Path, log: Path) -> None:
    assert "".join(runs("print('y' * 100_000, file=sys.stderr)", tmp_path)).count("y") >= 4096
    assert len(log.read_bytes()) == 100_001


def test_what_it_leaves_running_is_not_waited_for_and_still_passed_on(tmp_path: Path, log: Path) -> None:
    program = "os.fork() or (time.sleep(1), os.write(2, b'late\\n'), os._exit(0)); os.write(2, b'last words\\n')"
    before = threading.enumerate()
    assert runs(program, tmp_path) == ["last words"]
    for thread in {*threading.enumerate()} - {*before}:
        thread.join(10)
    assert log.read_bytes() == b"last words\nlate\n"


def test_two_stages_of_a_rank_that_open_it_one_after_the_other_are_both_heard(tmp_path: Path) -> None:
    """As NCCL opens NCCL_DEBUG_FILE in each process: without a reader, open(2) would wait for ever."""
    stage = "import sys; print('stage', file=open(sys.argv[1], 'w'))"

    async def play() -> list[str]:
        heard: list[str] = []
        aside = Relay.aside(str(tmp_path / "0"), heard.append, ".nccl")
        assert aside is not None
        for count in (1, 2):
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", stage, str(aside.path))
            async with asyncio.timeout(patience(10)):
                await process.wait()
                while len(heard) < count:  # noqa: ASYNC110  (a thread hears)
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # A reader that goes with the first stage has gone by now.
        await aside.finish()
        return heard

    assert asyncio.run(play()) == ["stage", "stage"]


def test_a_rank_that_never_comes_to_it_leaves_nothing_behind(tmp_path: Path, log: Path) -> None:
    before = threading.enumerate()

    async def play() -> None:
        passage = Relay(str(tmp_path / "0"), lambda _: None)
        await passage.finish()

    asyncio.run(play())
    assert log.read_bytes() == b""
    assert not (tmp_path / f"0{SUFFIX}").exists()
    for thread in {*threading.enumerate()} - {*before}:
        thread.join(10)
        assert not thread.is_alive()


def test_on_a_terminal_programs_draw_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setattr(relay, "STDERR", theirs)
    assert Relay.of(str(tmp_path / "0"), print) is None
    os.close(ours)
    os.close(theirs)


def test_without_a_supervisor_stderr_stays_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"0{SUFFIX}")
    env = {**os.environ, Env.HEARTBEAT: str(tmp_path / "0")}
    done = subprocess.run(
        [sys.executable, "-c", REDIRECTS + "print('here', file=sys.stderr)"],
        env=env,
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == b"here\n"
