"""Determines which job owns an object: owner reference, labels and name must all be as the operator sets them.

Anybody can copy a label or a uid, so no single part is a proof. All parts together are the best proof possible,
because a user who may create objects under such names in the job's namespace can harm the job in other ways as well.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .contract import GROUP, KIND, MAX_NODES, SUFFIX_LENGTH, Label

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of Kubernetes' generated names: no vowels, to avoid words, and no characters that look alike."""

LARGEST_INCARNATION = 2**31


class JobRef(NamedTuple):
    """A reference to a job."""

    namespace: str
    name: str
    uid: str


class Controller(NamedTuple):
    """An object's controller, as named in its owner reference. It is always in the object's own namespace."""

    api_version: str
    kind: str
    name: str
    uid: str


Named = Callable[[JobRef, str, Mapping[str, str]], bool]
"""Returns whether an object of a certain kind with this name and these labels can belong to this job."""


def owner(
    controller: Controller | None, namespace: str, name: str, labels: Mapping[str, str], named: Named
) -> JobRef | None:
    """Returns the job that an object belongs to; None if it belongs to no job.

    The API version in the owner reference does not matter, because it changes with the API.
    """
    if controller is None or controller.kind != KIND or controller.api_version.partition("/")[0] != GROUP:
        return None
    job = JobRef(namespace, controller.name, controller.uid)
    return job if named(job, name, labels) else None


def name_of_pod(job: JobRef, node: int, incarnation: int) -> str:
    """Returns `<job>-<node>-<suffix>`. The suffix is new in each incarnation, and after the job is recreated."""
    return f"{job.name}-{node}-{suffix(f'{job.uid}/{incarnation}')}"


def name_of_group(job: JobRef, incarnation: int) -> str:
    """Returns `<job>-<suffix>`, the name of the PodGroup for one start of the gang. Its pods have the same suffix."""
    return f"{job.name}-{suffix(f'{job.uid}/{incarnation}')}"


def name_beside(job: JobRef) -> str:
    """Returns `<job>-<suffix>`, the name of an object that a job has only one of, such as its Service."""
    return f"{job.name}-{suffix(job.uid)}"


def name_in_queue(job: JobRef) -> str:
    """Returns `<job>-<suffix>`, the name of the job's only Workload in a Kueue queue."""
    return f"{job.name}-{suffix(f'{job.uid}/queue')}"


def pod(job: JobRef, name: str, labels: Mapping[str, str]) -> bool:
    """Whether this is the name of the job's pod with these labels, whatever its incarnation."""
    place = place_of(labels)
    return place is not None and labels.get(Label.JOB_UID) == job.uid and name == name_of_pod(job, *place)


def beside(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Whether this is the name of an object that the job has only one of."""
    return name == name_beside(job)


def group(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Whether this can be the name of a PodGroup or its Workload. Any attempt counts, because no label names it."""
    start, _dash, end = name.rpartition("-")
    return start == job.name and len(end) == SUFFIX_LENGTH and set(end) <= set(ALPHABET)


def in_queue(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Whether this is the name of the job's Workload in a Kueue queue."""
    return name == name_in_queue(job)


def place_of(labels: Mapping[str, str]) -> tuple[int, int] | None:
    """Returns node and incarnation from a pod's labels; None if either is missing, not a number or too large."""
    node, incarnation = labels.get(Label.NODE, ""), labels.get(Label.INCARNATION, "")
    if not (_is_short_number(node) and _is_short_number(incarnation)):
        return None
    place = int(node), int(incarnation)
    return place if place[0] < MAX_NODES and place[1] <= LARGEST_INCARNATION else None


def _is_short_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(LARGEST_INCARNATION))


def suffix(text: str) -> str:
    """Returns SUFFIX_LENGTH letters and digits from a hash of the text."""
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    letters = ""
    for _ in range(SUFFIX_LENGTH):
        digest, letter = divmod(digest, len(ALPHABET))
        letters += ALPHABET[letter]
    return letters
