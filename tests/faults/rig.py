"""A test rig for one life: a namespace, an operator behind a proxy, a witness, and the actions of a user."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.plant import Plant
from tests.support.operators import Operator, an_operator

from .calls import QUEUED
from .clock import environment, set_clock
from .proxy import Proxy
from .witness import KINDS, Manifest, NeverError, Witness

RESYNC_SECONDS = 5
PATIENCE_SECONDS = 90.0
"""The limit for anything that must happen. Most things happen immediately, but a request may hang for 20 s, and the
machine may be busy."""
POLL_SECONDS = 0.1
LEADS = "ddpjob_leader"
LOOKS = 'ddpjob_reconciles_total{result="ok"}'
LISTED_LAST = QUEUED
AT_REST = {"Suspended", "Succeeded", "Failed"}
"""The states of a job for which nothing has to be done. It is not handled again at a resync."""


def session_of(plant: Plant) -> aiohttp.ClientSession:
    """An admin's session, for proxies, witnesses and users."""
    return aiohttp.ClientSession(
        plant.url,
        connector=aiohttp.TCPConnector(ssl=plant.admin(), limit=0),
        timeout=aiohttp.ClientTimeout(total=None, connect=30),
        read_bufsize=2**20,
    )


@dataclass
class Rig:
    """Everything that one life needs, and the actions on its operator."""

    plant: Plant
    upstream: aiohttp.ClientSession
    proxy: Proxy
    witness: Witness
    flags: tuple[str, ...] = ()
    """More flags of the operator."""
    clock: Path | None = None
    """The file that sets the operator's clock; None if its clock cannot be set."""
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Resources that are closed together with the rig."""
    operators: list[Operator] = field(default_factory=list)
    """The operator's processes. The present one is the last."""
    ended: list[str] = field(default_factory=list)
    """The last log lines of processes that ended without being told to."""

    def __post_init__(self) -> None:
        self.stack = ExitStack()
        self._over: set[int] = set()
        """The numbers of processes whose end is expected."""

    @property
    def at_work(self) -> list[Operator]:
        """The processes that still run."""
        return [one for one in self.operators if one.program.process.poll() is None]

    def start_operator(self) -> None:
        """Starts another process."""
        number = self.proxy.process = len(self.operators) + 1
        config = self.plant.directory / "kubeconfigs" / f"{self.witness.namespace}-{number}.json"
        config.parent.mkdir(exist_ok=True)
        config.write_text(_kubeconfig(self.proxy.url(number)))
        operator = an_operator(
            self.plant,
            f"--namespace={self.witness.namespace}",
            "--no-leader-elect",
            f"--resync-seconds={RESYNC_SECONDS}",
            *self.flags,
            kubeconfig=config,
            environment=environment(self.clock) if self.clock else {},
            until_ready=False,
            forked=self.clock is None,
        )
        self.operators.append(self.stack.enter_context(operator))

    def kill_operator(self) -> None:
        """Kills the operator with SIGKILL."""
        self._over.add(len(self.operators))
        self.operators[-1].kill()
        self.proxy.hang_up(self.proxy.process)

    async def stop_operator(self) -> None:
        """Sends SIGTERM to all processes, so that they may finish what they are doing."""
        for process, operator in enumerate(self.operators, 1):
            works = process not in self._over
            self._over.add(process)
            code = await asyncio.to_thread(operator.stop)
            self.proxy.hang_up(process)
            if works and code:
                self.ended.append(f"exit code {code} when it was told to stop")

    def leave(self, process: int) -> None:
        """Marks the end of a process as expected, because another one has to lead in its place."""
        self._over.add(process)

    async def crash(self) -> None:
        """Kills the operator with SIGKILL, and starts another process."""
        self.kill_operator()
        self.start_operator()

    async def keep_operator(self) -> None:
        """Restarts an operator that ends without being told to, as a Deployment does, unless another is running."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for process, operator in enumerate(self.operators, 1):
                if process in self._over or operator.program.process.poll() is None:
                    continue
                self._over.add(process)
                self.ended.append("\n".join(operator.log.splitlines()[-3:]))
                if operator is self.operators[-1]:
                    await self.crash()

    async def until_it_watches(self) -> None:
        """Waits until the present process has opened its watches."""

        def watches() -> bool:
            return {(self.proxy.process, kind) for kind in KINDS} <= self.proxy.watching

        await self.proxy.until(watches, PATIENCE_SECONDS)

    async def until_it_leads(self) -> None:
        """Waits until the present process leads."""
        operator = self.operators[-1]
        await self._until(lambda: operator.metric(LEADS) == 1)

    async def until_it_has_looked(self) -> None:
        """Waits until the present process has handled every job, and has nothing more to do immediately."""
        operator = self.operators[-1]

        def looked() -> bool:
            return operator.metric(LOOKS) > 0 and operator.metric("ddpjob_workqueue_depth") == 0

        await self._until(looked)

    async def _until(self, looked: Callable[[], bool]) -> None:
        """Waits until the present process's metrics satisfy a condition."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await asyncio.to_thread(looked):  # noqa: ASYNC110  They belong to another process.
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            log = self.operators[-1].log
            raise NeverError(f"process {self.proxy.process} does not come so far\n{log}") from None

    async def until_it_has_looked_again(self) -> None:
        """Waits until the present process has listed everything again, then handled a job that may need it."""
        operator, process = self.operators[-1], self.proxy.process

        def read() -> bool:
            lists = (one for one in self.proxy.log if (one.call.verb, one.call.resource) == ("list", LISTED_LAST))
            return sum(one.process == process and one.done for one in lists) > 1

        await self.proxy.until(read, PATIENCE_SECONDS)
        if self.witness.status().get("state") not in AT_REST:
            looks = await asyncio.to_thread(operator.metric, LOOKS)
            await self._until(lambda: operator.metric(LOOKS) > looks)
        await self.until_it_has_looked()

    async def remember(self) -> None:
        """Keeps the present state, so that an operator can be shown it later."""
        for kind in KINDS:
            async with self.upstream.get(self.witness.url(kind)) as answer:
                self.proxy.remembered[kind] = await answer.read()

    async def create(self, kind: str, body: Manifest) -> None:
        """A user creates an object."""
        await self.ask("POST", self.witness.url(kind), body)

    async def merge(self, kind: str, name: str, body: Manifest) -> None:
        """A user changes an object."""
        await self.ask("PATCH", self.witness.url(kind, name), body)

    async def delete(self, kind: str, name: str) -> None:
        """A user deletes an object, and with it everything that belongs to it, as kubectl does by default."""
        await self.ask("DELETE", self.witness.url(kind, name), {"propagationPolicy": "Background"})

    async def make_room(self, nodes: int) -> None:
        """Labels this number of nodes for this namespace."""
        labels = {self.witness.namespace: "true"}
        for index in range(nodes):
            await self.ask("PATCH", f"/api/v1/nodes/node-{index}", {"metadata": {"labels": labels}})

    def set_clock(self, seconds: int) -> None:
        """Sets by how many seconds the operator's clock is wrong from now on."""
        assert self.clock is not None, "it has none that can be set"
        set_clock(self.clock, seconds)

    async def ask(self, method: str, url: str, body: Manifest) -> None:
        """An admin changes something."""
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        async with self.upstream.request(method, url, data=json.dumps(body), headers=headers) as answer:
            if answer.status >= 300:
                raise NeverError(f"{method} {url}: {await answer.text()}")


