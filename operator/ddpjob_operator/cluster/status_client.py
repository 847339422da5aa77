"""Sends a request to the status port of a supervisor, and checks the answer.

Any program may be listening on that port, so only JSON answers that are small and arrive in time are accepted.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from ddpjob_operator.engine import LARGEST_ANSWER, Asked
from ddpjob_operator.text.foreign_json import parsed_object

from .kube.connection import USER_AGENT

LONGEST_MARK = 128
CONNECT_SECONDS = 5.0
SLACK_SECONDS = 5.0
"""How much longer an answer may take than the wait that was requested."""


class NoReportError(Exception):
    """There was no usable answer. The text of the error explains why in a sentence."""

    def __init__(self, result: str, message: str) -> None:
        super().__init__(message)
        self.result = result
        """One word for metrics: `refused` (nothing listens there), `silent`, `unreadable`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A supervisor's answer."""

    document: Mapping[str, Any]
    mark: str
    """The answer's ETag, which changes only if there is important news; empty if the supervisor sends none."""


def new_session() -> aiohttp.ClientSession:
    """Creates a session for requests to pods.

    Each request gets a new connection, because an address may soon belong to another pod.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        # Compressed answers are not accepted, because a small answer could unpack to a thousand times the size limit.
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        auto_decompress=False,
    )


async def ask(session: aiohttp.ClientSession, asked: Asked, mark: str, wait: float) -> Answer:
    """Requests a supervisor's status. Given the last answer's `mark`, the supervisor waits up to `wait` s for news.

    Raises:
        NoReportError: there was no usable answer.
    """
    headers = {"If-None-Match": mark, "Prefer": f"wait={int(wait)}"} if mark and wait >= 1 else {}
    timeout = aiohttp.ClientTimeout(total=wait + SLACK_SECONDS, sock_connect=CONNECT_SECONDS)
    address = where(asked)
    try:
        # No redirects are allowed, so that a pod cannot make the operator send requests to other hosts.
        async with session.get(
            f"http://{address}/status", headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            if response.status != HTTPStatus.OK:
                raise NoReportError("unreadable", f"{address} answers with HTTP status {response.status}")
            content = await _read(response, address)
            document = parsed_object(content)
            if document is None:
                raise NoReportError("unreadable", f"the answer of {address} is not a status: {content[:40]!r}")
            return Answer(document, _mark(response))
    except aiohttp.ConnectionTimeoutError:
        raise NoReportError("silent", f"no connection to {address} within {CONNECT_SECONDS:.0f} s") from None
    except TimeoutError:
        raise NoReportError("silent", f"{address} has not answered in time") from None
    except (aiohttp.ClientError, OSError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.ECONNREFUSED:
            raise NoReportError("refused", f"nothing listens on {address}") from None
        why = os.strerror(number) if number else str(error) or type(error).__name__
        raise NoReportError("silent", f"{address} does not answer: {why}") from None


def where(asked: Asked) -> str:
    """Returns the supervisor's host and port as in a URL."""
    return f"[{asked.address}]:{asked.port}" if ":" in asked.address else f"{asked.address}:{asked.port}"


async def _read(response: aiohttp.ClientResponse, address: str) -> bytes:
    """Reads the body of a response.

    Raises:
        NoReportError: the body is larger than a supervisor's answer can be.
    """
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_ANSWER:
            raise NoReportError("unreadable", f"the answer of {address} is larger than {LARGEST_ANSWER // 1024} KiB")
        parts.append(part)
    return b"".join(parts)


def _mark(response: aiohttp.ClientResponse) -> str:
    """Returns the answer's ETag; empty if it is too long or has characters that cannot be sent back in a header."""
    mark = response.headers.get("ETag", "")
    return mark if len(mark) <= LONGEST_MARK and mark.isascii() and mark.isprintable() else ""
