"""Whether an autoscaler makes room for a pod: it says so in an event, read when a gang is about to give way."""

from http import HTTPStatus

from .kube.api_client import EVENTS, ApiClient, ApiError
from .kube.objects import EventObject

REASONS = {"TriggeredScaleUp", "Nominated"}
"""Reasons of such events: of the Cluster Autoscaler, and of Karpenter."""


async def adds_a_node(api: ApiClient, namespace: str, uid: str) -> bool:
    """Whether one has begun to add a node for the pod with this uid; no, where this operator may not list events.

    Raises:
        ApiError: that cannot be determined now.
    """
    try:
        events, _ = await api.list(EVENTS, namespace, fields=f"involvedObject.uid={uid}")
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return False
    return any(isinstance(event, EventObject) and event.reason in REASONS for event in events)
