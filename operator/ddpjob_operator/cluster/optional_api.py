"""Where the operator can make what not every cluster has, or lets it make: PodGroups, for example.

Nothing depends on them: where they are not served, or the operator's role is older than they are, all else goes on.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ddpjob_operator.engine import KUEUE_API, SCHEDULING_API, VOLCANO_API

from .kube import rights
from .kube.api_client import (
    DISRUPTION_BUDGETS,
    KUEUE_WORKLOADS,
    POD_GROUPS,
    VOLCANO_GROUPS,
    WORKLOADS,
    ApiClient,
    ApiError,
    Resource,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Optional:
    """Kinds of objects that belong together, and what it takes to make them."""

    name: str
    version: str
    """The API group's, which has to be served."""
    kinds: Sequence[Resource[Any]]
    rights: rights.Rights
    """In each namespace."""
    means: str
    """What follows if they can be made, in a sentence."""


GANGS = Optional(
    "PodGroups",
    SCHEDULING_API,
    (WORKLOADS, POD_GROUPS),
    rights.POD_GROUP_RIGHTS,
    "the cluster's scheduler places gangs",
)
"""Kubernetes has had them since 1.37, behind a feature gate."""

VOLCANO = Optional(
    "Volcano", VOLCANO_API, (VOLCANO_GROUPS,), rights.VOLCANO_RIGHTS, "it places gangs of its own pods"
)

BUDGETS = Optional(
    "PodDisruptionBudgets",
    "policy/v1",
    (DISRUPTION_BUDGETS,),
    rights.BUDGET_RIGHTS,
    "drains wait for checkpoints if a job asks for that",
)

KUEUE = Optional("Kueue", KUEUE_API, (KUEUE_WORKLOADS,), rights.KUEUE_RIGHTS, "its queues admit jobs that name one")


class OptionalApi:
    """The namespaces in which they can be made."""

    def __init__(self, api: ApiClient, what: Optional) -> None:
        self._api = api
        self.what = what
        self._why_not: dict[str | None, str] = {}
        """For each namespace that was looked at, None for all together; empty if it can."""

    @property
    def kinds(self) -> Sequence[Resource[Any]]:
        """What they are."""
        return self.what.kinds

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
            logger.info("%s (%s): %s", self.what.name, where, why_not or self.what.means)
        self._why_not[namespace] = why_not
        return changed

    async def _obstacle(self, namespace: str | None) -> str:
        kinds = self.what.kinds
        try:
            served = await self._api.served(kinds[0].path)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            served = frozenset()
        if missing := [kind.plural for kind in kinds if kind.plural not in served]:
            return f"the cluster does not serve {missing[0]} ({self.what.version})"
        lacking = await rights.missing_of(self._api, self.what.rights, namespace)
        return f"the operator may not {lacking[0]}" if lacking else ""