@asynccontextmanager
async def a_rig(
    plant: Plant, upstream: aiohttp.ClientSession, *flags: str, with_clock: bool = False
) -> AsyncIterator[Rig]:
    """A rig in a new namespace. `with_clock` means that the operator's clock can be set."""
    async with AsyncExitStack() as stack:
        namespace = await _new_namespace(upstream)
        witness = await stack.enter_async_context(Witness(upstream, namespace))
        proxy = Proxy(upstream)
        clock = plant.directory / f"clock-{namespace}" if with_clock else None
        rig = Rig(plant, upstream, proxy, witness, flags, clock, stack)
        if with_clock:
            rig.set_clock(0)
        proxy.crash, proxy.remember = rig.crash, rig.remember
        stack.push_async_callback((await proxy.start()).cleanup)
        stack.enter_context(rig.stack)
        rig.start_operator()
        stack.callback(rig.kill_operator)
        keeper = asyncio.create_task(rig.keep_operator())
        stack.callback(keeper.cancel)
        yield rig


async def _new_namespace(upstream: aiohttp.ClientSession) -> str:
    """Creates a namespace, and waits until pods can be created in it."""
    body: dict[str, Any] = {"metadata": {"generateName": "life-"}}
    async with upstream.post("/api/v1/namespaces", json=body) as answer:
        name = str((await answer.json())["metadata"]["name"])
    while True:
        async with upstream.get(f"/api/v1/namespaces/{name}/serviceaccounts/default") as answer:
            if answer.status == 200:
                return name
        await asyncio.sleep(POLL_SECONDS)


def _kubeconfig(server: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": server}}],
            "users": [{"name": "operator", "user": {"token": "the-proxy-shows-its-own-certificate"}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "operator"}}],
            "current-context": "proxy",
        }
    )
