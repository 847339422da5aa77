"""One question to the supervisor of a rank 0: what its job is doing.

Any program may listen where a supervisor would. So only a small, timely JSON answer counts as one.
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
"""An answer may come this much later than it was asked for."""


class UnheardError(Exception):
    """No answer, or an unusable one. Its text says so in a sentence."""

    def __init__(self, result: str, message: str) -> None:
        super().__init__(message)
        self.result = result
        """One word for metrics: `refused` (nothing listens there), `silent`, `unreadable`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a supervisor says."""

    document: Mapping[str, Any]
    mark: str
    """Changes as soon as something changes that matters at once; empty if the supervisor gives none."""


def a_session() -> aiohttp.ClientSession:
    """For questions to pods. A connection lasts for one question: its address may soon belong to another pod."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        # Uncompressed: within the limit on its size, an answer could unpack to a thousand times as much.
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        auto_decompress=False,
    )


async def ask(session: aiohttp.ClientSession, asked: Asked, mark: str, wait: float) -> Answer:
    """Asks a supervisor; with the mark of its last answer it answers on news, or after `wait` seconds.

    Raises:
        UnheardError: there was no answer.
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
    """Host and port."""
    return f"[{asked.address}]:{asked.port}" if ":" in asked.address else f"{asked.address}:{asked.port}"


async def _read(response: aiohttp.ClientResponse, address: str) -> bytes:
    """The body, unless it is longer than any that a supervisor sends."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_ANSWER:
            raise UnheardError("unreadable", f"the answer of {address} is larger than {LARGEST_ANSWER // 1024} KiB")
        parts.append(part)
    return b"".join(parts)


def _mark(response: aiohttp.ClientResponse) -> str:
    """The answer's mark in a form that can be sent back."""
    mark = response.headers.get("ETag", "")
    return mark if len(mark) <= LONGEST_MARK and mark.isascii() and mark.isprintable() else ""
