"""The control port: who is answered, and how, over real connections."""

import asyncio
import re
import select
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import pytest
from ddpjob_rank.machine import listening
from ddpjob_rank.machine.listening import SILENT
from ddpjob_supervisor.gang import control, link
from ddpjob_supervisor.gang.control import STRANGERS, control_port
from ddpjob_supervisor.gang.coordinator_service import CoordinatorService
from ddpjob_supervisor.gang.link import FIRST_BYTES, SILENT_SECONDS, LinkLostError, TcpLink, connect
from ddpjob_supervisor.gang.messages import (
    PROTOCOL,
    Announce,
    Challenge,
    Elsewhere,
    Hello,
    History,
    Message,
    Past,
    Refused,
    Welcome,
    from_line,
    to_line,
)
from ddpjob_supervisor.gang.once import LONGEST, MOST, Once, shown
from ddpjob_supervisor.gang.proof import CALLER, Seals, UnprovedError
from ddpjob_supervisor.gang.rendezvous import Rendezvous
from ddpjob_supervisor.gang.settings import Settings
from msgspec.structs import replace

from tests.support.ports import hold_port
from tests.support.relay import relay
from tests.support.waiting import patience

DEADLINE_SECONDS = 30
FLOOD = 400
"""Connections of a second or less."""
HELLO = Hello("uid", 1, 1, 1, 29502, "0.1.0")
ANOTHERS = Refused("this supervisor belongs to another job", for_good=False)
PAST = Past(restarts=3)
SECRET = b"a secret of this job's supervisors"


class Member:
    """As much of a follower as the port needs."""

    attempt = 4
    past = PAST


@asynccontextmanager
async def a_port(*, leads: bool = True, nodes: int = 2) -> AsyncIterator[str]:
    """The control port of rank 0's supervisor, or of another one that knows where that is; its address."""
    port = hold_port()
    settings = Settings(
        uid="uid",
        node=0 if leads else 1,
        nodes=nodes,
        control_port=port,
        listen="127.0.0.1",
        peers=("job-0:29502",),
        secret=SECRET,
    )
    service = CoordinatorService(settings) if leads else None
    member: Any = Member()
    async with (
        asyncio.timeout(patience(DEADLINE_SECONDS)),
        control_port(settings, Rendezvous(settings), member, service),
    ):
        yield f"127.0.0.1:{port}"
        if service is not None:
            await service.close()


async def answer(address: str, words: Hello | Announce, secret: bytes = SECRET) -> Message | None:
    """What it answers to first words that are proved by a secret; None: it does not."""
    link = await connect(address)
    try:
        return await link.say_first(words, secret)
    except (LinkLostError, UnprovedError):
        return None
    finally:
        await link.close()


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("words", [replace(HELLO, uid="another"), Announce("another", 9, ":29502")])
def test_another_jobs_supervisor_learns_only_that(words: Hello | Announce, *, leads: bool) -> None:
    async def test() -> None:
        async with a_port(leads=leads) as address:
            assert await answer(address, words) == ANOTHERS

    asyncio.run(test())


@pytest.mark.parametrize("leads", [True, False])
def test_another_version_is_told_so(capsys: pytest.CaptureFixture[str], *, leads: bool) -> None:
    newer = replace(HELLO, protocol=PROTOCOL + 1, release="9.0\x1b[2J")

    async def test() -> None:
        async with a_port(leads=leads) as address:
            for _ in range(3):
                refused = await answer(address, newer)
                assert isinstance(refused, Refused)
                assert refused.for_good
                assert refused.why.startswith(rf"its version 9.0\x1b[2J (protocol {PROTOCOL + 1}) cannot work with ")

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("warning: a supervisor that calls itself node 1 was refused: its version 9.0\\x1b[2J")


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
                old = Refused("a newer pod of node 1 has joined before", for_good=False)
                assert await answer(address, HELLO) == old
            assert isinstance(await answer(address, replace(HELLO, node=7)), Refused)

    asyncio.run(test())
    assert capsys.readouterr().err.splitlines() == [
        "warning: a supervisor that calls itself node 1 was refused: a newer pod of node 1 has joined before",
        "warning: a supervisor that calls itself node 7 was refused: there is no node 7 among 2 nodes",
    ]


def test_another_supervisor_says_where_rank_0_is_and_what_it_knows() -> None:
    async def test() -> None:
        async with a_port(leads=False) as address:
            assert await answer(address, HELLO) == Elsewhere("job-0:29502", 0)
            assert await answer(address, Announce("uid", 2, ":29502")) == History(4, PAST)
            assert await answer(address, HELLO) == Elsewhere("127.0.0.1:29502", 2)

    asyncio.run(test())


