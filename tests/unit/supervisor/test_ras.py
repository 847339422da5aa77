"""NCCL's RAS is asked by a server that speaks its protocol, as NCCL's src/ras/client_support.cc does.

Its answer is what NCCL 2.26 printed in a public report. With a real library this has not been seen: there is no GPU.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from ddpjob_rank.environment import Env
from ddpjob_supervisor.watch import ras, stacks
from ddpjob_supervisor.watch.last_words import LastWords

from .gpu.transcripts import transcript

ANSWER = "\n".join(transcript("ras-nccl-2.26"))

Speaks = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a rank's thread does: commands in lines, any letters, and after an answer the connection is closed."""
    while line := (await reader.readline()).decode().rstrip("\r\n").lower():
        if line.startswith("client protocol "):
            writer.write(b"SERVER PROTOCOL 2\n")
        elif line.startswith("timeout "):
            writer.write(b"OK\n")
        elif line in {"status", "verbose status"}:
            writer.write(f"{ANSWER}\n".encode())
            break
        else:
            writer.write(f"ERROR: Unknown command {line}\n".encode())


async def breaks_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Waits for ranks that do not answer, for ever."""
    await reader.readline()
    writer.write(b"SERVER PROTOCOL 2\nOK\nJob summary\n")
    await asyncio.Event().wait()


async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"SERVER PROTOCOL 2\n" + b"x" * (ras.LONGEST + 1))


async def says_something_else(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def says_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def asked(server: Speaks, asks: Callable[[str], Awaitable[str]] = ras.ask) -> str:
    """What is heard of a rank that listens where its environment says."""

    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await server(reader, writer)
        finally:
            writer.close()

    async def play() -> str:
        address = ras.settings({})[ras.ADDRESS]
        host, _, port = address.rpartition(":")
        # Each rank of a node does so, as NCCL's rasClientInitSocket.
        listening = await asyncio.start_server(serves, host, int(port), reuse_address=True, reuse_port=True)
        try:
            return await asks(address)
        finally:
            listening.close()

    return asyncio.run(play())


def test_it_says_what_it_knows_of_all_ranks() -> None:
    assert asked(speaks) == ANSWER


@pytest.mark.parametrize("server", [says_something_else, says_nothing])
def test_who_does_not_speak_its_protocol_is_not_heard(server: Speaks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "SECONDS", 0.5)
    monkeypatch.setattr(ras, "GREETING_SECONDS", 0.1)
    began = time.monotonic()
    assert asked(server) == ""
    assert time.monotonic() - began < 2


def test_where_nobody_listens_nothing_is_said() -> None:
    assert asyncio.run(ras.ask(ras.settings({})[ras.ADDRESS])) == ""
    assert asyncio.run(ras.ask("no address")) == ""


def test_a_name_server_that_does_not_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(10) and [])
    monkeypatch.setattr(ras, "SECONDS", 0.1)
    began = time.monotonic()
    try:
        assert asyncio.run(ras.ask("a-name:28028")) == ""
        assert time.monotonic() - began < 5
    finally:
        answers.set()


def test_of_an_answer_that_does_not_end_counts_what_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "SECONDS", 0.3)
    assert asked(breaks_off) == "Job summary"


def test_what_it_says_cannot_steer_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"SERVER PROTOCOL 2\nOK\nJob\x1b[2J\nsummary\n")
        await asyncio.Event().wait()

    monkeypatch.setattr(ras, "SECONDS", 0.3)
    assert asked(steers) == "Job\\x1b[2J\nsummary"


def test_no_answer_is_longer_than_it_may_be() -> None:
    assert len(asked(floods)) == ras.LONGEST


def test_another_rank_is_asked_where_one_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "GREETING_SECONDS", 0.1)
    servers = iter([says_nothing, speaks])

    async def one_of_two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next(servers)(reader, writer)

    assert asked(one_of_two) == ANSWER


def test_its_address_is_this_supervisors_own_unless_somebody_has_set_it() -> None:
    host, _, port = ras.settings({})[ras.ADDRESS].rpartition(":")
    assert ras.settings({})[ras.ADDRESS] == f"{host}:{port}", "the same for each rank and attempt"
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind((host, int(port)))
    assert ras.settings({"NCCL_RAS_ADDR": "localhost:28028"}) == {}
    assert ras.settings({"NCCL_RAS_ENABLE": "0"}) == {}


def test_ranks_are_told_where_to_listen_where_they_may_have_nccl(tmp_path: Path) -> None:
    async def address(**env: str) -> str | None:
        words = LastWords({Env.HEARTBEAT: str(tmp_path / "0"), **env})
        await words.finish()
        return words.ras_address

    own = ras.settings({})[ras.ADDRESS]
    assert asyncio.run(address(DDPJOB_BACKEND="nccl")) == own
    assert asyncio.run(address(DDPJOB_BACKEND="nccl", NCCL_RAS_ADDR="localhost:28028")) == "localhost:28028"
    assert asyncio.run(address(DDPJOB_BACKEND="nccl", NCCL_RAS_ENABLE="0")) is None
    assert asyncio.run(address(DDPJOB_BACKEND="gloo")) is None


def test_its_words_stand_in_the_log_and_beside_the_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(Env.RUN_DIR, str(tmp_path))
    monkeypatch.delenv(Env.CHECKPOINT_DIR, raising=False)

    async def collects(address: str) -> str:
        await stacks.collect_from_ras(address, 2)
        return ""

    asked(speaks, collects)
    file = tmp_path / "stalls" / "attempt-2" / "ras.txt"
    assert file.read_text() == f"{ANSWER}\n"
    assert capsys.readouterr().err.startswith(
        f"NCCL's RAS reports on all ranks:\n{ANSWER}\nwarning: saved the report"
    )
