"""Checks who may read the metrics, by asking the API server who a token's user is and what that user may read."""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from http import HTTPStatus

from .kube.api_client import ApiClient, ApiError

KEPT_SECONDS = 60.0
"""How long the API server's answer is cached. A right that is withdrawn may stay in force for this long."""
KEPT = 256
AT_ONCE = 4
"""How many tokens are checked at the same time."""
REFUSAL_SECONDS = 0.1
"""How much longer a refused token occupies one of the AT_ONCE places, so that strangers with invented tokens cause
little load on the API server. A valid token waits a few seconds at most, because a port has few connections."""
ANSWER_SECONDS = 5.0
"""How long a request may wait for its check. By default, Prometheus waits for 10 s."""

logger = logging.getLogger(__name__)


class MetricsAccess:
    """Checks tokens, and caches the API server's answers by the hash of the token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._answers: OrderedDict[bytes, tuple[float, HTTPStatus]] = OrderedDict()
        self._checks = asyncio.Semaphore(AT_ONCE)
        self._trouble = ""

    async def __call__(self, token: str) -> HTTPStatus:
        """Returns OK, or the HTTP status with which a request with this token must be refused."""
        if not token:
            return HTTPStatus.UNAUTHORIZED
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        if status := self._cached(key):
            return status
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._checks:
                # While this request waited, another request with the same token may have been answered.
                return self._cached(key) or await self._check(key, token)
        except ApiError as error:
            self._log_trouble(error.message)
        except TimeoutError:
            pass
        return HTTPStatus.SERVICE_UNAVAILABLE

    def _cached(self, key: bytes) -> HTTPStatus | None:
        until, status = self._answers.get(key, (0.0, None))
        return status if time.monotonic() < until else None

    async def _check(self, key: bytes, token: str) -> HTTPStatus:
        status = await self._review(token)
        self._trouble = ""
        self._answers[key] = (time.monotonic() + KEPT_SECONDS, status)
        self._answers.move_to_end(key)
        if len(self._answers) > KEPT:
            self._answers.popitem(last=False)
        if status is not HTTPStatus.OK:
            await asyncio.sleep(REFUSAL_SECONDS)
        return status

    async def _review(self, token: str) -> HTTPStatus:
        user = await self._api.user_of(token)
        if user is None:
            return HTTPStatus.UNAUTHORIZED
        return HTTPStatus.OK if await self._api.may_get(user, "/metrics") else HTTPStatus.FORBIDDEN

    def _log_trouble(self, trouble: str) -> None:
        """Logs that no token can be checked, but only once until a check succeeds, because anybody can cause this."""
        if not self._trouble:
            logger.warning("nobody can read the metrics, because the API server cannot check tokens: %s", trouble)
        self._trouble = trouble
