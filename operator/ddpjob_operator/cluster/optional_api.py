"""Checks in which namespaces the operator can create objects of optional APIs, such as PodGroups.

If the cluster does not serve these APIs, or the operator's role does not permit their use, everything else works.
"""

import logging
from http import HTTPStatus

from ddpjob_operator.engine import EFFECTS, OWNED, Feature

from .kinds import RESOURCES
from .kube import rights
from .kube.api_client import ApiClient, ApiError

logger = logging.getLogger(__name__)


class OptionalApi:
    """The namespaces in which the operator can create the objects of one optional feature."""

    def __init__(self, api: ApiClient, feature: Feature) -> None:
        self._api = api
        self.feature = feature
        self.kinds = [RESOURCES[kind] for kind in OWNED if kind.feature is feature]
        """The resources of this feature."""
        self._obstacles: dict[str | None, str] = {}
        """The obstacle that the last check found, by namespace (None: all together); empty if it found none."""

    def granted(self, namespace: str | None) -> bool:
        """Whether the last check found that objects can be created in the namespace (None: in all namespaces)."""
        return any(self._obstacles.get(scope) == "" for scope in (namespace, None))

    def was_checked(self, namespace: str | None) -> bool:
        """Whether the namespace (None: all namespaces together) has been checked."""
        return namespace in self._obstacles

    async def check(self, namespace: str | None) -> bool:
        """Checks a namespace (None: all together). Logs a changed result, and returns whether it has changed.

        Raises:
            ApiError: the API server does not answer, or cannot handle requests now.
        """
        obstacle = await self._find_obstacle(namespace)
        changed = self._obstacles.get(namespace) != obstacle
        if changed:
            where = f"namespace {namespace}" if namespace else "all namespaces"
            logger.info("%s (%s): %s", self.feature, where, obstacle or EFFECTS[self.feature].available)
        self._obstacles[namespace] = obstacle
        return changed

    async def _find_obstacle(self, namespace: str | None) -> str:
        try:
            served = await self._api.served(self.kinds[0].path)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            served = frozenset()
        if missing := [kind for kind in self.kinds if kind.plural not in served]:
            return f"the cluster does not serve {missing[0].plural} ({missing[0].path.removeprefix('/apis/')})"
        lacking = await rights.missing_of(self._api, rights.FEATURE_RIGHTS[self.feature], namespace)
        return f"the operator is not allowed to {lacking[0]}" if lacking else ""
