"""Whether an autoscaler makes room for a pod: it says so in an event, read when a gang is about to give way."""

import logging
from http import HTTPStatus

from .kube.api_client import EVENTS, ApiClient, ApiError
from .kube.forbidden import Forbidden
from .kube.objects import EventObject

SAID = {"TriggeredScaleUp", "Nominated"}
"""Reasons of such events: of the Cluster Autoscaler, and of Karpenter."""

logger = logging.getLogger(__name__)


class Autoscalers:
    """What autoscalers do for pods, if this operator may list events: a role that is older than itself lacks that."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._forbidden = Forbidden()

    async def add_a_node_for(self, namespace: str, uid: str) -> bool:
        """Whether one has begun to add a node for the pod with this uid.

        Raises:
            ApiError: that cannot be determined now.
        """
        if self._forbidden.there(namespace):
            return False
        try:
            events, _ = await self._api.list(EVENTS, namespace, fields=f"involvedObject.uid={uid}")
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            if self._forbidden.refused(namespace):
                logger.info(
                    "namespace %s: this operator may not list events, so gangs give way whatever an autoscaler does",
                    namespace,
                )
            return False
        self._forbidden.permitted(namespace)
        return any(isinstance(event, EventObject) and event.reason in SAID for event in events)
