"""What containers ask of their Kubernetes node."""

from collections.abc import Mapping
from typing import Any

EVERYWHERE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that all Kubernetes nodes have; all others are devices, or as scarce."""


def without_devices(container: Mapping[str, Any]) -> dict[str, Any]:
    """The field `resources` for a container that runs before this one, with this one's room but no devices.

    Whatever a LimitRange or a quota demands of a container, this one's own amounts have to satisfy it. They add
    nothing to the pod: its request is the larger of its largest init container's and the sum of its containers'.
    Without any amounts the field is left out, so that a LimitRange's defaults apply to both.
    """
    named = {
        kind: {resource: amount for resource, amount in amounts.items() if resource in EVERYWHERE}
        for kind, amounts in container.get("resources", {}).items()
        if kind in {"requests", "limits"}
    }
    asked = {kind: amounts for kind, amounts in named.items() if amounts}
    return {"resources": asked} if asked else {}
