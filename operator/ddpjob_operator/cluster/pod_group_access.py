"""Where the operator can make PodGroups, by which the cluster's own scheduler places gangs.

Kubernetes has had the API since 1.37, behind a feature gate. Nothing depends on it: where it is not served, or the
operator's role is older than it, gangs start as they always have.
"""

import logging
from http import HTTPStatus

from ddpjob_operator.engine import SCHEDULING_API

from .kube import rights
from .kube.api_client import POD_GROUPS, WORKLOADS, ApiClient, ApiError

logger = logging.getLogger(__name__)


class PodGroupAccess:
    """The namespaces in which it can make them."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._why_not: dict[str | None, str] = {}
        """For each namespace that was looked at, None for all together; empty if it can."""

    def granted(self, namespace: str | None) -> bool:
        """Whether PodGroups can be made there, None for everywhere, as far as is known."""
        return any(self._why_not.get(one) == "" for one in (namespace, None))

    async def look(self, namespace: str | None) -> None:
        """Finds out about a namespace, or about all; the log says when that has changed.

        Raises:
            ApiError: that cannot be determined now.
        """
        why_not = await self._obstacle(namespace)
        if self._why_not.get(namespace) != why_not:
            where = f"namespace {namespace}" if namespace else "all namespaces"
            logger.info("PodGroups (%s): %s", where, why_not or "the cluster's scheduler places gangs")
        self._why_not[namespace] = why_not

    async def _obstacle(self, namespace: str | None) -> str:
        for resource in (WORKLOADS, POD_GROUPS):
            try:
                served = await self._api.served(resource)
            except ApiError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                served = False
            if not served:
                return f"the cluster does not serve {resource.plural} ({SCHEDULING_API})"
        missing = await rights.missing_for_pod_groups(self._api, namespace)
        return f"the operator may not {missing[0]}" if missing else ""
