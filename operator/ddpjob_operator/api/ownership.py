"""Whose an object is: what counts as a job's own has all that the operator gives what it makes, the name included.

Labels and uids anybody can copy. All together prove what can be proven: whoever may create objects in a job's own
namespace, under the very names that the operator gives, may do as much to the job in other ways.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .contract import GROUP, KIND, MAX_NODES, SUFFIX_LENGTH, Label

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes uses for generated names: no vowels, so no words, and no look-alikes."""

LARGEST_INCARNATION = 2**31


class JobRef(NamedTuple):
    """Which job it is."""

    namespace: str
    name: str
    uid: str


class Controller(NamedTuple):
    """What controls an object, by its owner reference: always something in the object's own namespace."""

    api_version: str
    kind: str
    name: str
    uid: str


Named = Callable[[JobRef, str, Mapping[str, str]], bool]
"""Whether a job's object of a kind has this name, given its labels."""


def owner(
    controller: Controller | None, namespace: str, name: str, labels: Mapping[str, str], named: Named
) -> JobRef | None:
    """The job to which an object belongs; None if it was not made for any.

    The version of the job's API may be any: it will change.
    """
    if controller is None or controller.kind != KIND or controller.api_version.partition("/")[0] != GROUP:
        return None
    job = JobRef(namespace, controller.name, controller.uid)
    return job if named(job, name, labels) else None


def name_of_pod(job: JobRef, node: int, incarnation: int) -> str:
    """`<job>-<node>-<suffix>`: never the name of a former incarnation's pod, or of a former job's of this name."""
    return f"{job.name}-{node}-{suffix(f'{job.uid}/{incarnation}')}"


def name_of_group(job: JobRef, incarnation: int) -> str:
    """`<job>-<suffix>`: each attempt of the whole gang has its own, with the suffix of its pods."""
    return f"{job.name}-{suffix(f'{job.uid}/{incarnation}')}"


def name_beside(job: JobRef) -> str:
    """`<job>-<suffix>`: what stands beside the pods, once for the whole job; never the name of a former job's."""
    return f"{job.name}-{suffix(job.uid)}"


def name_in_queue(job: JobRef) -> str:
    """`<job>-<suffix>`: a job has one place in a queue, and never that of a former job of its name."""
    return f"{job.name}-{suffix(f'{job.uid}/queue')}"


def pod(job: JobRef, name: str, labels: Mapping[str, str]) -> bool:
    """Of the pods of any incarnation, by their labels."""
    place = place_of(labels)
    return place is not None and labels.get(Label.JOB_UID) == job.uid and name == name_of_pod(job, *place)


def beside(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Of what stands beside the pods, once for the whole job."""
    return name == name_beside(job)


def group(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Of a PodGroup or its Workload, of whichever attempt: neither says of which one it is."""
    start, _dash, end = name.rpartition("-")
    return start == job.name and len(end) == SUFFIX_LENGTH and set(end) <= set(ALPHABET)


def in_queue(job: JobRef, name: str, _: Mapping[str, str]) -> bool:
    """Of a Workload of Kueue's."""
    return name == name_in_queue(job)


def place_of(labels: Mapping[str, str]) -> tuple[int, int] | None:
    """A pod's node and incarnation; None if its labels do not name any that there can be."""
    node, incarnation = labels.get(Label.NODE, ""), labels.get(Label.INCARNATION, "")
    if not (_is_short_number(node) and _is_short_number(incarnation)):
        return None
    place = int(node), int(incarnation)
    return place if place[0] < MAX_NODES and place[1] <= LARGEST_INCARNATION else None


def _is_short_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(LARGEST_INCARNATION))


def suffix(text: str) -> str:
    """A few letters that stand for a text."""
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    letters = ""
    for _ in range(SUFFIX_LENGTH):
        digest, letter = divmod(digest, len(ALPHABET))
        letters += ALPHABET[letter]
    return letters
