"""Leader election by a Lease of coordination.k8s.io (https://kubernetes.io/docs/concepts/architecture/leases/).

The clocks of two machines are never compared. The leader counts from the moment before it sent its last renewal, the
others from the moment at which they saw that renewal, each by its own steady clock. The leader reads its clock before
every write. So it stops writing before another replica takes over, even if its process was paused or its machine was
suspended. Timers would not be enough, because their clock stops during a suspension.
"""

import asyncio
import logging
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from ddpjob_operator.cluster.serve.metrics import LEADER
from ddpjob_operator.engine import Manifest

from .api_client import LEASES, ApiClient, ApiError
from .clock import steady

LEASE_SECONDS = 8.0
"""How long after the last renewal another replica takes over."""
LEADING_SECONDS = 5.0
"""How long after the last renewal the leader stops writing. The difference to LEASE_SECONDS leaves time for requests
in flight."""
RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class LeaderElector:
    """Takes part in the leader election while `run` is running."""

    def __init__(self, api: ApiClient, namespace: str, name: str, identity: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._renewed = float("-inf")
        self._held: Manifest | None = None
        """The Lease as this replica last wrote it; None if a request may have failed since."""
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._trying = asyncio.Lock()
        self.elected = asyncio.Event()
        """Set as soon as this replica leads. A replica never leads twice."""

    @property
    def leads(self) -> bool:
        """Whether this replica leads at this very moment."""
        return steady() < self._renewed + LEADING_SECONDS

    async def run(self) -> None:
        """Waits to be elected, then renews the Lease. Returns when the leadership has been lost or released."""
        while True:
            async with self._trying:
                if self.elected.is_set() and not self.leads:
                    LEADER.set(0)
                    return
                started = steady()
                await self._try_in_time()
            # The interval counts from start to start, because a longer wait after a slow answer could cost the
            # leadership.
            await asyncio.sleep(max(0.0, started + RETRY_SECONDS - steady()))

    async def release(self) -> None:
        """Releases the Lease, so that the next leader need not wait until it expires."""
        async with self._trying:  # Otherwise, a renewal in flight would take the Lease back.
            if not self.leads:
                return
            # This is set before the request, because afterwards another replica may lead, even if the answer is lost.
            self._renewed = float("-inf")
            lease = await self._api.get(LEASES, self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASES, self._namespace, self._name, lease)

    async def _try_in_time(self) -> None:
        started = steady()
        try:
            if await asyncio.wait_for(self._try(), LEADING_SECONDS):
                self._lead_from(started)
        except (ApiError, TimeoutError) as error:
            logger.warning("lease %s/%s: %s", self._namespace, self._name, str(error) or "no answer in time")

    def _lead_from(self, moment: float) -> None:
        self._renewed = moment
        if not self.elected.is_set():
            logger.info("elected leader: %s", self._identity)
            LEADER.set(1)
            self.elected.set()

    async def _try(self) -> bool:
        """Takes or renews the Lease if it is free or held by this replica. Returns whether this replica now holds it.

        If several replicas try at the same time, the API server lets one succeed, and the others get a conflict.
        """
        # A renewal need not read the Lease first, because the write is a conflict if anybody has written since. With
        # one request instead of two, the API server may be twice as slow before the leadership is lost.
        held, self._held = self._held, None
        if held is not None and self.leads and await self._write(held):
            return True
        lease = await self._api.get(LEASES, self._namespace, self._name)
        if not self._is_free(lease):
            # Another replica holds the Lease, so this replica no longer leads. Its own clock may suggest otherwise,
            # because the clock may have stopped for a while.
            if self.elected.is_set():
                self._renewed = float("-inf")
            return False
        return await self._write(lease)

    async def _write(self, lease: Manifest | None) -> bool:
        """Takes or renews the Lease as last read (None: there was none). Returns False if others wrote first."""
        try:
            if lease is None:
                self._held = await self._api.create(LEASES, self._namespace, self._new_lease())
            else:
                spec = lease["spec"]
                changed = {} if spec.get("holderIdentity") == self._identity else self._holder(spec)
                body = {**lease, "spec": {**spec, **changed, "renewTime": _now()}}
                self._held = await self._api.replace(LEASES, self._namespace, self._name, body)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        return True

    def _is_free(self, lease: Manifest | None) -> bool:
        """Whether this replica may take the Lease. Even if it was deleted, the last holder's time must be over."""
        if lease is not None:
            holder = lease["spec"].get("holderIdentity") or ""
            if holder == self._identity:
                # If this replica was not elected yet, it took the Lease but the answer was lost. If it was elected
                # but no longer leads, it must not take the Lease again, because no replica leads twice.
                return not self.elected.is_set() or self.leads
            seen = (holder, str(lease["spec"].get("renewTime")))
            if seen != self._seen:
                self._seen, self._seen_at = seen, steady()
        others = self._seen is not None and self._seen[0]
        return not others or steady() >= self._seen_at + LEASE_SECONDS

    def _new_lease(self) -> Manifest:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._holder({}), "renewTime": _now()},
        }

    def _holder(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "acquireTime": _now(),
            "leaseTransitions": spec.get("leaseTransitions", -1) + 1,
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
