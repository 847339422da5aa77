"""Decides which labels and annotations all objects of a job inherit, and which are reserved for the job itself.

A cluster's policies may demand certain labels on every object. But tools also act on labels: with copied labels,
Kueue would hold the same pods back twice, Argo CD would prune objects that are not in its repository, and Prometheus
would scrape two Services for one job.
"""

import re
from collections.abc import Iterable, Mapping

from .contract import GROUP

CARRIED = frozenset({f"app.kubernetes.io/{name}" for name in ("part-of", "component", "version")})
"""Keys that may be inherited although their domain is reserved, because they are only descriptive."""

DOMAINS = (".kubernetes.io", ".k8s.io", ".x-k8s.io", ".argoproj.io", f".{GROUP}")
TOOLS = (".argocd.", ".helm.")
"""The reserved domains: DOMAINS with their subdomains, and all domains that contain one of TOOLS. Kubernetes, queues
and delivery tools recognise particular objects by keys in these domains."""

KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

MOST_INHERITED = 32
"""How many labels the operator's settings may add, and how many keys to inherit they may name."""
LONGEST_VALUE = 1024
"""The longest annotation that is inherited, because each is stored in the job's status and in each of its objects."""


def is_reserved(key: str) -> bool:
    """Whether a key is reserved, so that objects never inherit it from a job, its template or the settings."""
    prefix, slash, _ = key.partition("/")
    domain = f".{prefix}"
    of_a_tool = domain.endswith(DOMAINS) or any(part in domain for part in TOOLS)
    return bool(slash) and of_a_tool and key not in CARRIED


def carried(marks: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels or annotations that are not reserved."""
    return {key: value for key, value in marks.items() if not is_reserved(key)}


def chosen(marks: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Returns the labels or annotations with these keys, except those that are too long."""
    return {key: value for key in keys if (value := marks.get(key)) is not None and len(value) <= LONGEST_VALUE}