def test_who_announces_itself_to_rank_0_is_refused_and_rank_0_goes_on() -> None:
    async def test() -> None:
        async with a_port() as address:
            refused = Refused("its first message is not valid here", for_good=False)
            assert await answer(address, Announce("uid", 2, ":29502")) == refused
            assert isinstance(await answer(address, HELLO), Welcome)

    asyncio.run(test())


@pytest.mark.parametrize("later", [False, True], ids=["as first words", "as a member"])
def test_whoever_is_not_understood_is_warned_of_once(capsys: pytest.CaptureFixture[str], *, later: bool) -> None:
    async def test() -> None:
        async with a_port() as address:
            for _ in range(3):
                link = await connect(address)
                if later:
                    assert isinstance(await link.say_first(HELLO, SECRET), Welcome)
                words = b"GET /\x1b[2J HTTP/1.1\r\n"
                link._writer.write(link._ours.sealed(words) if link._ours else words)
                with pytest.raises(LinkLostError):
                    await link.receive()
                await link.close()

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert re.match(
        r"warning: closed a connection to the control port from 127\.0\.0\.1, because its message is invalid: "
        r"b'GET /\\x1b",
        said,
    )


def test_who_is_not_understood_after_proof_is_warned_of_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Its line has no seal: somebody has put it between those of a supervisor."""

    async def test() -> None:
        async with a_port() as address:
            link = await connect(address)
            assert isinstance(await link.say_first(HELLO, SECRET), Welcome)
            link._writer.write(to_line(HELLO))
            with pytest.raises(LinkLostError):
                await link.receive()
            await link.close()

    asyncio.run(test())
    assert (
        "refused a connection to the control port from 127.0.0.1: it does not prove that it belongs to this job"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("words", [HELLO, Announce("uid", 9, ":29502")], ids=["Hello", "Announce"])
def test_who_knows_the_uid_and_not_the_secret_is_told_nothing_and_named(
    words: Hello | Announce, capsys: pytest.CaptureFixture[str], *, leads: bool
) -> None:
    async def test() -> None:
        async with a_port(leads=leads) as address:
            for _ in range(3):
                assert await answer(address, words, b"what a stranger thinks up" * 2) is None
            assert await answer(address, words, b"") is None

    asyncio.run(test())
    assert capsys.readouterr().err.splitlines() == [
        (
            "warning: refused a connection to the control port from 127.0.0.1: it does not prove that it "
            "belongs to this job"
        )
    ]


def test_a_stranger_in_a_members_place_does_not_push_it_out() -> None:
    async def test() -> None:
        async with a_port() as address:
            member = await connect(address)
            assert isinstance(await member.say_first(HELLO, SECRET), Welcome)
            assert await answer(address, replace(HELLO, incarnation=99), b"") is None
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(member.receive(), 0.1)
            assert isinstance(await answer(address, HELLO), Welcome), "99 was never here"
            await member.close()

    asyncio.run(test())


@pytest.mark.parametrize("trick", ["replayed", "reflected", "changed", "in another order"])
def test_what_was_proved_once_proves_nothing_elsewhere(trick: str) -> None:
    async def test() -> None:
        async with a_port() as address:
            reader, writer = await asyncio.open_connection(*address.split(":"))
            first = replace(HELLO, nonce="0" * 32)
            writer.write(to_line(first))
            challenge = from_line(await reader.readline())
            assert isinstance(challenge, Challenge)
            theirs = "1" * 32 if trick == "replayed" else challenge.nonce
            ours = Seals(SECRET, "listener" if trick == "reflected" else CALLER, first.nonce, theirs)
            if trick == "in another order":
                ours.sealed(b"")
            line = ours.sealed(to_line(first))
            writer.write(line.replace(b'"node":1', b'"node":0') if trick == "changed" else line)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize("host", ["127.0.0.9", "127.0.0.1"], ids=["from its own host", "from the caller's"])
@pytest.mark.parametrize(
    ("words", "leads"),
    [(HELLO, True), (HELLO, False), (Announce("uid", 2, ":29502"), False)],
    ids=["a member's", "a member's, to another one", "a new rank 0's"],
)
def test_who_passes_words_on_without_the_secret_is_not_taken_for_the_one_who_says_them(
    words: Hello | Announce, host: str, capsys: pytest.CaptureFixture[str], *, leads: bool
) -> None:
    async def test() -> None:
        async with a_port(leads=leads) as address, relay(address, host) as between:
            for _ in range(2):
                refused = await answer(between, words)
                assert isinstance(refused, Refused)
                assert not refused.for_good, "who is at fault may be gone the next time"
                assert refused.why.startswith("a relay, a proxy or NAT is between the supervisors")
            if not leads:
                assert await answer(address, HELLO) == Elsewhere("job-0:29502", 0), "no rank 0 has announced itself"

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert re.match(
        r"warning: a supervisor was refused at the control port: it gives its address as 127\.0\.0\.1:\d+,"
        rf" but is seen at {re.escape(host)}:\d+: a relay, ",
        said,
    )


@pytest.mark.parametrize(
    ("words", "seconds", "told"),
    [
        (b"x" * (FIRST_BYTES + 2), DEADLINE_SECONDS, f"a message of more than {FIRST_BYTES} bytes is not allowed"),
        (to_line(Welcome("0.1.0")), DEADLINE_SECONDS, "its first message is not valid here"),
        (to_line(HELLO), 0.1, "it has not proved within 0 s that it belongs to this job"),
    ],
    ids=["too much", "other words", "no proof"],
)
def test_without_proof_there_is_little_room_and_time(
    words: bytes, seconds: float, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(control, "PROOF_SECONDS", seconds)

    async def test() -> None:
        async with a_port() as address:
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(words)
            await reader.read()
            writer.close()

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert "the control port from 127.0.0.1" in said
    assert said.endswith(told)


def test_who_says_nothing_is_let_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "SILENT_SECONDS", 0.1)

    async def test() -> None:
        async with a_port() as address:
            reader, writer = await asyncio.open_connection(*address.split(":"))
            assert await reader.read() == b""
            writer.close()

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize(
    ("many", "speaks"), [(2 * (SILENT + 3), False), (2 * (STRANGERS + 3), True)], ids=["silent", "with first words"]
)
def test_a_flood_pushes_out_nobody_but_itself_and_is_named(
    many: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, speaks: bool
) -> None:
    monkeypatch.setattr(control, "PROOF_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(link, "CONNECT_SECONDS", DEADLINE_SECONDS)

    async def test() -> None:
        async with a_port(nodes=3) as address, AsyncExitStack() as ends:

            async def comes(source: str | None = None) -> TcpLink:
                link = await connect(address, source)
                ends.push_async_callback(link.close)
                return link

            early = await comes("127.0.0.9")
            flood = [await comes() for _ in range(many)]
            for one in flood if speaks else ():
                one.send(HELLO)
            assert isinstance(await answer(address, HELLO), Welcome), "it comes when there is no room"
            assert isinstance(await early.say_first(replace(HELLO, node=2), SECRET), Welcome), "it came before"
            with pytest.raises(LinkLostError):
                await flood[0].receive()

    asyncio.run(test())
    (said,) = capsys.readouterr().err.splitlines()
    assert (
        said == "warning: too many connections to the control port are not yet authenticated:"
        " closing the one from 127.0.0.1"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_a_flood_of_the_silent_from_many_hosts_lets_pass_who_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host has one connection, so the oldest goes, whoever it is: but not one that has begun to prove itself."""
    monkeypatch.setattr(control, "SILENT", 0)
    words = replace(HELLO, nonce="0" * 32)

    async def test() -> None:
        async with a_port() as address, AsyncExitStack() as ends:
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(to_line(words))
            challenge = from_line(await reader.readline())
            assert isinstance(challenge, Challenge)
            for number in range(100):
                link = await connect(address, f"127.0.1.{1 + number}")
                ends.push_async_callback(link.close)
            host, port = writer.get_extra_info("sockname")
            proved = replace(words, at=f"{host}:{port}")
            writer.write(Seals(SECRET, CALLER, words.nonce, challenge.nonce).sealed(to_line(proved)))
            assert b'"kind":"Welcome"' in await reader.readline()
            writer.close()

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_who_comes_after_a_flood_while_the_port_is_too_busy_to_look_need_not_come_again() -> None:
    async def test() -> None:
        async with a_port() as address:
            host, port = address.split(":")
            with ExitStack() as ends:
                for _ in range(FLOOD + 1):  # Nothing is taken meanwhile: this very loop would have to do it.
                    there = ends.enter_context(socket.socket())
                    there.setblocking(False)
                    there.bind(("127.0.0.9", 0))
                    there.connect_ex((host, int(port)))
                connected = select.poll()  # select() refuses high descriptors.
                connected.register(there, select.POLLOUT)
                assert connected.poll(1000 * SILENT_SECONDS)

    asyncio.run(test())


def test_a_member_that_comes_a_second_time_takes_the_place_of_its_first_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "SILENT_SECONDS", 1000)  # The first is not lost by its silence.

    async def test() -> None:
        async with a_port() as address:
            links: list[TcpLink] = []
            for _ in range(2):
                links.append(await connect(address))
                assert isinstance(await links[-1].say_first(HELLO, SECRET), Welcome)
            with pytest.raises(LinkLostError):
                await links[0].receive()
            await asyncio.gather(*(one.close() for one in links))

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
