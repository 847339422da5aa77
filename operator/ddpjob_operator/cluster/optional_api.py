"""Where the operator can make what not every cluster has, or lets it make: PodGroups, for example.

Nothing depends on them: where they are not served, or the operator's role is older than they are, all else goes on.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from ddpjob_operator.engine import OWNED, Feature

from .kinds import RESOURCES
from .kube import rights
from .kube.api_client import ApiClient, ApiError

logger = logging.getLogger(__name__)

MEANS: Mapping[Feature, str] = {
    Feature.POD_GROUPS: "the cluster's scheduler places gangs",
    Feature.VOLCANO: "it places gangs of its own pods",
    Feature.KUEUE: "its queues admit jobs that name one",
    Feature.DISRUPTION_BUDGETS: "drains wait for checkpoints if a job asks for that",
}
"""What follows if they can be made, in a sentence."""


class OptionalApi:
    """The namespaces in which they can be made."""

    def __init__(self, api: ApiClient, feature: Feature) -> None:
        self._api = api
        self.feature = feature
        self.kinds = [RESOURCES[kind] for kind in OWNED if kind.feature is feature]
        """What they are."""
        self._why_not: dict[str | None, str] = {}
        """For each namespace that was looked at, None for all together; empty if it can."""

    def granted(self, namespace: str | None) -> bool:
        """Whether they can be made there, None for everywhere, as far as is known."""
        return any(self._why_not.get(one) == "" for one in (namespace, None))

    def knows(self, namespace: str | None) -> bool:
        """Whether it was found out about."""
        return namespace in self._why_not

    async def look(self, namespace: str | None) -> bool:
        """Finds out about a namespace, or about all; whether that has changed, which the log says, too.

        Raises:
            ApiError: that cannot be determined now.
        """
        why_not = await self._obstacle(namespace)
        changed = self._why_not.get(namespace) != why_not
        if changed:
            where = f"namespace {namespace}" if namespace else "all namespaces"
            logger.info("%s (%s): %s", self.feature, where, why_not or MEANS[self.feature])
        self._why_not[namespace] = why_not
        return changed

    async def _obstacle(self, namespace: str | None) -> str:
        try:
            served = await self._api.served(self.kinds[0].path)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            served = frozenset()
        if missing := [kind for kind in self.kinds if kind.plural not in served]:
            return f"the cluster does not serve {missing[0].plural} ({missing[0].path.removeprefix('/apis/')})"
        lacking = await rights.missing_of(self._api, rights.FEATURE_RIGHTS[self.feature], namespace)
        return f"the operator may not {lacking[0]}" if lacking else ""
