"""How supervisors find each other: by rank 0's address or, if that is new, through living supervisors."""

import asyncio
import contextlib
import time
from importlib.metadata import version

from ddpjob_rank.console import say
from ddpjob_rank.errors import PeerLostError
from msgspec.structs import replace

from ddpjob_supervisor.preflight.clocks import clocks, skew
from ddpjob_supervisor.preflight.findings import PreflightError, log

from .addresses import address_of, host_and_port
from .link import Link, LinkLostError, TcpLink, connect, not_direct, why
from .messages import Announce, Elsewhere, Hello, Message, OtherVersionError, Refused, UnreadableError, Welcome
from .once import Once, shown
from .proof import SecretDiffersError
from .settings import DISABLED, Settings

RELEASE = version("ddpjob")

SOONEST_SECONDS, LATEST_SECONDS = 0.05, 1.0
"""Waits between two tries to reach the coordinator; each is longer than the one before."""

PATIENT_SECONDS = 5.0
"""A wait of up to this long is not worth a message."""

MUTE_SECONDS = 45.0
"""An address that neither accepts nor refuses connections for this long is cut off: if nothing listened yet, they
would be refused. The operator gives up a supervisor that is missing for a minute, and cannot know why."""


ANOTHER_SECRET_SECONDS = 15.0
"""A supervisor that is taken for a stranger for this long has a different secret: on a cluster the Secret was deleted
after the gang had started, and recreated for this pod. The gang has to start again, with the new one."""


