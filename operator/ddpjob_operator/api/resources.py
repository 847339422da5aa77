"""What containers ask of their Kubernetes node."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

EVERYWHERE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that all Kubernetes nodes have; all others are devices, or as scarce."""

DECIMAL = {suffix: Fraction(1000) ** power for power, suffix in enumerate(["n", "u", "m", "", *"kMGTPE"], -3)}
BINARY = {f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
SUFFIXES = {**DECIMAL, **BINARY}
QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.ASCII
)


def without_devices(container: Mapping[str, Any]) -> dict[str, Any]:
    """The field `resources` for a container that runs before `container`: the same amounts, but no devices.

    These amounts satisfy whatever a LimitRange or a quota demands of a container, because those of `container` have
    to satisfy it, too. They add nothing to what the pod requests: that is either the request of its largest init
    container or the sum of the requests of its containers, whichever is larger. If there are no amounts, the field is
    left out, so that a LimitRange's defaults apply to both containers.
    """
    named = {
        kind: {resource: amount for resource, amount in amounts.items() if resource in EVERYWHERE}
        for kind, amounts in container.get("resources", {}).items()
        if kind in {"requests", "limits"}
    }
    asked = {kind: amounts for kind, amounts in named.items() if amounts}
    return {"resources": asked} if asked else {}


def amount_of(text: str) -> Fraction | None:
    """A quantity, such as `4`, `500m`, `1e3` or `16Gi`; None if it is not one."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    factor = Fraction(10) ** int(exponent) if exponent else SUFFIXES[suffix or ""]
    return Fraction(number) * factor
