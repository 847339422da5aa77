"""The 1,000 fields that Kubernetes defines, in the pod template and in a volume's source."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ddpjob_operator.api.validation import problems

from tests.support.jobs import a_job
from tests.unit.engine.builders import a_document
from tests.unit.engine.builders import a_job as a_scene

from .leaves import FOREIGN, Leaf, Schema, greatest, least, leaves, put
from .server import Server

THEIRS = [leaf for leaf in leaves() if leaf.foreign]
GPU = "nvidia.com/gpu"
TRAINER = {"name": "trainer", "image": "any"}
SPEC: dict[str, Any] = {
    "nodes": 2,
    "activeDeadlineSeconds": 60,
    "checkpoint": {"path": "/checkpoints"},
    "template": {"spec": {"containers": [TRAINER]}},
}
SHARES = 4
IN_FULL = pytest.mark.full(
    "one rule stands for the whole template: every fourth of its fields is asked for in make test"
)
NOT_NOW = "may change only while the job is suspended: set spec.suspend first"


def with_value(leaf: Leaf, value: Any) -> dict[str, Any]:
    """A spec with this value and with a trainer."""
    if leaf.schema.get("additionalProperties") and not value:
        value = {GPU: least(leaf.schema["additionalProperties"])}
    spec = put(SPEC, leaf.path, value)
    containers = spec["template"]["spec"]["containers"]
    if not containers or containers[0].get("name") != "trainer":
        spec["template"]["spec"]["containers"] = [TRAINER | (containers[0] if containers else {}) | TRAINER]
    return spec


@pytest.mark.parametrize("end", [least, greatest])
def test_whatever_is_valid_there_can_be_decided_on(end: Callable[[Schema], Any]) -> None:
    """Tests a fifth of the fields, different ones in each run. Each goes through two whole lives of a job."""
    wrong: dict[str, list[str]] = {}
    tried = 0
    some = random.sample(THEIRS, len(THEIRS) // 5)
    for leaf in some:
        spec = with_value(leaf, end(leaf.schema))
        valid = not problems({**a_document(**spec), "metadata": {"name": "digits"}})
        tried += valid
        if valid and (said := list(_undecided(spec))):
            wrong[leaf.path] = said
    assert wrong == {}
    assert tried > 0.8 * len(some)


def _undecided(spec: dict[str, Any]) -> Iterator[str]:
    """Yields what is wrong with the ends of two lives: one job exceeds its deadline, and one is suspended."""
    try:
        begun = a_scene(**spec).settled()
        ends = {
            "Failed": begun.after(60).decided().gone().settled(),
            "Suspended": begun.asks(suspend=True).settled().gone().settled(),
        }
    except Exception as error:  # noqa: BLE001  Any error here would appear as a bug in the operator's log.
        yield repr(error)
    else:
        yield from (f"{end.status.state}, not {state}" for state, end in ends.items() if end.status.state != state)


@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=IN_FULL) for share in range(1, SHARES))])
def test_a_running_job_keeps_them_and_a_suspended_one_does_not(server: Server, share: int) -> None:
    leaves_of_share = THEIRS[share::SHARES]
    job = {kind: a_job(f"foreign-{kind}-{share}") for kind in ("live", "resting")}
    made = {kind: server.create(one | {"spec": SPEC | {"suspend": kind == "resting"}}) for kind, one in job.items()}
    wrong: dict[str, str] = {}
    tried = 0
    for leaf in leaves_of_share:
        spec = with_value(leaf, least(leaf.schema))
        if spec == SPEC:
            continue
        _, said = server.try_to_replace(made["resting"] | {"spec": spec | {"suspend": True}})
        if said:  # Another rule refuses this value, so it shows nothing here. Other tests cover it.
            continue
        tried += 1
        _, said = server.try_to_replace(made["live"] | {"spec": spec})
        if NOT_NOW not in said:
            wrong[leaf.path] = said
    assert wrong == {}
    assert tried > 0.9 * len(leaves_of_share)


@pytest.mark.parametrize("place", FOREIGN)
def test_a_value_of_another_type_is_refused_with_its_path(server: Server, place: str) -> None:
    wrong: dict[str, str] = {}
    for leaf in THEIRS:
        if not leaf.path.startswith(place) or leaf.schema.get("x-kubernetes-int-or-string"):
            continue
        bad = 5 if leaf.schema["type"] in {"string", "array", "object"} else "a word"
        _, said = server.try_to_create(a_job("new") | {"spec": put(SPEC, leaf.path, bad)})
        path = f"spec.{leaf.path}".replace("[]", "[0]")
        if path not in said or f"must be of type {_kind(leaf)}" not in said:
            wrong[leaf.path] = said
    assert wrong == {}


def _kind(leaf: Leaf) -> str:
    """The name of the type in the API server's messages."""
    return "date-time" if leaf.schema.get("format") == "date-time" else str(leaf.schema["type"])
