"""Finds out from events whether an autoscaler is adding a Kubernetes node for a pod."""

from http import HTTPStatus

from .kube.api_client import EVENTS, ApiClient, ApiError
from .kube.objects import EventObject

REASONS = {"TriggeredScaleUp", "Nominated"}
"""The reasons of the events by which the Cluster Autoscaler and Karpenter report that they are adding a node."""


async def adds_a_node(api: ApiClient, namespace: str, uid: str) -> bool:
    """Whether an autoscaler has begun to add a node for the pod with this uid; False if listing events is forbidden.

    Raises:
        ApiError: the events cannot be listed now.
    """
    try:
        events, _ = await api.list(EVENTS, namespace, fields=f"involvedObject.uid={uid}")
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return False
    return any(isinstance(event, EventObject) and event.reason in REASONS for event in events)