class Rendezvous:
    """What a supervisor knows about where the others are."""

    def __init__(self, settings: Settings) -> None:
        self.master_addr = settings.master_addr
        """Where rank 0's ranks are."""
        self.members: dict[str, str] = {}
        """Address of each supervisor by node number, as last reported by the coordinator."""
        self._settings = settings
        self._coordinator = ""
        """The coordinator's address, if it is not the one that was known from the start."""
        self._incarnation = 0
        """The incarnation of the newest rank 0 that is known; 0: none is."""
        self._link: Link | None = None
        self._problem = ""
        """Why the last try to reach the coordinator failed."""
        self._mute = False
        """Whether that was because there was no answer of any kind."""
        self._stranger: tuple[float, str] | None = None
        """Since when nobody has accepted this supervisor's proof, and the result of the first such try."""
        self._once = Once()

    async def reach(self, hello: Hello) -> Link:
        """A connection to the coordinator, which has welcomed us. The operator decides how long is too long.

        Raises:
            PeerLostError: There is no operator, and the coordinator did not come in time; or the others have another
            secret.
            OtherVersionError: The coordinator's version cannot work with this one.
            PreflightError: The gang gathers for the first time, and the coordinator's address is cut off from here.
        """
        loop = asyncio.get_running_loop()
        began, pause, turn = loop.time(), SOONEST_SECONDS, 0
        heard = began
        while True:
            known = [self._coordinator, *self._settings.peers] if self._coordinator else self._settings.peers
            address = known[turn % len(known)]
            turn += 1
            coordinator = self._coordinator
            link = await self._try(address, hello)
            if self._coordinator != coordinator:
                turn = 0
            if link is not None:
                self._link = link
                return link
            if not self._mute:
                heard = loop.time()
            elif loop.time() - heard > MUTE_SECONDS and self._in_preflight and len(self._settings.peers) == 1:
                # Otherwise there was a rank 0 before, whose pod may just be gone.
                raise PreflightError(_cut_off(address, self._problem), (0, self._settings.node))
            if self._stranger is not None and loop.time() - self._stranger[0] > ANOTHER_SECRET_SECONDS:
                raise PeerLostError(
                    f"the other supervisors refuse this one: {self._stranger[1]}; this one's secret is in "
                    f"{self._settings.secret_file}"
                )
            if self._settings.patience is not None and loop.time() - began > self._settings.patience:
                waited = f"{self._settings.patience:.0f} s"
                raise PeerLostError(f"waited {waited} for rank 0's supervisor at {address}: {self._problem}")
            if loop.time() - began > PATIENT_SECONDS:
                self._once.warn(f"waiting for rank 0's supervisor at {address}: {self._problem}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LATEST_SECONDS)

    async def _try(self, address: str, hello: Hello) -> TcpLink | None:
        try:
            link = await connect(address, self._settings.listen)
        except OSError as error:
            self._problem, self._mute = why(error), isinstance(error, TimeoutError)
            return None
        self._mute = False
        try:
            hello = replace(hello, sent=time.time())
            answer = await link.say_first(hello, self._settings.secret)
        except (LinkLostError, UnreadableError) as error:
            if isinstance(error, SecretDiffersError) and self._stranger is None:
                self._stranger = asyncio.get_running_loop().time(), f"{address}: {error}"
            self._problem = str(error) or "it closes the connection without an answer"
            await link.close()
            return None
        self._stranger = None
        if isinstance(answer, Welcome) and answer.at == link.there:
            if self._in_preflight:
                log(clocks(skew(hello.sent, answer.heard, answer.heard, time.time()), hello.node))
            if answer.incarnation > self._incarnation:
                self._note_coordinator(address, answer.incarnation)
            return link
        await link.close()
        match answer:
            case Welcome(at=at):
                self._problem = f"ignored the address {address}: {not_direct(at, link.there)}"
                self._once.warn(self._problem)
            case Refused(reason, for_good):
                self._problem = f"{address} refuses this supervisor: {shown(reason)}"
                if for_good:
                    raise OtherVersionError(self._problem)
                self._once.warn(self._problem)
            case Elsewhere(elsewhere, incarnation):
                self._problem = f"rank 0 is not there, but at {shown(elsewhere)}"
                self._note_coordinator(elsewhere, incarnation)
            case _:
                self._problem = "the server there is not rank 0's supervisor"
        return None

    @property
    def _in_preflight(self) -> bool:
        """Whether problems count as failures of the preflight, which ends with the first welcome."""
        return self._settings.preflight != DISABLED and self._link is None

    def _note_coordinator(self, address: str, incarnation: int) -> None:
        """Takes in where the coordinator is, as it or another one reports: if it is newer, or none is known."""
        with contextlib.suppress(ValueError):
            host, _ = host_and_port(address)
            if incarnation > self._incarnation:
                self._incarnation, self.master_addr = incarnation, host
            elif self._coordinator:
                return
            self._coordinator = address

    def where(self) -> Elsewhere | None:
        """What to answer a supervisor that takes this one for the coordinator."""
        address = self._coordinator or next(iter(self._settings.peers), "")
        return Elsewhere(address, self._incarnation) if address else None

    async def announced(self, announce: Announce, host: str) -> None:
        """Rank 0's supervisor is new: this one follows it from now on, and passes the news on."""
        if announce.uid != self._settings.uid or announce.incarnation < self._incarnation:
            return
        itself = announce.address.startswith(":")
        try:
            address = address_of(*host_and_port(f"[{host}]{announce.address}" if itself else announce.address))
        except ValueError:
            return
        if announce.incarnation > self._incarnation:  # Otherwise we may be connected to it already.
            self._note_coordinator(address, announce.incarnation)
            say(f"rank 0 is at {address} now")
            if self._link is not None:
                await self._link.close()
        if itself:  # It may not know all of us.
            told = Announce(announce.uid, announce.incarnation, address)
            others = (
                address for node, address in self.members.items() if node not in {"0", str(self._settings.node)}
            )
            await asyncio.gather(*(announce_to(address, told, self._settings) for address in others))


async def announce_to(address: str, announce: Announce, settings: Settings) -> Message | None:
    """Tells a supervisor about a new rank 0, and returns its answer; None if there is none."""
    with contextlib.suppress(OSError, LinkLostError, UnreadableError):
        link = await connect(address, settings.listen)
        try:
            return await link.say_first(announce, settings.secret)
        finally:
            await link.close()
    return None


def _cut_off(address: str, problem: str) -> str:
    return (
        f"rank 0's supervisor at {address} is cut off from this node ({problem}): a NetworkPolicy or a firewall "
        "drops the packets; a job's pods must reach each other on all ports"
    )
