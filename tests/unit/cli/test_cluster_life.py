"""What is told of a cluster's job: each change, its end, and what it waits for."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ddpjob_operator.cli.cluster.life import SETTLED_SECONDS, UNNOTICED, UNNOTICED_CLASS, UNNOTICED_SECONDS, Life
from ddpjob_operator.client import ClusterError, Document, Jobs

from tests.unit.client.api import a_job

SPEC = {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}}
ANOTHERS = "example.com/queue manages this job (managedBy); the DDPJob operator leaves it alone"
WAITS = {"state": "Pending", "message": "no node has room"}
RUNS = {"state": "Running", "message": "2 nodes running"}
HELD = {"operator": "system/operator", "startTime": "2026-01-01T00:00:00Z"}
SUSPENDED = {"operator": "system/operator", "state": "Suspended", "message": "Nothing runs"}
CANARY = {"ddpjob.dev/class": "canary"}


class Nothing(Jobs):
    """A cluster on which nothing happens."""

    def __init__(self) -> None:
        """It is nowhere."""

    def apart(self) -> "Nothing":
        return self

    def watch(self, *_: Any) -> Iterator[Document]:
        return iter(())


@pytest.mark.parametrize(
    ("labels", "spec", "status", "patience", "told"),
    [
        ({}, {}, {}, UNNOTICED_SECONDS, UNNOTICED),
        ({}, {"managedBy": "ddpjob.dev/operator"}, {}, UNNOTICED_SECONDS, UNNOTICED),
        ({}, {"managedBy": "example.com/queue"}, {}, UNNOTICED_SECONDS, ANOTHERS),
        ({}, {"managedBy": "example.com/queue"}, WAITS, SETTLED_SECONDS, WAITS["message"]),
        ({}, {}, WAITS, SETTLED_SECONDS, WAITS["message"]),
        ({}, {}, RUNS, UNNOTICED_SECONDS, None),
        (CANARY, {}, {}, UNNOTICED_SECONDS, UNNOTICED_CLASS.format("canary")),
        (CANARY, {}, SUSPENDED, UNNOTICED_SECONDS, UNNOTICED_CLASS.format("canary")),
        ({}, {}, SUSPENDED | {"className": "canary"}, UNNOTICED_SECONDS, UNNOTICED),
        (CANARY, {}, SUSPENDED | {"className": "canary"}, UNNOTICED_SECONDS, None),
        (CANARY, {}, RUNS | HELD, UNNOTICED_SECONDS, None),
    ],
    ids=[
        *("no operator", "none, by name", "another's", "another's that waits", "one that waits", "one that runs"),
        *("no operator of its class", "suspended, and no operator of its new class"),
        *("suspended, and no operator of the default class", "suspended", "a new class while it runs"),
    ],
)
def test_what_a_job_waits_for_is_told_once_when_it_has_waited_long_enough(
    labels: dict[str, str],
    spec: Document,
    status: Document,
    patience: float,
    told: str | None,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    job = a_job()
    one = Life(
        Nothing(), {**job, "metadata": job["metadata"] | {"labels": labels}, "spec": SPEC | spec, "status": status}
    )
    said = []
    for later in (0.0, patience, patience + 0.1, 2 * patience, 20 * patience):
        now[0] = 1000.0 + later
        said.append([event.message for event in one.news(0.0)])
    assert said == [[], [], [told] if told else [], [], []]


class Watched(Nothing):
    """A cluster on which a job is seen like this, one after the other."""

    def __init__(self, *seen: Any) -> None:
        self._seen = seen
        self.told = 0

    def watch(self, *_: Any) -> Iterator[Document]:
        for one in self._seen:
            self.told += 1
            if isinstance(one, Exception):
                raise one
            yield one


ENDED = {"type": "Complete", "status": "True", "reason": "Done", "message": "all done", "observedGeneration": 1}
ENDED |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}


def seen(**status: Any) -> Document:
    return {**a_job(), "spec": SPEC, "status": status}


def test_each_change_is_told_until_the_job_has_ended_and_what_comes_then_is_nobodys() -> None:
    jobs = Watched(seen(**WAITS), seen(**RUNS), seen(state="Succeeded", conditions=[ENDED]), seen(**WAITS))
    life = Life(jobs, seen())
    states = []
    while not life.over:
        list(life.news(60.0))
        states.append(life.job.status.state)
    assert states == ["Pending", "Running", "Succeeded"]
    assert jobs.told == 3


@pytest.mark.parametrize(
    ("end", "says"), [(None, "digits was deleted"), (ClusterError("no answer"), "no answer")], ids=["deleted", "away"]
)
def test_a_job_of_which_nothing_more_can_be_seen_is_an_error(end: Any, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        list(Life(Watched(end), seen()).news(60.0))
