"""Whatever a document says, it is accepted, or refused in words."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from .documents import complaint

DOCUMENT = {
    "apiVersion": "ddpjob.dev/v1alpha1",
    "kind": "DDPJob",
    "metadata": {"name": "digits", "annotations": {"a": "b"}},
    "spec": {
        "nodes": 2,
        "procsPerNode": "Auto",
        "masterPort": 29500,
        "elastic": {"minNodes": 1, "maxNodes": 4},
        "checkpoint": {"path": "/saves", "everySteps": 5},
        "restart": {
            "rules": [{"exitCodes": [3, "4-7"], "signals": ["SIGKILL"], "causes": ["Evicted"], "action": "Fail"}]
        },
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "restartPolicy": "Never",
                "volumes": [{"name": "data", "emptyDir": {}}],
                "initContainers": [{"name": "first", "image": "any", "env": [{"name": "A", "value": "b"}]}],
                "containers": [
                    {
                        "name": "trainer",
                        "image": "any",
                        "env": [{"name": "A", "value": "b"}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 1}, "requests": {"nvidia.com/gpu": "2"}},
                    },
                    {"name": "side", "image": "any"},
                ],
            },
        },
    },
}
VALUES = (
    None,
    0,
    -1,
    2.5,
    4097,
    True,
    "",
    "Auto",
    "4-7",
    "300",
    "trainer",
    "data",
    "RANK",
    [],
    {},
    [1],
    ["a"],
    {"a": 1},
)
NAMES = ("hostname", "ddpjob.dev/rank", "everySeconds", "claims", "env", "volumeMounts", "rules", "nvidia.com/mig-1g")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each part of a document: what it stands in, and where there."""
    for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(one, dict | list):
            yield from places(one)


@pytest.mark.parametrize("seed", range(8))
def test_a_document_that_was_changed_at_random_brings_no_traceback(seed: int) -> None:
    draw, refused = random.Random(seed), 0
    for _ in range(60):
        document: Any = copy.deepcopy(DOCUMENT)
        for _ in range(draw.randint(1, 3)):
            holder, key = draw.choice(list(places(document)))
            if draw.random() < 0.2 and isinstance(holder, dict):
                holder[draw.choice(NAMES)] = draw.choice(VALUES)
            elif draw.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(draw.choice([*VALUES, DOCUMENT["metadata"]]))
        refused += bool(complaint(json.dumps(document)))
    assert 20 < refused < 60, "some are right, most are not"
