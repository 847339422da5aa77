"""How supervisors find the coordinator: at rank 0's address or, if rank 0's pod is new, through other supervisors."""

import asyncio
import contextlib
import time
from importlib.metadata import version

from ddpjob_rank.console import say
from ddpjob_rank.errors import PeerLostError
from msgspec.structs import replace

from ddpjob_supervisor.preflight.clocks import check_clocks, skew
from ddpjob_supervisor.preflight.findings import PreflightError, log

from .addresses import address_of, host_and_port
from .link import Link, LinkLostError, TcpLink, connect, not_direct, why
from .messages import Announce, Elsewhere, Hello, Message, OtherVersionError, Refused, UnreadableError, Welcome
from .once import Once, shown
from .proof import SecretDiffersError
from .settings import DISABLED, Settings

RELEASE = version("ddpjob")

SOONEST_SECONDS, LATEST_SECONDS = 0.05, 1.0
"""The first wait and the longest wait between two tries to reach the coordinator. Each wait is longer than the
last."""

PATIENT_SECONDS = 5.0
"""How long to wait before the wait is logged."""

MUTE_SECONDS = 45.0
"""How long an address may neither accept nor refuse connections before it counts as cut off. (A reachable machine on
which nothing listens refuses them.) The limit is less than the minute after which the operator gives up a missing
supervisor, because the operator cannot find out the reason."""


ANOTHER_SECRET_SECONDS = 15.0
"""How long a supervisor's proof may be refused before its secret counts as different. On a cluster, this happens if
the Secret is deleted after the gang has started, and recreated for this pod: then the gang must start again with the
new secret."""


class Rendezvous:
    """The addresses of the other supervisors, as far as this supervisor knows them."""

    def __init__(self, settings: Settings) -> None:
        self.master_addr = settings.master_addr
        """The host of rank 0: its MASTER_ADDR."""
        self.members: dict[str, str] = {}
        """The address of each supervisor by node number, as last reported by the coordinator."""
        self._settings = settings
        self._coordinator = ""
        """The coordinator's address, as learned from another supervisor. While it is empty, the configured addresses
        are tried."""
        self._incarnation = 0
        """The incarnation of the newest known pod of rank 0; 0 if no pod is known."""
        self._link: Link | None = None
        self._problem = ""
        """Why the last try to reach the coordinator failed."""
        self._mute = False
        """Whether the last try failed because the address neither accepted nor refused the connection."""
        self._stranger: tuple[float, str] | None = None
        """When this supervisor's proof was first refused, on the event loop's clock, and the text of that refusal.
        None if no proof was refused, or if a later one was accepted."""
        self._once = Once()

    async def reach(self, hello: Hello) -> Link:
        """Connects to the coordinator, and returns the connection after the coordinator has sent Welcome.

        If there is an operator, this never gives up: the operator decides when to do so.

        Raises:
            PeerLostError: There is no operator, and the coordinator did not answer in time; or the other supervisors
                have another secret.
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
                # If there are several peers, this pod joins a gang that ran before, and rank 0's pod may be gone by
                # now.
                raise PreflightError(_cut_off(address, self._problem), (0, self._settings.node))
            if self._stranger is not None and loop.time() - self._stranger[0] > ANOTHER_SECRET_SECONDS:
                raise PeerLostError(
                    f"the other supervisors refuse this one: {self._stranger[1]}; this one's secret is in "
                    f"{self._settings.secret_file}"
                )
            if self._settings.joining_seconds is not None and loop.time() - began > self._settings.joining_seconds:
                waited = f"{self._settings.joining_seconds:.0f} s"
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
        if isinstance(answer, Welcome) and answer.at == link.there and answer.incarnation >= self._incarnation:
            if self._in_preflight:
                log(check_clocks(skew(hello.sent, answer.heard, answer.heard, time.time()), hello.node))
            if answer.incarnation > self._incarnation:
                self._note_coordinator(address, answer.incarnation)
            return link
        await link.close()
        match answer:
            case Welcome(incarnation=former) if former < self._incarnation:
                newest = f"its incarnation is {former}, and that of the newest known pod is {self._incarnation}"
                self._problem = f"ignored a former pod of rank 0 at {address}: {newest}"
                self._once.warn(self._problem)
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
        """Whether problems count as preflight failures: the preflight is enabled, and no Welcome has arrived yet."""
        return self._settings.preflight != DISABLED and self._link is None

    def _note_coordinator(self, address: str, incarnation: int) -> None:
        """Records the coordinator's address, unless one of this or a newer coordinator was recorded before."""
        with contextlib.suppress(ValueError):
            host, _ = host_and_port(address)
            if incarnation > self._incarnation:
                self._incarnation, self.master_addr = incarnation, host
            elif self._coordinator:
                return
            self._coordinator = address

    def where(self) -> Elsewhere | None:
        """The answer to a supervisor that takes this one for the coordinator; None if no address is known."""
        address = self._coordinator or next(iter(self._settings.peers), "")
        return Elsewhere(address, self._incarnation) if address else None

    async def announced(self, announce: Announce, host: str) -> None:
        """Uses the new supervisor of rank 0 from now on, and forwards its address.

        `host` is the sender of the Announce.
        """
        if announce.uid != self._settings.uid or announce.incarnation < self._incarnation:
            return
        from_rank_0 = announce.address.startswith(":")
        try:
            address = address_of(*host_and_port(f"[{host}]{announce.address}" if from_rank_0 else announce.address))
        except ValueError:
            return
        # If the incarnation is not newer, this supervisor may already be connected to that very supervisor of rank 0.
        if announce.incarnation > self._incarnation:
            self._note_coordinator(address, announce.incarnation)
            say(f"rank 0 is at {address} now")
            if self._link is not None:
                await self._link.close()
        if from_rank_0:  # Rank 0's supervisor may lack the addresses of some other supervisors.
            forwarded = Announce(announce.uid, announce.incarnation, address)
            others = (
                address for node, address in self.members.items() if node not in {"0", str(self._settings.node)}
            )
            await asyncio.gather(*(announce_to(address, forwarded, self._settings) for address in others))


async def announce_to(address: str, announce: Announce, settings: Settings) -> Message | None:
    """Sends Announce to the supervisor at `address`. Returns its answer, or None if it does not answer."""
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
