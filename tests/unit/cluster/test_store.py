import asyncio
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from ddpjob_operator.api.contract import Label
from ddpjob_operator.cluster import store as store_module
from ddpjob_operator.cluster.kube.objects import JobObject, Packed, PodGroupObject, PodObject
from ddpjob_operator.cluster.kube.objects import read as read_job
from ddpjob_operator.cluster.store import (
    LATE_SECONDS,
    OBJECTS_PER_TURN,
    Key,
    Store,
    StoredJob,
    in_namespace,
    of_owner,
)
from ddpjob_operator.engine import POD_GROUP

from .manifests import DIGITS, a_manifest, a_pod, name_of, nobody, owned, read, trainer

RUNS = trainer(running={})


class Pods:
    """A cache of pods, and whether what it is told is news."""

    def __init__(self) -> None:
        self.marked: list[Key] = []
        self.cache = Store(self.marked.append).pods

    def update(self, pod: PodObject) -> bool:
        """Whether the job gets a look."""
        return self.tells(lambda: self.cache.update(pod))

    def tells(self, act: Callable[[], None]) -> bool:
        """Whether the job gets a look when this is done."""
        self.marked.clear()
        act()
        assert set(self.marked) <= {DIGITS[:2]}
        return bool(self.marked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)


def pods() -> Pods:
    return Pods()


def listed(cache: Pods, *words: Any) -> None:
    asyncio.run(cache.update_all(*words))


def test_a_late_event_undoes_nothing() -> None:
    cache = pods()
    assert cache.update(a_pod(version=2, containerStatuses=RUNS))
    assert not cache.update(a_pod(version=1))
    assert cache.owned_by(DIGITS)[0].running


def test_what_changes_nothing_that_decisions_need_is_no_news() -> None:
    cache = pods()
    assert cache.update(a_pod(version=1, containerStatuses=RUNS))
    assert not cache.update(a_pod(version=2, containerStatuses=RUNS, hostIP="10.0.0.1"))
    assert not cache.update(a_pod(version=1)), "the version has advanced all the same"


def test_a_pod_that_is_gone_is_not_brought_back_by_the_answer_to_its_deletion() -> None:
    cache = pods()
    cache.update(a_pod(version=1))
    assert cache.tells(lambda: cache.forget(("team", name_of(0)), "pod-0-1"))
    assert not cache.update(a_pod(version=2))
    assert cache.owned_by(DIGITS) == ()


def test_a_pod_that_is_gone_is_not_brought_back_by_a_list_from_before_its_deletion() -> None:
    cache = pods()
    cache.forget(("team", name_of(0)), "pod-0-1", version=6)
    listed(cache, [a_pod(version=4)], 5, of_owner(DIGITS))
    assert cache.owned_by(DIGITS) == (), "known or not when it went"


def test_a_pod_that_a_list_has_missed_is_not_brought_back_by_an_older_answer() -> None:
    cache = pods()
    cache.update(a_pod(version=1))
    listed(cache, [], 5, of_owner(DIGITS))
    assert not cache.update(a_pod(version=4))


def test_a_pod_that_a_watch_selects_again_comes_back() -> None:
    cache = pods()
    cache.update(a_pod(version=1))
    cache.forget(("team", name_of(0)), "pod-0-1", version=2)
    assert cache.update(a_pod(version=3))


def test_a_late_word_that_a_pod_went_does_not_undo_its_return() -> None:
    cache = pods()
    cache.update(a_pod(version=5))
    assert not cache.tells(lambda: cache.forget(("team", name_of(0)), "pod-0-1", version=2))
    assert len(cache.owned_by(DIGITS)) == 1


def test_an_older_word_that_a_pod_went_does_not_bring_it_back() -> None:
    cache = pods()
    cache.forget(("team", name_of(0)), "pod-0-1", version=6)
    cache.forget(("team", name_of(0)), "pod-0-1", version=2)
    assert not cache.update(a_pod(version=4))


