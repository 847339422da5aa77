"""Reads Kubernetes nodes, to find out why a pod has disappeared or which topology domain a pod is in.

A watch on all nodes would be too expensive for that.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from http import HTTPStatus

from .conversion import node_problem
from .kube.api_client import NODES, ApiClient, ApiError
from .kube.objects import NodeObject

AGAIN_SECONDS = 60.0
"""How long to wait after a refusal before nodes are read again. (Roles may change while the operator runs.)"""

FORBIDDEN = "this operator is not allowed to read Kubernetes nodes"

logger = logging.getLogger(__name__)


class KubernetesNodes:
    """The problems and the topology domains of Kubernetes nodes, if the operator may read them (`rbac.nodes`)."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._forbidden_until = 0.0

    async def problems(self, names: Collection[str]) -> dict[str, str]:
        """Returns the problem of each node, worded as the end of a sentence; empty if the node has no problem.

        Nodes that cannot be read now are left out.
        """
        return {name: node_problem(node) for name, node in (await self._read(names)).items()}

    async def domains(self, names: Collection[str], key: str) -> dict[str, str]:
        """Returns each node's value of the label `key`; empty if there is no such label, node or right.

        Nodes that cannot be read now are left out.
        """
        found = await self._read(names)
        if self._forbidden:
            return dict.fromkeys(names, "")
        return {name: node.metadata.labels.get(key, "") if node else "" for name, node in found.items()}

    @property
    def _forbidden(self) -> bool:
        return time.monotonic() < self._forbidden_until

    async def _read(self, names: Collection[str]) -> dict[str, NodeObject | None]:
        """Returns the nodes that can be read now, by name. A node that is gone has the value None."""
        if self._forbidden:
            return {}
        answers = await asyncio.gather(*(self._node(name) for name in names))
        return {name: node for answer in answers for name, node in answer.items()}

    async def _node(self, name: str) -> dict[str, NodeObject | None]:
        try:
            found = await self._api.get(NODES, None, name)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                if not self._forbidden_until:
                    logger.info(
                        "%s, so it finds causes only in pods, and does not order ranks by their placement", FORBIDDEN
                    )
                self._forbidden_until = time.monotonic() + AGAIN_SECONDS
            return {}
        self._forbidden_until = 0.0
        return {name: found}
