"""Nodes, read when a pod disappears, to find out why: a watch on all of them would cost more than it is worth."""

import asyncio
import logging
from collections.abc import Collection
from http import HTTPStatus

from .conversion import node_problem
from .kube.api_client import NODES, ApiClient, ApiError

logger = logging.getLogger(__name__)


class Nodes:
    """What is wrong with nodes, if this operator may read them: that right is an option of the chart."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._allowed = True

    async def problems(self, names: Collection[str]) -> dict[str, str]:
        """For each node, what is wrong with it, in a sentence; empty if nothing is. Unknown ones are left out."""
        if not self._allowed:
            return {}
        told = await asyncio.gather(*(self._problem(name) for name in names))
        return {name: problem for name, problem in zip(names, told, strict=True) if problem is not None}

    async def _problem(self, name: str) -> str | None:
        try:
            node = await self._api.get(NODES, None, name)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN and self._allowed:
                self._allowed = False
                logger.info("this operator may not read nodes, so causes are derived from pods alone")
            return None
        return node_problem(node)
