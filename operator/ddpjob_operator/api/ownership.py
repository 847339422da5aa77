"""Which job owns an object: its owner reference, labels and name must all be those that the operator gives.

Anybody can copy a label or a uid, so no single part is a proof. All parts together are as much proof as there can be:
a user who may create objects in the job's namespace under such names can do as much to the job in other ways.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .contract import GROUP, KIND, MAX_NODES, SUFFIX_LENGTH, Label

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The letters and digits of Kubernetes' generated names: no vowels, so no words, and no look-alikes."""

LARGEST_INCARNATION = 2**31


class JobRef(NamedTuple):
    """Identifies a job."""

    namespace: str
    name: str
    uid: str


class Controller(NamedTuple):
    """An object's controller as its owner reference names it; it is in the object's own namespace."""

    api_version: str
    kind: str
    name: str
    uid: str


Named = Callable[[JobRef, str, Mapping[str, str]], bool]
"""For one kind of object: whether a job's object with these labels has this name."""


def owner(
    controller: Controller | None, namespace: str, name: str, labels: Mapping[str, str], named: Named
) -> JobRef | None:
    """The job to which an object belongs; None if it was made for no job.

    The version in the owner reference does not matter, because it changes with the API.
    """
    if controller is None or controller.kind != KIND or controller.api_version.partition("/")[0] != GROUP:
        return None
    job = JobRef(namespace, controller.name, controller.uid)
    return job if named(job, name, labels) else None


def name_of_pod(job: JobRef, node: int, incarnation: int) -> str:
    """`<job>-<node>-<suffix>`: unlike that of any other incarnation, or of a job recreated under the same name."""
    return f"{job.name}-{node}-{suffix(f'{job.uid}/{incarnation}')}"


def name_of_group(job: JobRef, incarnation: int) -> str:
    """`<job>-<suffix>`: the PodGroup of one start of the whole gang; the suffix is that of its pods."""
    return f"{job.name}-{suffix(f'{job.uid}/{incarnation}')}"


def name_beside(job: JobRef) -> str:
    """`<job>-<suffix>`: an object of which a job has one, such as its Service; a recreated job has another name."""
    return f"{job.name}-{suffix(job.uid)}"


def name_in_queue(job: JobRef) -> str:
    """`<job>-<suffix>`: the job's one Workload in a Kueue queue; a recreated job has another name."""
    return f"{job.name}-{suffix(f'{job.uid}/queue')}"


def pod(job: JobRef, name: str, labels: Mapping[str, str]) -> bool:
    """Whether this is the name of the job's pod with these labels, of any incarnation."""
    place = place_of(labels)
    return place is not None and labels.get(Label.JOB_UID) == job.uid and name == name_of_pod(job, *place)


def beside(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Whether this is the name of an object of which the job has only one."""
    return name == name_beside(job)


def group(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Whether this can be the name of a PodGroup or its Workload: no label says for which attempt it was made."""
    start, _dash, end = name.rpartition("-")
    return start == job.name and len(end) == SUFFIX_LENGTH and set(end) <= set(ALPHABET)


def in_queue(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Whether this is the name of the job's Workload in a Kueue queue."""
    return name == name_in_queue(job)


def place_of(labels: Mapping[str, str]) -> tuple[int, int] | None:
    """The node and incarnation in a pod's labels; None if either is missing, not a number or too large."""
    node, incarnation = labels.get(Label.NODE, ""), labels.get(Label.INCARNATION, "")
    if not (_is_short_number(node) and _is_short_number(incarnation)):
        return None
    place = int(node), int(incarnation)
    return place if place[0] < MAX_NODES and place[1] <= LARGEST_INCARNATION else None


def _is_short_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(LARGEST_INCARNATION))


def suffix(text: str) -> str:
    """SUFFIX_LENGTH letters and digits from a hash of the text."""
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    letters = ""
    for _ in range(SUFFIX_LENGTH):
        digest, letter = divmod(digest, len(ALPHABET))
        letters += ALPHABET[letter]
    return letters
