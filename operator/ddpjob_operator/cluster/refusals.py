"""Interprets refusals by the API server: their reason, which containers they concern, and whether a retry may help.

Many refusals differ only in the text of their message: an exceeded quota, a LimitRange and a violation of Pod
Security are all Forbidden, and a policy may choose any status. The texts here are those of Kubernetes 1.30 to 1.37.
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
somebody has to fix the webhook."""

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
"""The reasons for refusals, by parts of the API server's messages. The first part that a message contains counts.

The first two parts come from admission webhooks and ValidatingAdmissionPolicies, whose own messages may contain any
of the others.
"""
FOR_GOOD = frozenset(
    {
        *(Reason.LIMIT_RANGE_VIOLATION, Reason.RESOURCES_MISSING, Reason.POD_SECURITY_VIOLATION),
        *(Reason.POLICY_DENIED, Reason.INVALID),
    }
)
"""Reasons for which pods of this template are refused until somebody changes the template or the policy. Any other
refusal may be temporary: "there was an error enforcing limit ranges", for example, or a role that is just being
replaced."""
INVALID_STATUSES = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}

# All patterns are bounded, because they are matched against texts that others may choose.
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
"""How the API server identifies a container in a message: by its index in the pod, which the user never sees."""


@dataclass(frozen=True, slots=True)
class Refused(Exception):  # noqa: N818  It is a finding, not an error.
    """An object of the job cannot be created or changed until something outside the job changes."""

    reason: str
    """One CamelCase word."""
    message: str
    """The API server's own words, if the server refused the request."""
    fits: int | None = None
    """The most pods that the job could have even if everything else in the namespace ended; None: any number."""


def is_refused(error: ApiError) -> bool:
    """Whether somebody else has to fix the cause of the error. If not, the action is simply retried."""
    return error.status != HTTPStatus.CONFLICT and (not error.passing or DEAD_WEBHOOK in error.message)


def is_over_quota(error: ApiError) -> bool:
    """Whether a ResourceQuota has refused the object."""
    return is_refused(error) and _reason(error) is Reason.QUOTA_EXCEEDED


def refusal(error: ApiError) -> Exception:
    """Converts the error to Refused if somebody else has to fix its cause. Returns other errors unchanged."""
    return Refused(_reason(error), error.message) if is_refused(error) else error


def refusal_of_pod(error: ApiError, pod: Manifest) -> Exception:
    """Does the same as `refusal` for a pod, and also names the containers and the number of pods that would fit."""
    if not is_refused(error):
        return error
    reason, meant = _reason(error), ", ".join(dict.fromkeys(_meant(error.message, pod["spec"])))
    unnamed = f" (container {meant})" if meant and f'"{meant}"' not in error.message else ""
    return Refused(reason, f"{error.message}{unnamed}", _fits(reason, error.message))


def _reason(error: ApiError) -> Reason:
    """Returns the reason of a refusal, for the job's status."""
    by_status = Reason.INVALID if error.status in INVALID_STATUSES else Reason.FORBIDDEN
    return next((reason for words, reason in REASON_BY_WORDS.items() if words in error.message), by_status)


def _fits(reason: Reason, message: str) -> int | None:
    """Returns how many of the gang's pods, whose requests are all equal, would fit; None if any number would."""
    if reason in FOR_GOOD:
        return 0
    quota = QUOTA.search(message) if reason is Reason.QUOTA_EXCEEDED else None
    if quota is None:
        return None
    asked, limits = map(_amounts, quota.groups())
    return min((limits[name] // each for name, each in asked.items() if each > 0 and name in limits), default=None)


def _amounts(words: str) -> dict[str, Fraction]:
    """Parses a text such as `cpu=1,memory=2Gi`. Amounts that cannot be parsed are left out."""
    pairs = (pair.partition("=")[::2] for pair in words.split(","))
    return {name: amount for name, text in pairs if (amount := amount_of(text)) is not None}


def _meant(message: str, spec: Manifest) -> Iterator[str]:
    """Yields the names of the containers that a refusal concerns."""
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    for found in OF_CONTAINER.finditer(message):
        wanted = amount_of(found["amount"]) if found["amount"] else None
        kind = found["kind"] or found["missing"]
        asked = {one["name"]: _asked(one, found["resource"], kind) for one in containers}
        # If no container names this amount, it is the LimitRange's default for containers that name no amount.
        yield from [name for name, amount in asked.items() if amount == wanted] or [
            name for name, amount in asked.items() if amount is None
        ]
    for found in OF_RATIO.finditer(message):
        yield from (one["name"] for one in containers if _ratio(one, found["resource"]) == found["ratio"])
    for kind, place in CONTAINER_PATH.findall(message):
        yield from (one["name"] for one in spec.get(kind, ())[int(place) : int(place) + 1])


def _ratio(container: Manifest, resource: str) -> str | None:
    """A container's limit divided by its request, as the API server writes it; None if either is missing."""
    limit, request = _asked(container, resource, "limit"), _asked(container, resource, "request")
    return f"{float(limit / request):.6f}" if limit and request else None


def _asked(container: Manifest, resource: str, kind: str) -> Fraction | None:
    """Returns a container's request or limit, depending on `kind`. A missing request counts as equal to the limit."""
    named: dict[str, Any] = container.get("resources", {})
    kinds = ("requests", "limits") if kind == "request" else ("limits",)
    amount = next((named[one][resource] for one in kinds if resource in named.get(one, {})), None)
    return None if amount is None else amount_of(str(amount))
