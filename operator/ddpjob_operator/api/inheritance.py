"""Labels and annotations that all objects of a job get, and those that never leave the place where a user wrote them.

A cluster's policies may demand labels of every object. But tools act on labels, too: Kueue would hold the same pods
back twice, Argo CD would prune what is not in its repository, and two Services would be scraped for one job.
"""

import re
from collections.abc import Iterable, Mapping

from .contract import GROUP

CARRIED = frozenset({f"app.kubernetes.io/{name}" for name in ("part-of", "component", "version")})
"""Keys that only describe, although their domain is reserved."""

DOMAINS = (".kubernetes.io", ".k8s.io", ".x-k8s.io", ".argoproj.io", f".{GROUP}")
TOOLS = (".argocd.", ".helm.")
"""Domains of keys by which Kubernetes, queues and delivery tools recognise one particular object. They are DOMAINS
with their subdomains, and all domains that contain one of TOOLS."""

KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

MOST_INHERITED = 32
"""How many labels the operator's settings may add, and how many keys they may name."""
LONGEST_VALUE = 1024
"""Longer annotations are left out: they would be kept in the job's status, and in each of its objects."""


def is_reserved(key: str) -> bool:
    """Whether objects never get this key from a job, its template or the operator's settings."""
    prefix, slash, _ = key.partition("/")
    domain = f".{prefix}"
    of_a_tool = domain.endswith(DOMAINS) or any(part in domain for part in TOOLS)
    return bool(slash) and of_a_tool and key not in CARRIED


def carried(marks: Mapping[str, str]) -> dict[str, str]:
    """The labels or annotations without those that are reserved."""
    return {key: value for key, value in marks.items() if not is_reserved(key)}


def chosen(marks: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """The labels or annotations with these keys."""
    return {key: value for key in keys if (value := marks.get(key)) is not None and len(value) <= LONGEST_VALUE}
