"""Who leads: one replica at a time, by a Lease of coordination.k8s.io (https://kubernetes.io/docs/concepts/architecture/leases/).

Two clocks are never compared here. A leader counts from the moment before it asked to renew; the others count from
the moment at which they saw the last renewal; each by its own steady clock. So a leader knows that its time is over
before another takes over, even if it was stopped and resumed, or its machine was suspended: it reads its clock before
every write. Timers would not do, since their clock stands still meanwhile.
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
"""After this long without a renewal the others take over."""
LEADING_SECONDS = 5.0
"""After this long without a renewal the leader itself stops. The difference is for requests that are under way."""
RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class LeaderElector:
    """Takes part in the election, for as long as `run` runs."""

    def __init__(self, api: ApiClient, namespace: str, name: str, identity: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._renewed = float("-inf")
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._trying = asyncio.Lock()
        self.elected = asyncio.Event()
        """Set once this replica leads; it never leads twice."""

    @property
    def leads(self) -> bool:
        """Whether this replica leads at this very moment."""
        return steady() < self._renewed + LEADING_SECONDS

    async def run(self) -> None:
        """Waits to be elected, then renews; returns when the leadership is lost or given back."""
        while True:
            async with self._trying:
                if self.elected.is_set() and not self.leads:
                    LEADER.set(0)
                    return
                await self._try_in_time()
            await asyncio.sleep(RETRY_SECONDS)

    async def release(self) -> None:
        """Gives the lease back, so that the next leader need not wait for its end."""
        async with self._trying:  # A renewal under way would take it again.
            if not self.leads:
                return
            # Before the request: if its answer is lost, another replica may lead all the same.
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
        """Takes or renews the lease, if it is free or ours; the server lets one of several win."""
        lease = await self._api.get(LEASES, self._namespace, self._name)
        try:
            if not self._is_free(lease):
                if self.elected.is_set():  # Another replica leads, whatever our clock says: it may have stood still.
                    self._renewed = float("-inf")
                return False
            if lease is None:
                await self._api.create(LEASES, self._namespace, self._fresh())
                return True
            spec = lease["spec"]
            changed = {} if spec.get("holderIdentity") == self._identity else self._taking(spec)
            lease["spec"] = {**spec, **changed, "renewTime": _now()}
            await self._api.replace(LEASES, self._namespace, self._name, lease)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        return True

    def _is_free(self, lease: Manifest | None) -> bool:
        """Whether we may take it; deleting it does not end its last holder's time."""
        if lease is not None:
            holder = lease["spec"].get("holderIdentity") or ""
            if holder == self._identity:
                # Not elected yet: we took it, but the answer was lost. Elected, but too late: none leads twice.
                return not self.elected.is_set() or self.leads
            seen = (holder, str(lease["spec"].get("renewTime")))
            if seen != self._seen:
                self._seen, self._seen_at = seen, steady()
        others = self._seen is not None and self._seen[0]
        return not others or steady() >= self._seen_at + LEASE_SECONDS

    def _fresh(self) -> Manifest:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._taking({}), "renewTime": _now()},
        }

    def _taking(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "acquireTime": _now(),
            "leaseTransitions": spec.get("leaseTransitions", -1) + 1,
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
