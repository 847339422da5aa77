"""Sends one request to the status port of a rank 0's supervisor, and checks the answer.

Any program may listen on that port. So only a JSON answer that is small and in time is accepted.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from ddpjob_operator.engine import LARGEST_ANSWER, Asked, document_of

from .kube.connection import USER_AGENT

LONGEST_MARK = 128
CONNECT_SECONDS = 5.0
SLACK_SECONDS = 5.0
"""How much longer than the requested wait an answer may take."""


class UnheardError(Exception):
    """There was no answer, or an unusable one. The error's text says so in a sentence."""

    def __init__(self, result: str, message: str) -> None:
        super().__init__(message)
        self.result = result
        """One word for metrics: `refused` (nothing listens there), `silent`, `unreadable`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A supervisor's answer."""

    document: Mapping[str, Any]
    mark: str
    """The answer's ETag, which changes only with important news; empty if the supervisor sends none."""


def new_session() -> aiohttp.ClientSession:
    """A session for requests to pods. Each request gets a new connection: an address may soon be another pod's."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        # Uncompressed, because an answer within the size limit could unpack to a thousand times as much.
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        auto_decompress=False,
    )


async def ask(session: aiohttp.ClientSession, asked: Asked, mark: str, wait: float) -> Answer:
    """Asks a supervisor for its status; given the mark of its last answer, it waits up to `wait` s for news.

    Raises:
        UnheardError: there was no usable answer.
    """
    headers = {"If-None-Match": mark, "Prefer": f"wait={int(wait)}"} if mark and wait >= 1 else {}
    timeout = aiohttp.ClientTimeout(total=wait + SLACK_SECONDS, sock_connect=CONNECT_SECONDS)
    address = where(asked)
    try:
        # No redirects: a pod must not make the operator ask anyone else, inside the cluster or out.
        async with session.get(
            f"http://{address}/status", headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            if response.status != HTTPStatus.OK:
                raise UnheardError("unreadable", f"{address} answers with HTTP status {response.status}")
            content = await _read(response, address)
            document = document_of(content)
            if document is None:
                raise UnheardError("unreadable", f"the answer of {address} is not a status: {content[:40]!r}")
            return Answer(document, _mark(response))
    except aiohttp.ConnectionTimeoutError:
        raise UnheardError("silent", f"no connection to {address} within {CONNECT_SECONDS:.0f} s") from None
    except TimeoutError:
        raise UnheardError("silent", f"{address} has not answered in time") from None
    except (aiohttp.ClientError, OSError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.ECONNREFUSED:
            raise UnheardError("refused", f"nothing listens on {address}") from None
        why = os.strerror(number) if number else str(error) or type(error).__name__
        raise UnheardError("silent", f"{address} does not answer: {why}") from None


def where(asked: Asked) -> str:
    """The supervisor's host and port, as in a URL."""
    return f"[{asked.address}]:{asked.port}" if ":" in asked.address else f"{asked.address}:{asked.port}"


async def _read(response: aiohttp.ClientResponse, address: str) -> bytes:
    """The body of a response.

    Raises:
        UnheardError: the body is longer than any that a supervisor sends.
    """
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_ANSWER:
            raise UnheardError("unreadable", f"the answer of {address} is larger than {LARGEST_ANSWER // 1024} KiB")
        parts.append(part)
    return b"".join(parts)


def _mark(response: aiohttp.ClientResponse) -> str:
    """The answer's ETag; empty if it is too long, or has characters that cannot be sent back in a header."""
    mark = response.headers.get("ETag", "")
    return mark if len(mark) <= LONGEST_MARK and mark.isascii() and mark.isprintable() else ""
