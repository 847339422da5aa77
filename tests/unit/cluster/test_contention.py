"""How an operator finds out whether another one runs the jobs that both would run."""

import asyncio
from typing import Any

import pytest
from ddpjob_operator.cluster.contention import ANSWER_SECONDS, KNOWN_SECONDS, Contention
from ddpjob_operator.cluster.kube.api_client import ApiError
from ddpjob_operator.cluster.kube.objects import JobObject, read
from ddpjob_operator.cluster.serve.metrics import OVERLAPS
from ddpjob_operator.cluster.store import Key, Store, StoredJob
from ddpjob_operator.engine import Event, Holder

from .manifests import nobody

ME, OTHER = Holder("a/own"), Holder("b/other")
KEY, SECOND, ELSEWHERE = ("team", "digits"), ("team", "letters"), ("elsewhere", "digits")


class Scene:
    """An API server's jobs, an operator's store of them, and its clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.version = 1
        self.refuses: int | None = None
        self.asked: list[Key] = []
        self.marked: list[tuple[Key, float]] = []
        self.events: list[Event] = []
        self.store = Store(nobody)
        scene: Any = self
        self.contention = Contention(scene, self.store, scene, scene, me=ME, clock=lambda: self.now)

    def shows(
        self, key: Key, holder: Holder = OTHER, contender: str = "", *, label: str = "", deleting: str | None = None
    ) -> StoredJob:
        """A watch shows a job in a new version."""
        self.version += 1
        metadata = {
            "deletionTimestamp": deleting,
            "name": key[1],
            "namespace": key[0],
            "uid": f"{key}",
            "resourceVersion": str(self.version),
        }
        status = {"operator": holder.name, "className": holder.class_name, "bookkeeping": {"contender": contender}}
        labels = {"ddpjob.dev/class": label} if label else {}
        seen = read({"metadata": {**metadata, "labels": labels}, "spec": {}, "status": status}, JobObject)
        self.store.jobs.update(seen)
        stored = self.store.jobs.get(key)
        assert stored is not None
        return stored

    async def patch(self, _: object, namespace: str, path: str, version: str, changes: list[Any]) -> JobObject:
        """The API server takes the question."""
        if self.refuses is not None:
            raise ApiError(self.refuses, "", "")
        key = (namespace, path.removesuffix("/status"))
        stored = self.store.jobs.get(key)
        assert stored is not None
        assert version == stored.metadata.resource_version
        (change,) = changes
        assert (change["path"], change["value"]) == ("/status/bookkeeping/contender", ME.name)
        self.asked.append(key)
        return self.shows(key, contender=ME.name).seen

    def mark(self, key: Key) -> None:
        """A round is requested."""
        self.mark_in(key, 0)

    def mark_in(self, key: Key, seconds: float) -> None:
        """A round is requested for later."""
        self.marked.append((key, seconds))

    def record(self, _: object, event: Event) -> None:
        """An event is recorded."""
        self.events.append(event)

    def left(self, key: Key) -> bool:
        """Whether a round leaves the job alone."""
        stored = self.store.jobs.get(key)
        assert stored is not None
        return asyncio.run(self.contention.is_left(key, stored))


@pytest.fixture
def scene() -> Scene:
    """Two jobs that another operator holds, and one in another namespace."""
    scene = Scene()
    for key in (KEY, SECOND, ELSEWHERE):
        scene.shows(key)
    return scene


def test_one_question_is_asked_in_each_namespace_and_its_answer_counts_for_all_jobs_there(scene: Scene) -> None:
    assert all(scene.left(key) for key in (KEY, SECOND, KEY, ELSEWHERE))
    assert scene.asked == [KEY, ELSEWHERE]
    assert scene.marked[0] == (KEY, ANSWER_SECONDS)
    assert (scene.contention.problems, scene.events) == ("", [])
    scene.shows(KEY)
    assert scene.left(KEY), "there is an answer"
    assert scene.left(SECOND)
    assert scene.asked == [KEY, ELSEWHERE]
    assert [event.reason for event in scene.events] == ["SeveralOperators"]
    assert "Operators a/own and b/other both run jobs without a class in namespace team" in scene.contention.problems


def test_without_an_answer_the_jobs_of_that_namespace_are_taken_over(scene: Scene) -> None:
    scene.shows(("team", "numbers"), Holder("c/third"))
    assert scene.left(KEY)
    scene.now += ANSWER_SECONDS - 1
    assert scene.left(KEY)
    assert scene.marked == [(KEY, ANSWER_SECONDS), (KEY, 1)]
    scene.now += 1
    assert not scene.left(KEY)
    assert {key for key, seconds in scene.marked if seconds == 0} == {KEY, SECOND}
    assert not scene.left(SECOND)
    assert scene.left(ELSEWHERE), "the other operator may still run jobs elsewhere"
    assert (scene.contention.problems, scene.events) == ("", [])


def test_an_answer_counts_for_a_while_and_then_it_is_asked_again(scene: Scene) -> None:
    scene.left(KEY)
    scene.shows(KEY)
    scene.left(KEY)
    assert scene.marked[-1] == (KEY, KNOWN_SECONDS)
    scene.now += KNOWN_SECONDS
    assert scene.left(SECOND)
    assert scene.asked == [KEY, SECOND]
    scene.shows(SECOND)
    assert scene.left(SECOND)
    assert len(scene.events) == 1, "once, while it lasts"
    scene.now += 2 * KNOWN_SECONDS
    assert scene.contention.problems == "", "nobody has been heard of for long"


def test_a_question_whose_job_is_gone_or_was_taken_is_asked_anew(scene: Scene) -> None:
    scene.left(KEY)
    scene.store.jobs.forget(KEY, f"{KEY}", scene.version)
    assert scene.left(SECOND)
    scene.shows(SECOND, Holder("c/third"))
    scene.shows(KEY)
    assert scene.left(KEY)
    assert scene.asked == [KEY, SECOND, KEY]


@pytest.mark.parametrize(
    "change",
    [{"deleting": "2026-01-01T00:00:00Z"}, {"label": "canary"}],
    ids=["is being deleted", "changes its class"],
)
def test_a_question_whose_job_is_looked_at_no_more_is_asked_in_another(scene: Scene, change: dict[str, str]) -> None:
    scene.left(KEY)
    scene.shows(KEY, contender=ME.name, **change)
    assert scene.left(SECOND)
    assert scene.asked == [KEY, SECOND]
    scene.now += ANSWER_SECONDS
    assert not scene.left(SECOND)


@pytest.mark.parametrize("contender", [ME.name, "c/third"], ids=["in a former life", "by a third operator"])
def test_a_question_that_was_asked_before_is_not_repeated(scene: Scene, contender: str) -> None:
    scene.shows(KEY, contender=contender)
    assert scene.left(KEY)
    scene.now += ANSWER_SECONDS
    assert not scene.left(KEY)
    assert scene.asked == []


def test_a_job_that_has_changed_meanwhile_is_asked_about_in_its_next_round(scene: Scene) -> None:
    scene.refuses = 409
    assert scene.left(KEY)
    scene.refuses = None
    assert scene.left(KEY)
    assert scene.asked == [KEY]
    scene.refuses = 500
    with pytest.raises(ApiError):
        scene.left(ELSEWHERE)


def test_an_operator_that_asks_is_known_to_run_and_is_reported_once(scene: Scene) -> None:
    for _ in range(2):
        scene.contention.heard(KEY, scene.shows(KEY, ME, OTHER.name))
    assert [event.reason for event in scene.events] == ["SeveralOperators"]
    assert next(iter(OVERLAPS.collect())).samples[0].value == 1
    assert scene.left(SECOND), "without a question"
    assert scene.asked == []
    scene.contention.leave_namespace("team")
    assert scene.contention.problems == ""


def test_the_question_of_its_former_life_is_no_other_operator(scene: Scene) -> None:
    scene.contention.heard(KEY, scene.shows(KEY, ME, ME.name))
    assert (scene.contention.problems, scene.events) == ("", [])


def test_a_changed_label_is_no_overlap(scene: Scene) -> None:
    canary = Holder("b/canary", "canary")
    scene.contention.heard(KEY, scene.shows(KEY, ME, canary.name, label="canary"))
    scene.shows(SECOND, canary, ME.name)
    scene.left(SECOND)
    assert (scene.contention.problems, scene.events) == ("", [])
