"""What is told of a cluster's job that only waits."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ddpjob_operator.cli.cluster.life import SETTLED_SECONDS, UNNOTICED, UNNOTICED_SECONDS, Life
from ddpjob_operator.client import Document, Jobs

from tests.unit.client.api import a_job

SPEC = {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}}
ANOTHERS = "example.com/queue manages this job (managedBy); the DDPJob operator leaves it alone"
WAITS = {"state": "Pending", "message": "no node has room"}
RUNS = {"state": "Running", "message": "2 nodes running"}


class Nothing(Jobs):
    """A cluster on which nothing happens."""

    def __init__(self) -> None:
        """It is nowhere."""

    def apart(self) -> "Nothing":
        return self

    def watch(self, *_: Any) -> Iterator[Document]:
        return iter(())


@pytest.mark.parametrize(
    ("spec", "status", "patience", "told"),
    [
        ({}, {}, UNNOTICED_SECONDS, UNNOTICED),
        ({"managedBy": "ddpjob.dev/operator"}, {}, UNNOTICED_SECONDS, UNNOTICED),
        ({"managedBy": "example.com/queue"}, {}, UNNOTICED_SECONDS, ANOTHERS),
        ({"managedBy": "example.com/queue"}, WAITS, SETTLED_SECONDS, WAITS["message"]),
        ({}, WAITS, SETTLED_SECONDS, WAITS["message"]),
        ({}, RUNS, UNNOTICED_SECONDS, None),
    ],
    ids=["no operator", "none, by name", "another's", "another's that waits", "one that waits", "one that runs"],
)
def test_what_a_job_waits_for_is_told_once_when_it_has_waited_long_enough(
    spec: Document, status: Document, patience: float, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one = Life(Nothing(), {**a_job(), "spec": SPEC | spec, "status": status})
    said = []
    for later in (0.0, patience, patience + 0.1, 2 * patience, 20 * patience):
        now[0] = 1000.0 + later
        said.append([event.message for event in one.news(0.0)])
    assert said == [[], [], [told] if told else [], [], []]
