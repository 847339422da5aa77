"""The resources that containers request."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

EVERYWHERE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""The resources that all Kubernetes nodes have. All others are devices, or as scarce as devices."""

DECIMAL = {suffix: Fraction(1000) ** power for power, suffix in enumerate(["n", "u", "m", "", *"kMGTPE"], -3)}
BINARY = {f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
SUFFIXES = {**DECIMAL, **BINARY}
QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.ASCII
)


def without_devices(container: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the field `resources` for an init container: the same amounts as those of `container`, but no devices.

    These amounts satisfy every LimitRange and quota that the amounts of `container` satisfy. They do not increase the
    pod's request, which is the larger of two values: the request of its largest init container, and the sum of its
    containers' requests. If `container` has no amounts, the field is left out, so that a LimitRange's defaults apply
    to both containers.
    """
    named = {
        kind: {resource: amount for resource, amount in amounts.items() if resource in EVERYWHERE}
        for kind, amounts in container.get("resources", {}).items()
        if kind in {"requests", "limits"}
    }
    asked = {kind: amounts for kind, amounts in named.items() if amounts}
    return {"resources": asked} if asked else {}


def amount_of(text: str) -> Fraction | None:
    """Parses a quantity such as `4`, `500m`, `1e3` or `16Gi`; None if the text is not a quantity."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    factor = Fraction(10) ** int(exponent) if exponent else SUFFIXES[suffix or ""]
    return Fraction(number) * factor
