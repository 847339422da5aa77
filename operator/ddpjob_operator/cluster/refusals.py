"""What a refusal by the API server means: a word for it, which containers it is about, whether it will pass.

Many refusals differ only in their words: an exceeded quota, a LimitRange and a violation of Pod Security are all
Forbidden, and a policy may choose any status. The words known here are those of Kubernetes 1.30 to 1.37.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from http import HTTPStatus
from typing import Any

from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.resources import amount_of
from ddpjob_operator.engine import Manifest

from .kube.api_client import ApiError

DEAD_WEBHOOK = "failed calling webhook"
"""Part of the API server's message if an admission webhook does not answer. The server reports an internal error, but
it is the webhook that somebody has to fix."""

REASON_BY_WORDS = {
    "denied the request": Reason.POLICY_DENIED,
    "denied request: ": Reason.POLICY_DENIED,
    "exceeded quota": Reason.QUOTA_EXCEEDED,
    "failed quota": Reason.RESOURCES_MISSING,
    "violates PodSecurity": Reason.POD_SECURITY_VIOLATION,
    DEAD_WEBHOOK: Reason.WEBHOOK_FAILED,
    " usage per ": Reason.LIMIT_RANGE_VIOLATION,
    " max limit to request ratio per ": Reason.LIMIT_RANGE_VIOLATION,
}
"""Parts of the API server's messages, with the reason that each stands for. The first one that is found counts.

The first two are about admission webhooks and ValidatingAdmissionPolicies, whose own words may contain the others.
"""
FOR_GOOD = frozenset(
    {
        *(Reason.LIMIT_RANGE_VIOLATION, Reason.RESOURCES_MISSING, Reason.POD_SECURITY_VIOLATION),
        *(Reason.POLICY_DENIED, Reason.INVALID),
    }
)
"""Reasons for which every such pod is refused until somebody changes the template, or whatever refuses it. Everything
else may be forbidden only for a moment: "there was an error enforcing limit ranges", a role that is being
replaced."""
INVALID_STATUSES = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}

# All patterns are bounded, because they are matched against words that others may choose.
QUOTA = re.compile(r"requested: (\S{1,4096}), used: \S{1,4096}, limited: (\S{1,4096})")
OF_CONTAINER = re.compile(
    r"m(?:in|ax)imum (?P<resource>\S{1,317}) usage per Container is [^\s,]{1,64}"
    r"(?:, but (?P<kind>request|limit) is (?P<amount>[^\s,\]]{1,64})|\.  No (?P<missing>request|limit) is specified)"
)
"""https://github.com/kubernetes/kubernetes/blob/master/plugin/pkg/admission/limitranger/admission.go"""
OF_RATIO = re.compile(
    r"(?P<resource>\S{1,317}) max limit to request ratio per Container is [^\s,]{1,64}, but "
    r"(?:provided ratio is (?P<ratio>\d{1,64}\.\d{6})|no (?:request|limit) is specified or (?:request|limit) is 0)"
)
CONTAINER_PATH = re.compile(r"spec\.(initContainers|containers)\[(\d{1,3})\]")
"""How the API server names a field: by its place in the pod, which the user never sees."""


@dataclass(frozen=True, slots=True)
class Refused(Exception):  # noqa: N818  It is a finding, not an error.
    """An object of the job cannot be created or changed until something outside the job changes."""

    reason: str
    """One CamelCase word."""
    message: str
    """In the API server's own words, if it was the server that refused."""
    fits: int | None = None
    """The most pods that the job can have, even if all else in the namespace ended; None: any number."""


def is_refused(error: ApiError) -> bool:
    """Whether somebody else has to fix the cause of the error; if not, the action is simply tried again."""
    return error.status != HTTPStatus.CONFLICT and (not error.passing or DEAD_WEBHOOK in error.message)


def refusal(error: ApiError) -> Exception:
    """The error as Refused if somebody else has to fix its cause; otherwise the error as it is."""
    return Refused(_reason(error), error.message) if is_refused(error) else error


def refusal_of_pod(error: ApiError, pod: Manifest) -> Exception:
    """Like `refusal`, for a pod: names the containers concerned, and says how many such pods there can be."""
    if not is_refused(error):
        return error
    reason, meant = _reason(error), ", ".join(dict.fromkeys(_meant(error.message, pod["spec"])))
    unnamed = f" (container {meant})" if meant and f'"{meant}"' not in error.message else ""
    return Refused(reason, f"{error.message}{unnamed}", _fits(reason, error.message))


def _reason(error: ApiError) -> Reason:
    """The reason of a refusal, for the job's status."""
    by_status = Reason.INVALID if error.status in INVALID_STATUSES else Reason.FORBIDDEN
    return next((reason for words, reason in REASON_BY_WORDS.items() if words in error.message), by_status)


def _fits(reason: Reason, message: str) -> int | None:
    """How many such pods there can be while the obstacle stays as it is. All pods of a gang ask for the same."""
    if reason in FOR_GOOD:
        return 0
    quota = QUOTA.search(message) if reason is Reason.QUOTA_EXCEEDED else None
    if quota is None:
        return None
    asked, limits = map(_amounts, quota.groups())
    return min((limits[name] // each for name, each in asked.items() if each > 0 and name in limits), default=None)


def _amounts(words: str) -> dict[str, Fraction]:
    """The amounts in words such as `cpu=1,memory=2Gi`, except those that cannot be read."""
    pairs = (pair.partition("=")[::2] for pair in words.split(","))
    return {name: amount for name, text in pairs if (amount := amount_of(text)) is not None}


def _meant(message: str, spec: Manifest) -> Iterator[str]:
    """The names of the containers that a refusal is about; the template's own before those that the operator adds."""
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    for found in OF_CONTAINER.finditer(message):
        wanted = amount_of(found["amount"]) if found["amount"] else None
        kind = found["kind"] or found["missing"]
        asked = {one["name"]: _asked(one, found["resource"], kind) for one in containers}
        # A container that names no amount has the LimitRange's default.
        yield from [name for name, amount in asked.items() if amount == wanted] or [
            name for name, amount in asked.items() if amount is None
        ]
    for found in OF_RATIO.finditer(message):
        yield from (one["name"] for one in containers if _ratio(one, found["resource"]) == found["ratio"])
    for kind, place in CONTAINER_PATH.findall(message):
        yield from (one["name"] for one in spec.get(kind, ())[int(place) : int(place) + 1])


def _ratio(container: Manifest, resource: str) -> str | None:
    """A container's limit by its request, as the API server writes it; None if it lacks one of them."""
    limit, request = _asked(container, resource, "limit"), _asked(container, resource, "request")
    return f"{float(limit / request):.6f}" if limit and request else None


def _asked(container: Manifest, resource: str, kind: str) -> Fraction | None:
    """What a container asks for. If it names no request, its limit is also its request."""
    named: dict[str, Any] = container.get("resources", {})
    kinds = ("requests", "limits") if kind == "request" else ("limits",)
    amount = next((named[one][resource] for one in kinds if resource in named.get(one, {})), None)
    return None if amount is None else amount_of(str(amount))
