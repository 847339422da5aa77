"""How supervisors find each other: through rank 0's address or, when that is a new one, through those that live."""

import asyncio
import contextlib
import time
from dataclasses import replace
from importlib.metadata import version

from ddpjob_trainer.console import say, warn
from ddpjob_trainer.supervisor.preflight.clocks import clocks, skew
from ddpjob_trainer.supervisor.preflight.findings import tell

from .link import Link, LinkLostError, TcpLink, address_of, connect
from .messages import Announce, Elsewhere, Hello, Message, OtherVersionError, Refused, UnreadableError, Welcome
from .settings import Settings

RELEASE = version("ddpjob")

SOONEST_SECONDS, LATEST_SECONDS = 0.05, 1.0
"""Between two tries to reach the leader; each wait is longer than the one before."""

PATIENT_SECONDS = 5.0
"""Waiting for so long is nothing to speak of."""


class Rendezvous:
    """What a supervisor knows of where the others are."""

    def __init__(self, settings: Settings) -> None:
        self.master_addr = settings.master_addr
        """Where rank 0's ranks are."""
        self.members: dict[str, str] = {}
        """Address of each supervisor by node rank, as the leader said it last."""
        self._settings = settings
        self._leader = ""
        """The leader's address, where it is not the one that was known from the start."""
        self._incarnation = 0
        self._link: Link | None = None
        self._told: set[str] = set()

    async def reach(self, hello: Hello) -> Link:
        """A connection to the leader, which has said welcome. Tries for ever: how long is too long others decide.

        Raises:
            OtherVersionError: The leader's version cannot work with this one.
        """
        loop = asyncio.get_running_loop()
        began, pause, turn = loop.time(), SOONEST_SECONDS, 0
        while True:
            known = [self._leader, *self._settings.peers] if self._leader else self._settings.peers
            address = known[turn % len(known)]
            turn += 1
            leader = self._leader
            link = await self._try(address, hello)
            if self._leader != leader:
                turn = 0
            if link is not None:
                self._link = link
                return link
            if loop.time() - began > PATIENT_SECONDS:
                self._say_once(f"waiting for rank 0's supervisor at {address}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LATEST_SECONDS)

    async def _try(self, address: str, hello: Hello) -> TcpLink | None:
        try:
            link = await connect(address, self._settings.listen)
        except OSError:
            return None
        try:
            hello = replace(hello, sent=time.time())
            link.send(hello)
            answer = await link.receive()
        except (LinkLostError, UnreadableError):
            await link.close()
            return None
        if isinstance(answer, Welcome):
            tell(clocks(skew(hello.sent, answer.heard, answer.heard, time.time()), hello.node))
            return link
        await link.close()
        if isinstance(answer, Refused):
            if answer.for_good:
                raise OtherVersionError(f"rank 0's supervisor at {address} refuses this one: {answer.why}")
            self._say_once(f"{address} refuses this supervisor: {answer.why}")
        if isinstance(answer, Elsewhere):
            self._leader = answer.address
        return None

    def where(self) -> Elsewhere | None:
        """What to answer somebody who takes this one for the leader."""
        address = self._leader or next(iter(self._settings.peers), "")
        return Elsewhere(address) if address else None

    async def announced(self, announce: Announce, host: str) -> None:
        """Rank 0's supervisor is a new one: it is followed from now on, and the others are told."""
        if announce.uid != self._settings.uid or announce.incarnation <= self._incarnation:
            return
        self._incarnation = announce.incarnation
        said_host, _, port = announce.address.rpartition(":")
        if not port.isdecimal():
            return
        self.master_addr = said_host.strip("[]") or host
        self._leader = address_of(self.master_addr, int(port))
        say(f"rank 0 is at {self._leader} now")
        if self._link is not None:
            await self._link.close()
        if not said_host:  # From itself: it may not know all of us.
            told = Announce(announce.uid, announce.incarnation, self._leader)
            others = (
                address for node, address in self.members.items() if node not in {"0", str(self._settings.node)}
            )
            await asyncio.gather(*(announce_to(address, told, self._settings.listen) for address in others))

    def _say_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            warn(words)


async def announce_to(address: str, announce: Announce, source: str | None) -> Message | None:
    """Tells a supervisor of a new rank 0, and gives its answer; None: it has none."""
    with contextlib.suppress(OSError, LinkLostError, UnreadableError):
        link = await connect(address, source)
        try:
            link.send(announce)
            return await link.receive()
        finally:
            await link.close()
    return None
