"""How a supervisor finds rank 0's, over real connections to others that are made up."""

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from ddpjob_rank.errors import PeerLostError
from ddpjob_supervisor.gang.addresses import address_of
from ddpjob_supervisor.gang.link import LinkLostError, TcpLink, connect
from ddpjob_supervisor.gang.messages import (
    Announce,
    Elsewhere,
    Hello,
    History,
    Message,
    OtherVersionError,
    Ping,
    Refused,
    UnreadableError,
    Welcome,
    to_line,
)
from ddpjob_supervisor.gang.rendezvous import LATEST_SECONDS, SOONEST_SECONDS, Rendezvous
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.preflight.findings import PreflightError
from msgspec.structs import replace

from tests.support import virtual_time
from tests.support.ports import hold_port
from tests.support.waiting import patience

HELLO = Hello("uid", 1, 1, 1, 29502, "0.1.0")
SECRET = b"a secret of this job's supervisors"
GENEROUS_SECONDS = 20


@dataclass
class Other:
    """Another supervisor: what it has heard, and what it answers to first words."""

    answers: Callable[[Message], Message | None]
    heard: list[Message] = field(default_factory=list)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = TcpLink(reader, writer)
        with suppress(LinkLostError, UnreadableError):
            match await link.receive():
                case Hello(nonce=nonce) | Announce(nonce=nonce):
                    words = await link.ask_for_proof(nonce, SECRET)
                    assert isinstance(words, Hello | Announce)
                    assert words.at == link.there
                    self.heard.append(replace(words, nonce="", at=""))
            answer = self.answers(self.heard[-1])
            if answer is not None:
                says_where = isinstance(answer, Welcome) and not answer.at
                link.send(replace(answer, at=link.here) if says_where else answer)
                await link.receive()
        await link.close()


@asynccontextmanager
async def listening(answer: Message | None, host: str = "127.0.0.1") -> AsyncIterator[Other]:
    other = Other(lambda _: answer)
    server = await asyncio.start_server(other.serve, host, 0)
    other.address = address_of(host, server.sockets[0].getsockname()[1])
    try:
        yield other
    finally:
        server.close()


def rendezvous(*peers: str, node: int = 1) -> Rendezvous:
    return Rendezvous(Settings(uid="uid", node=node, nodes=4, master_addr="127.0.0.1", peers=peers, secret=SECRET))


def nobody() -> str:
    """An address at which nobody listens, nor will."""
    return address_of("127.0.0.1", hold_port())


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(test, patience(GENEROUS_SECONDS)))


def test_who_says_welcome_is_followed() -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0")) as coordinator:
            link = await rendezvous(coordinator.address).reach(HELLO)
            (hello,) = coordinator.heard
            assert isinstance(hello, Hello)
            assert (hello.uid, hello.node, hello.incarnation) == ("uid", 1, 1)
            await link.close()

    run(test())


def test_it_is_tried_again_until_somebody_answers() -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0")) as coordinator:
            link = await rendezvous(nobody(), coordinator.address).reach(HELLO)
            assert len(coordinator.heard) == 1
            await link.close()

    run(test())