def test_a_pod_whose_labels_were_changed_is_the_job_s_no_more() -> None:
    cache = pods()
    cache.update(a_pod(version=1))
    changed = a_manifest(version=2)
    del changed["metadata"]["labels"][Label.NODE]
    assert cache.update(read(changed)), "that is news"
    assert cache.owned_by(DIGITS) == ()


@pytest.mark.parametrize(("later", "remembered"), [(1.0, True), (3.1, False)])
def test_that_a_pod_is_gone_is_remembered_for_as_long_as_a_view_of_it_may_be_late(
    later: float, monkeypatch: pytest.MonkeyPatch, *, remembered: bool
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    cache = pods()
    for tick in range(41):  # Others go before it, and after.
        clock[0] = tick / 20 * later * LATE_SECONDS
        cache.forget(("team", name_of(0)), "pod-0-1" if tick == 20 else f"pod {tick}")
    assert cache.update(a_pod()) is not remembered


def test_of_a_job_whose_last_object_went_nothing_stays_in_memory() -> None:
    cache = pods()
    for rank in (0, 1):
        cache.update(a_pod(rank, version=1))
    for rank in (0, 1):
        cache.forget(("team", name_of(rank)), f"pod-{rank}-1")
    assert cache._owned == {}


def test_what_cannot_be_understood_is_told_and_what_was_known_of_it_still_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = pods()
    cache.update(a_pod(version=1, containerStatuses=RUNS))
    with monkeypatch.context() as patch:
        patch.setattr(cache.cache, "_trimmed", Mock(side_effect=KeyError))
        assert not cache.update(a_pod(version=2))
    assert caplog.messages == [f"this is a bug: team/{name_of(0)} could not be processed and is ignored"]
    assert cache.owned_by(DIGITS)[0].running
    assert cache.update(a_pod(version=2)), "it can be, now"


def test_forgetting_spares_another_object_of_the_same_name() -> None:
    cache = pods()
    cache.update(a_pod())
    cache.forget(("team", name_of(0)), "a former uid")
    assert len(cache.owned_by(DIGITS)) == 1


def test_a_list_tells_what_a_watch_has_missed() -> None:
    cache = pods()
    cache.update(a_pod(rank=0, version=1))
    cache.update(a_pod(rank=1, version=9))
    assert cache.tells(lambda: listed(cache, [a_pod(rank=2, version=4)], 5, of_owner(DIGITS)))
    assert not cache.tells(lambda: listed(cache, [a_pod(rank=2, version=4)], 5, of_owner(DIGITS))), "no news"
    assert sorted(pod.node for pod in cache.owned_by(DIGITS)) == [1, 2], (
        "rank 0 is gone; rank 1 is newer than the list"
    )


def test_a_list_says_nothing_of_what_it_does_not_cover() -> None:
    cache = pods()
    cache.update(a_pod())
    listed(cache, [], 5, of_owner(DIGITS._replace(uid="another job")))
    listed(cache, [], 5, in_namespace("another namespace"))
    assert len(cache.owned_by(DIGITS)) == 1
    listed(cache, [], 5, in_namespace(None))
    assert cache.owned_by(DIGITS) == ()


def test_an_object_made_anew_under_its_name_replaces_the_former_one() -> None:
    cache = pods()
    cache.update(a_pod(version=1))
    again = a_manifest(version=2)
    again["metadata"]["uid"] = "pod-anew"
    assert cache.update(read(again))
    assert [pod.uid for pod in cache.owned_by(DIGITS)] == ["pod-anew"]


def test_a_group_that_is_another_jobs_by_now_is_no_more_the_former_ones() -> None:
    other, groups = DIGITS._replace(uid="another"), Store(nobody).owned[POD_GROUP]
    for version, job in enumerate((DIGITS, other), start=1):
        metadata = {"name": "digits-bcdfg", "namespace": "team", "uid": "1", "resourceVersion": str(version)}
        metadata["ownerReferences"] = [owned(uid=job.uid)]
        groups.update(msgspec.convert({"metadata": metadata}, PodGroupObject))
    assert (len(groups.owned_by(DIGITS)), len(groups.owned_by(other))) == (0, 1)


def test_a_long_list_leaves_time_for_others_and_undoes_nothing_that_they_have_seen() -> None:
    """10,000 pods that are taken in at one stretch are tenths of a second in which no Lease is renewed."""
    cache, new, version = pods().cache, name_of(999), 5

    async def play() -> None:
        listed = [a_pod(rank=rank, version=1) for rank in range(2 * OBJECTS_PER_TURN)]
        listing = asyncio.create_task(cache.update_all(listed, version, in_namespace(None)))
        await asyncio.sleep(0)
        assert 0 < len(cache.all()) < len(listed)
        cache.update(a_pod(rank=999, version=version + 1))
        cache.update(a_pod(rank=2 * OBJECTS_PER_TURN - 1, version=version + 2, containerStatuses=RUNS))
        await listing

    asyncio.run(play())
    assert len(cache.all()) == 2 * OBJECTS_PER_TURN + 1
    assert cache.get(("team", new))
    last = cache.get(("team", name_of(2 * OBJECTS_PER_TURN - 1)))
    assert last
    assert last.running


def a_large_job(number: int) -> JobObject:
    """One of 91 KiB as JSON, no two alike."""
    variables = [{"name": f"SETTING_{one}", "value": f"{one} of {number}".ljust(40, "x")} for one in range(1200)]
    template = {"spec": {"containers": [{"name": "trainer", "image": "any", "env": variables}]}}
    metadata = {"name": f"digits-{number}", "namespace": "team", "uid": f"uid-{number}", "resourceVersion": "1"}
    return read_job({"metadata": metadata, "spec": {"suspend": True, "template": template}}, JobObject)


def test_a_job_that_nobody_looks_at_any_more_costs_less_than_its_json(monkeypatch: pytest.MonkeyPatch) -> None:
    large, many = a_large_job(0).spec.size, 20
    monkeypatch.setattr(store_module, "PARSED_BYTES", many // 2 * large)
    store, known = Store(nobody), [0]
    tracemalloc.start()
    try:
        for number in range(2 * many):  # Each gets a look, as at the operator's start.
            store.jobs.update(a_large_job(number))
            stored = store.jobs.get(("team", f"digits-{number}"))
            assert stored is not None
            assert store.job(stored).spec.suspend
            if number % many == many - 1:
                known.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert known[2] - known[1] < many * large / 4, "as dictionaries, twice, they were seven times as large as JSON"
    for key, stored in store.jobs.all():
        assert (stored.summary.state, store.job(stored).metadata.name) == ("Pending", key[1]), "it is all still there"


def test_of_many_small_jobs_those_that_were_looked_at_last_are_kept_as_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "PARSED_JOBS", 2)
    store, jobs = Store(nobody), [StoredJob(a_large_job(number)) for number in range(3)]
    first, second, third = map(store.job, jobs)
    assert (store.job(jobs[1]) is second, store.job(jobs[2]) is third) == (True, True)
    assert store.job(jobs[0]) is not first


def test_a_job_that_is_larger_than_all_that_is_kept_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PARSED_BYTES", 1)
    store = Store(nobody)
    stored = StoredJob(a_large_job(0))
    assert store.job(stored) is store.job(stored)
    store.drop_parsed(("team", "digits-0"))
    assert store.job(stored).metadata.uid == "uid-0"


def test_a_job_is_read_anew_when_it_has_changed() -> None:
    store = Store(nobody)
    before = StoredJob(a_large_job(0))
    assert store.job(before).spec.suspend
    metadata = msgspec.structs.replace(before.metadata, resource_version="2")
    after = StoredJob(JobObject(metadata, Packed({"template": store.job(before).spec.template}), Packed({})))
    assert not store.job(after).spec.suspend
