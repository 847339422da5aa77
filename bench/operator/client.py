"""A minimal client of the API server. It submits jobs and, for comparison, creates pods itself."""

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
    """A measurement failed. The message needs no traceback."""


class Client:
    """A client of a plant's API server, with an administrator's rights."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str) -> Manifest:
        """Returns the object or list at a path."""
        return await self._send("GET", path)

    async def create(self, path: str, body: Manifest) -> Manifest:
        return await self._send("POST", path, json=body)

    async def merge(self, path: str, body: Manifest) -> Manifest:
        """Changes the fields that `body` contains."""
        return await self._send("PATCH", path, data=json.dumps(body), headers=MERGE)

    async def delete(self, path: str) -> Manifest:
        return await self._send("DELETE", path)

    async def create_all(self, path: str, bodies: Iterable[Manifest]) -> None:
        """Creates all objects, as fast as possible."""
        await at_once(lambda body: self.create(path, body), bodies)

    async def delete_all(self, path: str, names: Iterable[str]) -> None:
        """Deletes all objects with these names, as fast as possible."""
        await at_once(lambda name: self.delete(f"{path}/{name}"), names)

    async def until(self, path: str, count: int, is_so: Callable[[Manifest], bool], seconds: float) -> None:
        """Waits until `is_so` has been true of `count` objects below a path, not necessarily all at the same time.

        Raises:
            BenchError: This has taken longer than `seconds`.
        """
        seen: set[str] = set()
        try:
            async with asyncio.timeout(seconds):
                while len(seen) < count:  # A busy server ends watches. A new watch starts with all objects.
                    async for event in self._watch(path):
                        if event["type"] != "ERROR" and is_so(event["object"]):
                            seen.add(event["object"]["metadata"]["name"])
                        if len(seen) >= count:
                            break
        except TimeoutError:
            raise BenchError(f"after {seconds:.0f} s only {len(seen)} of {count} at {path} were as awaited") from None

    async def until_gone(self, path: str, seconds: float) -> None:
        """Waits until no object is left below a path."""
        async with asyncio.timeout(seconds):
            while (await self.get(f"{path}?limit=1"))["items"]:  # noqa: ASYNC110  No event signals the deletion.
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
    """A client with its own connections."""
    async with aiohttp.ClientSession(
        base_url=f"{plant.url}/",
        connector=aiohttp.TCPConnector(ssl=plant.admin(), limit=REQUESTS_AT_ONCE + 1),
        timeout=aiohttp.ClientTimeout(),
        read_bufsize=LONGEST_LINE,
    ) as session:
        yield Client(session)


async def at_once(act: Callable[[Any], Awaitable[Any]], of: Iterable[Any]) -> None:
    """Calls `act` for all items, with as many concurrent calls as the client has connections."""
    rest = iter(of)

    async def some() -> None:
        for one in rest:
            await act(one)

    await asyncio.gather(*(some() for _ in range(REQUESTS_AT_ONCE)))