@pytest.mark.parametrize("answer", [None, Ping(), Refused("this supervisor belongs to another job", for_good=False)])
def test_who_says_anything_else_is_not_followed_and_the_next_is_tried(
    answer: Message | None, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with listening(answer) as stranger, listening(Welcome("0.1.0")) as coordinator:
            link = await rendezvous(stranger.address, coordinator.address).reach(HELLO)
            assert len(coordinator.heard) == 1
            await link.close()
            if isinstance(answer, Refused):
                refusal = (
                    f"warning: {stranger.address} refuses this supervisor: this supervisor belongs to another job\n"
                )
                assert refusal in capsys.readouterr().err

    run(test())


def test_nobody_without_the_secret_is_believed(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither that it is rank 0's, nor that to come again is in vain."""

    async def test() -> None:
        for words in (
            Welcome("0.1.0", incarnation=99),
            Refused("never\x1b[2J", for_good=True),
            Elsewhere("10.0.0.9:1"),
        ):

            async def stranger(_: asyncio.StreamReader, writer: asyncio.StreamWriter, words: Message = words) -> None:
                writer.write(to_line(words))
                writer.close()

            server = await asyncio.start_server(stranger, "127.0.0.1", 0)
            async with server, listening(Welcome("0.1.0")) as coordinator:
                its_address = address_of("127.0.0.1", server.sockets[0].getsockname()[1])
                known = rendezvous(its_address, coordinator.address)
                link = await known.reach(HELLO)
                assert known.where() == Elsewhere(its_address), "it has heard of no other rank 0"
                await link.close()

    run(test())
    assert capsys.readouterr().err == ""


def test_a_rank_0_that_is_not_where_it_was_found_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """As behind a Service's address, or behind whoever passes its words on from this host's own address."""

    async def test() -> None:
        elsewhere = Welcome("0.1.0", incarnation=9, at="10.0.0.9:29502")
        async with listening(elsewhere) as relayed, listening(Welcome("0.1.0")) as coordinator:
            known = rendezvous(relayed.address, coordinator.address)
            link = await known.reach(HELLO)
            assert (known.where(), len(coordinator.heard)) == (Elsewhere(relayed.address), 1)
            assert known.master_addr == "127.0.0.1"
            await link.close()
            said = (
                f"it gives its address as 10.0.0.9:29502, but is seen at {relayed.address}: a relay, a proxy or "
                "NAT is"
            )
            assert f"warning: ignored the address {relayed.address}: {said}" in capsys.readouterr().err

    run(test())


def test_who_has_another_secret_than_all_others_gives_up_so_that_the_gang_starts_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ddpjob_supervisor.gang.rendezvous.ANOTHER_SECRET_SECONDS", 0.2)

    async def test() -> None:
        async with listening(Welcome("0.1.0")) as coordinator:
            peers, file = (coordinator.address, nobody()), Path("/tmp/file")
            settings = Settings(node=1, nodes=4, peers=peers, secret=b"another", secret_file=file)
            told = r"refuse this one: .* need the same secret; this one's secret is in /tmp/file$"
            with pytest.raises(PeerLostError, match=told):
                await Rendezvous(settings).reach(HELLO)

    run(test())


def test_another_version_is_a_clear_error_and_not_tried_again() -> None:
    async def test() -> None:
        why = "its version 0.1 cannot work with rank 0's 0.2: all nodes must run the same image"
        async with listening(Refused(why, for_good=True)) as coordinator:
            with pytest.raises(
                OtherVersionError, match=r"^127\.0\.0\.1:\d+ refuses this supervisor: its version 0\.1 cannot"
            ):
                await rendezvous(coordinator.address).reach(HELLO)
            assert len(coordinator.heard) == 1

    run(test())


@pytest.mark.parametrize(
    ("preflight", "peers", "ends"),
    [("Fast", 1, True), ("Disabled", 1, False), ("Fast", 2, False)],
    ids=["a gang that gathers", "without preflight", "a pod that was replaced"],
)
def test_a_coordinator_whose_address_swallows_all_is_cut_off(
    preflight: str, peers: int, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    async def swallowed(*_: object) -> TcpLink:
        raise TimeoutError("no answer within 2 s")

    async def test() -> None:
        known = Rendezvous(
            Settings(uid="uid", node=1, nodes=4, peers=("job-0:29502",) * peers, preflight=preflight, secret=SECRET)
        )
        with pytest.raises(PreflightError if ends else TimeoutError) as caught:
            await asyncio.wait_for(known.reach(HELLO), 4.0)
        if isinstance(caught.value, PreflightError):
            assert (caught.value.nodes, caught.value.exit_code) == ((0, 1), 201)
            assert "job-0:29502 is cut off from this node (no answer within 2 s): a NetworkPolicy" in str(
                caught.value
            )

    monkeypatch.setattr("ddpjob_supervisor.gang.rendezvous.connect", swallowed)
    monkeypatch.setattr("ddpjob_supervisor.gang.rendezvous.MUTE_SECONDS", 2.0)
    virtual_time.run(test())


@pytest.mark.parametrize(("preflight", "warned"), [("Fast", True), ("Disabled", False)])
def test_a_clock_that_is_off_the_coordinators_is_told_of_in_the_preflight(
    preflight: str, capsys: pytest.CaptureFixture[str], *, warned: bool
) -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0", heard=time.time() + 1000)) as coordinator:
            settings = Settings(
                uid="uid", node=1, nodes=4, peers=(coordinator.address,), preflight=preflight, secret=SECRET
            )
            link = await Rendezvous(settings).reach(HELLO)
            await link.close()

    run(test())
    assert ("preflight: the clock of node 1 is" in capsys.readouterr().err) == warned


def test_who_knows_the_coordinator_sends_there() -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0")) as coordinator, listening(Elsewhere(coordinator.address)) as peer:
            link = await rendezvous(peer.address).reach(HELLO)
            assert (len(peer.heard), len(coordinator.heard)) == (1, 1)
            await link.close()

    run(test())


def test_it_sends_others_where_it_went_itself() -> None:
    assert rendezvous("job-0:29502").where() == Elsewhere("job-0:29502")
    assert rendezvous().where() is None


def test_a_new_rank_0_is_followed_and_the_others_are_told() -> None:
    async def test() -> None:
        async with listening(History(3)) as second, listening(History(3)) as third:
            known = rendezvous("127.0.0.1:1")
            known.members = {"0": nobody(), "1": nobody(), "2": second.address, "3": third.address}
            await known.announced(Announce("uid", 2, ":29502"), "10.0.0.7")
            assert known.where() == Elsewhere("10.0.0.7:29502", 2)
            assert known.master_addr == "10.0.0.7"
            assert second.heard == third.heard == [Announce("uid", 2, "10.0.0.7:29502")]

    run(test())


def test_who_is_told_by_another_passes_it_on_to_nobody() -> None:
    async def test() -> None:
        async with listening(History(3)) as third:
            known = rendezvous("127.0.0.1:1")
            known.members = {"3": third.address}
            await known.announced(Announce("uid", 2, "10.0.0.7:29502"), "10.0.0.3")
            assert known.where() == Elsewhere("10.0.0.7:29502", 2)
            assert third.heard == []

    run(test())


def test_a_member_that_is_gone_keeps_nobody_from_being_told() -> None:
    async def test() -> None:
        async with listening(History(3)) as third:
            known = rendezvous("127.0.0.1:1")
            known.members = {"2": nobody(), "3": third.address}
            await known.announced(Announce("uid", 2, ":29502"), "10.0.0.7")
            assert third.heard == [Announce("uid", 2, "10.0.0.7:29502")]

    run(test())


@pytest.mark.parametrize(
    ("announce", "told"),
    [(Announce("another", 9, ":29502"), 1), (Announce("uid", 2, ":29503"), 2), (Announce("uid", 1, ":29503"), 1)],
    ids=["of another job", "the same one again", "an older one"],
)
def test_another_job_and_an_older_rank_0_change_nothing(announce: Announce, told: int) -> None:
    async def test() -> None:
        async with listening(History(3)) as third:
            known = rendezvous("127.0.0.1:1")
            known.members = {"3": third.address}
            await known.announced(Announce("uid", 2, ":29502"), "10.0.0.7")
            await known.announced(announce, "10.0.0.9")
            assert known.where() == Elsewhere("10.0.0.7:29502", 2)
            assert len(third.heard) == told

    run(test())


def test_the_connection_to_the_former_coordinator_ends() -> None:
    async def test() -> None:
        renewed = Welcome("0.1.0", incarnation=2)
        async with listening(Welcome("0.1.0")) as former, listening(renewed) as coordinator:
            known = rendezvous(former.address)
            link = await known.reach(HELLO)
            await known.announced(Announce("uid", 2, coordinator.address), "127.0.0.1")
            with pytest.raises(LinkLostError):
                await link.receive()
            again = await known.reach(HELLO)
            assert len(coordinator.heard) == 1
            await again.close()

    run(test())


def test_the_connection_to_a_new_rank_0_stays_where_it_announces_itself_after_it_was_found() -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0", incarnation=2)) as coordinator, listening(History(3)) as third:
            known = rendezvous(coordinator.address)
            link = await known.reach(HELLO)
            known.members = {"3": third.address}
            port = coordinator.address.rpartition(":")[2]
            await known.announced(Announce("uid", 2, f":{port}"), "127.0.0.1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(link.receive(), 0.1)
            assert third.heard == [Announce("uid", 2, coordinator.address)], (
                "who has not found it is told all the same"
            )
            await link.close()

    run(test())


def test_where_a_newer_rank_0_was_found_its_ranks_are_too() -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0", incarnation=3)) as coordinator:
            known = rendezvous(coordinator.address)
            await known.announced(Announce("uid", 2, f"127.0.0.2:{nobody().rpartition(':')[2]}"), "10.0.0.3")
            assert known.master_addr == "127.0.0.2"
            await (await known.reach(HELLO)).close()
            assert known.master_addr == "127.0.0.1"
            assert known.where() == Elsewhere(coordinator.address, 3)

    run(test())


def test_a_search_that_goes_on_finds_a_new_rank_0() -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0", incarnation=2)) as coordinator:
            known = rendezvous(nobody())
            search = asyncio.create_task(known.reach(HELLO))
            await known.announced(Announce("uid", 2, coordinator.address), "127.0.0.1")
            await (await search).close()
            assert len(coordinator.heard) == 1

    run(test())


@pytest.mark.parametrize(
    ("host", "address"),
    [("10.0.0.7", "10.0.0.7:29502"), ("job-0.job", "job-0.job:29502"), ("fd00::1", "[fd00::1]:29502")],
)
def test_an_address_has_brackets_where_its_host_has_colons(host: str, address: str) -> None:
    assert address_of(host, 29502) == address

    async def test() -> None:
        known = rendezvous("127.0.0.1:1")
        await known.announced(Announce("uid", 2, address), "10.0.0.3")
        assert known.where() == Elsewhere(address, 2)
        assert known.master_addr == host, "for the ranks, which want no brackets"

    run(test())


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_version_6_is_reached_and_told_as_it_is() -> None:
    async def test() -> None:
        try:
            async with listening(Welcome("0.1.0"), "::1") as coordinator:
                link = await connect(coordinator.address)
                assert link.peer_host == "::1"
                assert await link.say_first(HELLO, SECRET) == Welcome("0.1.0", at=coordinator.address)
                await link.close()
        except OSError:
            pytest.skip("no IPv6 here")

    run(test())


def test_what_others_say_never_replaces_a_rank_0_that_has_announced_itself() -> None:
    async def test() -> None:
        welcome = Welcome("0.1.0", incarnation=2)
        async with listening(welcome) as coordinator, listening(Elsewhere("127.0.0.1:1", 2)) as peer:
            known = rendezvous(peer.address)
            await known.announced(Announce("uid", 2, coordinator.address), "127.0.0.1")
            coordinator.answers = lambda _: None if len(coordinator.heard) == 1 else welcome
            link = await known.reach(HELLO)
            assert len(peer.heard) == 1
            assert known.where() == Elsewhere(coordinator.address, 2)
            await link.close()

    run(test())


def test_a_former_pod_of_rank_0_is_not_followed_even_if_it_answers_first(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        welcome = Welcome("0.1.0", incarnation=3)
        async with listening(Welcome("0.1.0", incarnation=2)) as former, listening(welcome) as coordinator:
            known = rendezvous(former.address)
            await known.announced(Announce("uid", 3, coordinator.address), "127.0.0.1")
            coordinator.answers = lambda _: None if len(coordinator.heard) == 1 else welcome
            link = await known.reach(HELLO)
            assert (len(former.heard), len(coordinator.heard)) == (1, 2)
            assert known.where() == Elsewhere(coordinator.address, 3)
            assert f"ignored a former pod of rank 0 at {former.address}" in capsys.readouterr().err
            await link.close()

    run(test())


def test_who_has_heard_of_a_newer_rank_0_is_believed() -> None:
    async def test() -> None:
        welcome = Welcome("0.1.0", incarnation=3)
        async with listening(welcome) as coordinator, listening(Elsewhere(coordinator.address, 3)) as peer:
            known = rendezvous(peer.address)
            await known.announced(Announce("uid", 2, nobody()), "127.0.0.1")
            link = await known.reach(HELLO)
            assert known.where() == Elsewhere(coordinator.address, 3)
            assert known.master_addr == "127.0.0.1"
            await link.close()

    run(test())


@pytest.mark.parametrize("address", ["", "nowhere", "host:", ":29502", "host:port", "host:99999"])
def test_what_is_no_address_leads_nobody_astray(address: str) -> None:
    async def test() -> None:
        async with listening(Welcome("0.1.0")) as coordinator, listening(Elsewhere(address, 9)) as peer:
            known = rendezvous(peer.address, coordinator.address)
            link = await known.reach(HELLO)
            assert known.where() == Elsewhere(peer.address)
            await link.close()

    run(test())


@pytest.mark.parametrize("address", ["", "nowhere", "host:port", ":", ":99999"])
def test_a_rank_0_that_announces_itself_nowhere_changes_nothing(address: str) -> None:
    async def test() -> None:
        known = rendezvous("127.0.0.1:1")
        await known.announced(Announce("uid", 3, address), "10.0.0.3")
        assert known.where() == Elsewhere("127.0.0.1:1")
        await known.announced(Announce("uid", 2, ":29502"), "10.0.0.7")
        assert known.where() == Elsewhere("10.0.0.7:29502", 2)

    run(test())


def test_who_waits_for_long_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("ddpjob_supervisor.gang.rendezvous.PATIENT_SECONDS", 0.0)

    async def test() -> None:
        gone = nobody()
        async with listening(Welcome("0.1.0")) as coordinator:
            link = await rendezvous(gone, coordinator.address).reach(HELLO)
            await link.close()
        said = capsys.readouterr().err.splitlines()
        assert said[0] == f"warning: waiting for rank 0's supervisor at {gone}: Connection refused"

    run(test())


def test_who_is_not_there_is_tried_less_and_less_often_each_address_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[tuple[float, str]] = []

    async def refuse(address: str, _: object) -> None:
        tries.append((asyncio.get_running_loop().time(), address))
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr("ddpjob_supervisor.gang.rendezvous.connect", refuse)
    peers = ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
    lonely = Rendezvous(Settings(uid="uid", node=1, nodes=4, peers=peers, joining_seconds=30.0))
    with pytest.raises(PeerLostError):
        virtual_time.run(lonely.reach(HELLO))
    assert [address for _, address in tries] == [peers[turn % 3] for turn in range(len(tries))]
    pauses = [after - before for (before, _), (after, _) in pairwise(tries)]
    expected = [min(SOONEST_SECONDS * 1.5**turn, LATEST_SECONDS) for turn in range(len(pauses))]
    assert pauses == pytest.approx(expected, abs=0.02)
    assert len(pauses) > 30


def test_without_an_operator_the_coordinator_is_not_waited_for_for_ever() -> None:
    async def test() -> None:
        address = nobody()
        lonely = Rendezvous(Settings(uid="uid", node=1, nodes=4, peers=(address,), joining_seconds=0.1))
        with pytest.raises(
            PeerLostError, match=f"waited 0 s for rank 0's supervisor at {address}: Connection refused"
        ):
            await lonely.reach(HELLO)

    run(test())
