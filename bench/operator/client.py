"""A client that does nothing but send: it submits jobs and, as a yardstick, makes pods itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.plant import Plant

Manifest = dict[str, Any]

REQUESTS_AT_ONCE = 32
LONGEST_LINE = 1 << 22
MERGE = {"Content-Type": "application/merge-patch+json"}


class BenchError(Exception):
    """Nothing could be measured. Its text is complete."""


class Client:
    """An admin's client of a plant."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str) -> Manifest:
        """What is at a path."""
        return await self._send("GET", path)

    async def create(self, path: str, body: Manifest) -> Manifest:
        """Makes an object."""
        return await self._send("POST", path, json=body)

    async def merge(self, path: str, body: Manifest) -> Manifest:
        """Changes the fields that `body` names."""
        return await self._send("PATCH", path, data=json.dumps(body), headers=MERGE)

    async def delete(self, path: str) -> Manifest:
        """Deletes an object."""
        return await self._send("DELETE", path)

    async def create_all(self, path: str, bodies: Iterable[Manifest]) -> None:
        """Makes them all, as fast as it goes."""
        await at_once(lambda body: self.create(path, body), bodies)

    async def delete_all(self, path: str, names: Iterable[str]) -> None:
        """Deletes them all, as fast as it goes."""
        await at_once(lambda name: self.delete(f"{path}/{name}"), names)

    async def until(self, path: str, count: int, is_so: Callable[[Manifest], bool], seconds: float) -> None:
        """Until `is_so` was true of so many objects below a path, each at any time from now on.

        Raises:
            BenchError: it was not so in time.
        """
        seen: set[str] = set()
        try:
            async with asyncio.timeout(seconds):
                while len(seen) < count:  # A busy server ends watches; a new one begins with all that there is.
                    async for event in self._watch(path):
                        if event["type"] != "ERROR" and is_so(event["object"]):
                            seen.add(event["object"]["metadata"]["name"])
                        if len(seen) >= count:
                            break
        except TimeoutError:
            raise BenchError(f"after {seconds:.0f} s only {len(seen)} of {count} at {path} were as awaited") from None

    async def until_gone(self, path: str, seconds: float) -> None:
        """Until nothing is left at a path."""
        async with asyncio.timeout(seconds):
            while (await self.get(f"{path}?limit=1"))["items"]:  # noqa: ASYNC110  Nobody here tells of it.
                await asyncio.sleep(0.05)

    async def _watch(self, path: str) -> AsyncIterator[Manifest]:
        query = {"watch": "1", "resourceVersion": "0"}
        async with self._session.get(path.lstrip("/"), params=query) as response:
            response.raise_for_status()
            async for line in response.content:
                yield json.loads(line)

    async def _send(self, method: str, path: str, **more: Any) -> Manifest:
        async with self._session.request(method, path.lstrip("/"), **more) as response:
            content = await response.read()
            if response.status >= 400:
                raise BenchError(f"{method} {path}: {response.status} {content.decode(errors='replace')[:1000]}")
            answer: Manifest = json.loads(content)
            return answer


@asynccontextmanager
async def a_client(plant: Plant) -> AsyncIterator[Client]:
    """A client with connections of its own."""
    async with aiohttp.ClientSession(
        base_url=f"{plant.url}/",
        connector=aiohttp.TCPConnector(ssl=plant.admin(), limit=REQUESTS_AT_ONCE + 1),
        timeout=aiohttp.ClientTimeout(),
        read_bufsize=LONGEST_LINE,
    ) as session:
        yield Client(session)


async def at_once(act: Callable[[Any], Awaitable[Any]], of: Iterable[Any]) -> None:
    """Does it to all, to as many at once as the client has connections."""
    rest = iter(of)

    async def some() -> None:
        for one in rest:
            await act(one)

    await asyncio.gather(*(some() for _ in range(REQUESTS_AT_ONCE)))
