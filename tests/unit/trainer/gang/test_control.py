"""The control port: who is answered, and how, over real connections."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from ddpjob_trainer.supervisor.gang.control import STRANGERS, control_port
from ddpjob_trainer.supervisor.gang.leader import Leader
from ddpjob_trainer.supervisor.gang.link import SILENT_SECONDS, LinkLostError, TcpLink, connect
from ddpjob_trainer.supervisor.gang.messages import (
    PROTOCOL,
    Announce,
    Elsewhere,
    Hello,
    History,
    Message,
    Past,
    Refused,
    Welcome,
    to_line,
)
from ddpjob_trainer.supervisor.gang.once import LONGEST, MOST, Once, shown
from ddpjob_trainer.supervisor.gang.rendezvous import Rendezvous
from ddpjob_trainer.supervisor.gang.settings import Settings

DEADLINE_SECONDS = 30
HELLO = Hello("uid", 1, 1, 1, 29502, "0.1.0")
ANOTHERS = Refused("this is another job's", for_good=False)
PAST = Past(restarts=3)


class Member:
    """As much of a follower as the port needs."""

    attempt = 4
    past = PAST


@asynccontextmanager
async def a_port(*, leads: bool = True, nodes: int = 2) -> AsyncIterator[str]:
    """The control port of rank 0's supervisor, or of another one that knows where that is; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings(
        uid="uid", node=0 if leads else 1, nodes=nodes, control_port=port, listen="127.0.0.1", peers=("job-0:29502",)
    )
    leader = Leader(settings) if leads else None
    member: Any = Member()
    async with asyncio.timeout(DEADLINE_SECONDS), control_port(settings, Rendezvous(settings), member, leader):
        yield f"127.0.0.1:{port}"
        if leader is not None:
            await leader.close()


async def answer(address: str, words: Message | bytes) -> Message | None:
    """What it answers to first words; None: it ends the connection."""
    link = await connect(address)
    try:
        link._writer.write(words if isinstance(words, bytes) else to_line(words))
        return await link.receive()
    except LinkLostError:
        return None
    finally:
        await link.close()


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("words", [replace(HELLO, uid="another"), Announce("another", 9, ":29502")])
def test_another_jobs_supervisor_learns_only_that(words: Message, *, leads: bool) -> None:
    async def test() -> None:
        async with a_port(leads=leads) as address:
            assert await answer(address, words) == ANOTHERS

    asyncio.run(test())


@pytest.mark.parametrize("leads", [True, False])
def test_a_newer_version_is_told_so_though_it_says_more(capsys: pytest.CaptureFixture[str], *, leads: bool) -> None:
    fields = json.loads(to_line(replace(HELLO, protocol=PROTOCOL + 1, release="9.0\x1b[2J")))
    newer = json.dumps(fields | {"gpus": [{"kind": "H200"}]}).encode() + b"\n"

    async def test() -> None:
        async with a_port(leads=leads) as address:
            for _ in range(3):
                refused = await answer(address, newer)
                assert isinstance(refused, Refused)
                assert refused.for_good
                assert refused.why.startswith(rf"its version 9.0\x1b[2J (protocol {PROTOCOL + 1}) cannot work with ")

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("warning: a supervisor that calls itself rank 1 was refused: its version 9.0\\x1b[2J")


def test_a_member_of_the_same_job_is_welcome() -> None:
    async def test() -> None:
        async with a_port() as address:
            assert isinstance(await answer(address, HELLO), Welcome)

    asyncio.run(test())


def test_who_is_refused_again_and_again_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with a_port() as address:
            assert isinstance(await answer(address, replace(HELLO, incarnation=2)), Welcome)
            for _ in range(3):
                old = Refused("a newer pod of rank 1 has been here", for_good=False)
                assert await answer(address, HELLO) == old
            assert isinstance(await answer(address, replace(HELLO, node=7)), Refused)

    asyncio.run(test())
    assert capsys.readouterr().err.splitlines() == [
        "warning: a supervisor that calls itself rank 1 was refused: a newer pod of rank 1 has been here",
        "warning: a supervisor that calls itself rank 7 was refused: there is no rank 7 among 2 nodes",
    ]


def test_another_supervisor_says_where_rank_0_is_and_what_it_knows() -> None:
    async def test() -> None:
        async with a_port(leads=False) as address:
            assert await answer(address, HELLO) == Elsewhere("job-0:29502", 0)
            assert await answer(address, Announce("uid", 2, ":29502")) == History(4, PAST)
            assert await answer(address, HELLO) == Elsewhere("127.0.0.1:29502", 2)

    asyncio.run(test())


@pytest.mark.parametrize("later", [False, True], ids=["as first words", "as a member"])
def test_whoever_is_not_understood_is_warned_of_once(capsys: pytest.CaptureFixture[str], *, later: bool) -> None:
    async def test() -> None:
        async with a_port() as address:
            for _ in range(3):
                link = await connect(address)
                if later:
                    link.send(HELLO)
                    assert isinstance(await link.receive(), Welcome)
                link._writer.write(b"GET /\x1b[2J HTTP/1.1\r\n")
                with pytest.raises(LinkLostError):
                    await link.receive()
                await link.close()

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert re.match(r"warning: 127\.0\.0\.1 talks to the control port, and is not understood: b'GET /\\x1b", said)


def test_strangers_leave_room_and_those_that_find_none_are_sent_away() -> None:
    async def test() -> None:
        async with a_port(nodes=3) as address:
            strangers = [await connect(address) for _ in range(2 * 3 + STRANGERS)]
            assert await answer(address, HELLO) is None
            for stranger in strangers[:2]:
                await stranger.close()
            assert isinstance(await until_there_is_room(address), Welcome)
            await asyncio.gather(*(stranger.close() for stranger in strangers))

    asyncio.run(test())


async def until_there_is_room(address: str) -> Message:
    while (said := await answer(address, HELLO)) is None:
        pass
    return said


def test_a_member_that_comes_a_second_time_takes_the_place_of_its_first_connection() -> None:
    async def test() -> None:
        async with a_port() as address:
            links: list[TcpLink] = []
            for _ in range(2):
                links.append(await connect(address))
                links[-1].send(HELLO)
                assert isinstance(await links[-1].receive(), Welcome)
            async with asyncio.timeout(SILENT_SECONDS / 2):
                with pytest.raises(LinkLostError):
                    await links[0].receive()
            await asyncio.gather(*(link.close() for link in links))

    asyncio.run(test())


def test_no_more_than_so_many_things_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    once = Once()
    for number in range(2 * MOST):
        once.warn(f"thing {number}")
        once.warn(f"thing {number} again", about=f"thing {number}")
    assert len(capsys.readouterr().err.splitlines()) == MOST


def test_what_others_say_is_shown_without_what_a_terminal_obeys() -> None:
    assert shown("0.1.0 ü\x1b[2J\r\n\u202e") == "0.1.0 ü\\x1b[2J\\r\\n\\u202e"
    assert len(shown("x" * 10_000)) == LONGEST
