"""Whom an operator listens to beside rank 0's supervisor, and what it makes of a status that is refused."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import AsyncMock, Mock, call

import msgspec
import pytest
from ddpjob_operator.api import NO_DEFAULTS, Bookkeeping, ConditionType, DDPJob, DDPJobStatus, Defaults, Incarnations
from ddpjob_operator.api.contract import MANAGER, Label
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.api.status import UNSEEN
from ddpjob_operator.cluster.followed_defaults import DefaultsUnknownError
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.kube.clock import Reading
from ddpjob_operator.cluster.kube.objects import (
    EventObject,
    JobObject,
    NodeObject,
    Object,
    ObjectMeta,
    PodGroupObject,
    PodObject,
    read,
)
from ddpjob_operator.cluster.reconciler import LARGE_DECISION, Granted, Reconciler, _at_rest, _Memory
from ddpjob_operator.cluster.refusals import Refused
from ddpjob_operator.cluster.serve.metrics import IN_VAIN
from ddpjob_operator.cluster.store import Key, Store, StoredJob
from ddpjob_operator.cluster.tally import Tally
from ddpjob_operator.cluster.workqueue import WorkQueue
from ddpjob_operator.engine import (
    NETWORK_POLICY,
    POD_GROUP,
    SERVICE,
    WORKLOAD,
    Admission,
    Asked,
    Create,
    CreatePod,
    Decision,
    Delete,
    DeletePod,
    Event,
    Feature,
    InLine,
    KueueWorkload,
    Needs,
    Placement,
    Pod,
    PodGroup,
    Queue,
    Settings,
    SupervisorReport,
    TimeKind,
    Waiting,
    decide,
)
from ddpjob_operator.engine.manifests.children import build_service
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from tests.unit.engine.builders import START, Moment, a_job

from .manifests import DIGITS, UID, a_pod, name_of, nobody, owned, trainer

KEY = ("team", "digits")
SERVICE_KEY = ("team", name_beside(DIGITS))
T = TypeVar("T")


class Listening:
    """Stands in for what listens."""

    def __init__(self) -> None:
        self.whom: Asked | None = None

    def attend(self, _key: object, _uid: str, asked: Asked | None) -> SupervisorReport | None:
        self.whom = asked
        return None

    def asked(self, _key: object, _uid: str) -> Asked | None:
        return self.whom

    def report(self, _key: object, _uid: str) -> SupervisorReport | None:
        return None

    def forget(self, _key: object) -> None:
        self.whom = None


async def no_defaults(_: str) -> Defaults:
    """No namespace has any."""
    return NO_DEFAULTS


NOTHING: Granted = dict.fromkeys(Feature, lambda _: False)


def a_reading(now: datetime) -> Reading:
    """That it is this time, for certain."""
    return Reading(now, now, now)


def a_reconciler(
    *,
    api: Any = None,
    store: Store | None = None,
    queue: WorkQueue | None = None,
    supervisors: Any = None,
    witnesses: Any = None,
    granted: Granted = NOTHING,
    defaults_of: Callable[[str], Awaitable[Defaults]] = no_defaults,
) -> Reconciler:
    """One with as much around it as a test needs."""
    recorder: Any = None
    return Reconciler(
        api,
        store or Store(nobody),
        queue or WorkQueue(),
        recorder,
        supervisors=supervisors,
        witnesses=witnesses,
        settings=Settings(),
        granted=granted,
        tally=Tally(lambda: START),
        defaults_of=defaults_of,
    )


def test_another_supervisor_is_listened_to_as_long_as_rank_0s_is_silent() -> None:
    first, others = (Listening(), Listening())
    supervisors: Any = first
    witnesses: Any = others
    reconciler = a_reconciler(supervisors=supervisors, witnesses=witnesses)
    stored: Any = SimpleNamespace(uid=UID, ref=DIGITS)
    silent = a_job(nodes=2).running().hears().settled().hears_nothing("refused")
    listens_to = []
    for moment in (silent.after(29), silent.after(30), silent.after(40).hears(), silent.after(50).fails(0)):
        snapshot = moment.snapshot
        while needs := decide(snapshot).needs:
            found = asyncio.run(reconciler._with_answers(KEY, stored, snapshot, needs))
            snapshot = replace(moment.snapshot, answered=found.answered)
        reconciler._stop_asking(KEY, snapshot)
        listens_to.append([asked and asked.pod for asked in (first.whom, others.whom)])
    names = [pod.name for pod in silent.pods]
    assert listens_to == [[names[0], None], names, [names[0], None], [None, None]]


def a_seen_job(version: int, status: DDPJobStatus | None = None, uid: str = UID, **marks: Any) -> JobObject:
    metadata = {"name": "digits", "namespace": "team", "uid": uid, "resourceVersion": str(version), **marks}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    said = status.to_dict() if status else {}
    return read({"metadata": metadata, "spec": spec, "status": said}, JobObject)


def a_service() -> Object:
    owner = owned()
    metadata = {"name": SERVICE_KEY[1], "namespace": "team", "uid": "service-uid", "resourceVersion": "5"}
    labels = {Label.MANAGED_BY: MANAGER, Label.JOB_NAME: "digits", Label.JOB_UID: UID}
    return msgspec.convert({"metadata": {**metadata, "labels": labels, "ownerReferences": [owner]}}, Object)


class Conflicting(ApiClient):
    """An API server that takes no status, and has the job in this version."""

    def __init__(self, version: int) -> None:
        self._version = version

    async def replace_status(self, *_: Any) -> Any:
        raise ApiError(409, "Conflict", "the object has been modified")

    async def get(self, *_: Any) -> Any:
        return a_seen_job(self._version)

    async def list(self, *_: Any) -> Any:
        return [], self._version


def written(known: int, there: int) -> bool:
    """Whether a status is written of a job that is known in one version and there in another."""
    store = Store(nobody)
    store.jobs.update(a_seen_job(known))
    stored = store.jobs.get(KEY)
    assert stored
    api = Conflicting(there)
    reconciler = a_reconciler(api=api, store=store)
    return asyncio.run(reconciler._write(KEY, stored, DDPJobStatus())) is not None


def test_a_job_that_has_changed_is_decided_on_anew_at_once() -> None:
    assert not written(known=5, there=6)


@pytest.mark.parametrize("there", [5, 4], ids=["a webhook's refusal", "the server was set back"])
def test_a_status_that_is_refused_of_an_unchanged_job_is_a_failure_and_waits_as_one(there: int) -> None:
    with pytest.raises(ApiError, match="has been modified"):
        written(known=5, there=there)


class Silent(Conflicting):
    """An API server that does not answer."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def read_clock(self) -> Reading:
        return a_reading(self.now())

    async def replace_status(self, *_: Any) -> Any:
        raise ApiError(0, "NoAnswer", "no answer")


@pytest.mark.parametrize(
    ("state", "needs"),
    [({"running": {}}, False), ({"terminated": {"exitCode": 0}}, True)],
    ids=["its pod runs", "its pod has ended"],
)
def test_a_supervisor_that_is_asked_already_is_no_question(state: dict[str, Any], needs: bool) -> None:  # noqa: FBT001
    listening: Any = Listening()
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    store.pods.update(a_pod(podIP="10.0.0.1", containerStatuses=trainer(**state)))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=Silent(5), store=store, supervisors=listening, witnesses=listening)
    listening.attend(KEY, UID, Asked(name_of(), "10.0.0.1", 8080))
    snapshot = reconciler._snapshot(KEY, stored, reconciler._memory(KEY, stored))
    assert (snapshot.answered.supervisor is None) == needs


@pytest.mark.parametrize(
    ("marks", "tool"),
    [
        ({}, ""),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}, "Flux"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "Argo CD"),
    ],
)
def test_a_round_knows_the_tool_that_keeps_the_job_by_its_labels_too(marks: dict[str, Any], tool: str) -> None:
    listening: Any = Listening()
    store = Store(nobody)
    store.jobs.update(a_seen_job(5, **marks))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=Silent(5), store=store, supervisors=listening, witnesses=listening)
    assert reconciler._snapshot(KEY, stored, reconciler._memory(KEY, stored)).keeper == tool


def a_group(kind: type[T], version: int = 1, **metadata: Any) -> T:
    """The job's own PodGroup, or the Workload of that."""
    labels = {Label.MANAGED_BY: MANAGER, Label.JOB_NAME: "digits", Label.JOB_UID: UID}
    own = {"labels": labels, "ownerReferences": [owned()]}
    identity = {"name": "digits-bcdfg", "namespace": "team", "uid": kind.__name__, "resourceVersion": str(version)}
    return msgspec.convert({"metadata": {**identity, **own, **metadata}}, kind)


def test_what_stands_beside_the_pods_is_compared_by_all_that_was_done() -> None:
    """Of a place in a queue all counts but why it waits, of a PodGroup only whether it is there."""
    place = KueueWorkload(
        "digits-q", "training", "", 4, "0123", admission=Admission(4, placement=Placement({"a": "b"}))
    )
    waiting = PodGroup("digits-g", Waiting("Unschedulable", "no room"))

    def there(*beside: Any) -> object:
        store: Any = SimpleNamespace(owned={POD_GROUP: SimpleNamespace(owned_by=lambda _: beside)})
        stored: Any = SimpleNamespace(ref=DIGITS)
        return a_reconciler(store=store)._situation(stored, DDPJobStatus())

    assert there(place, waiting, "digits-s") == there("digits-s", PodGroup("digits-g"), place)
    assert there(place) != there(replace(place, nodes=3))
    assert there(place) == there(replace(place, waiting=Waiting("Pending", "couldn't assign flavors: 3 more needed")))
    assert there(waiting) != there()


GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("granted", "metadata", "expected"),
    [
        (True, {}, ((PodGroup("digits-bcdfg"),), ("digits-bcdfg",))),
        (True, GOING, ((PodGroup("digits-bcdfg", deleting=True),), ())),
        (False, {}, (None, None)),
    ],
    ids=["where they can be made", "those that go", "where they cannot"],
)
def test_a_round_knows_the_jobs_pod_groups(granted: bool, metadata: Any, expected: Any) -> None:  # noqa: FBT001  A table.
    listening: Any = Listening()
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    store.owned[WORKLOAD].update(a_group(Object, **metadata))
    store.owned[POD_GROUP].update(a_group(PodGroupObject, **metadata))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(
        api=Silent(5),
        store=store,
        supervisors=listening,
        witnesses=listening,
        granted={**NOTHING, Feature.POD_GROUPS: lambda _: granted},
    )
    snapshot = reconciler._snapshot(KEY, stored, reconciler._memory(KEY, stored))
    assert (snapshot.pod_groups, snapshot.owned.get(WORKLOAD)) == expected
    store.drop_namespace("team")
    assert not store.owned[POD_GROUP].owned_by(DIGITS) + store.owned[WORKLOAD].owned_by(DIGITS)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LACKS = Decision(in_line=InLine())


def a_job_of(key: Key, created: datetime = NOON, **pod: Any) -> JobObject:
    metadata = {"namespace": key[0], "name": key[1], "uid": f"uid of {key[1]}", "resourceVersion": "5"}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}], **pod}}}
    return read({"metadata": {**metadata, "creationTimestamp": created.isoformat()}, "spec": spec}, JobObject)


class Contending:
    """Two jobs of different namespaces, and what a round of the younger one knows."""

    def __init__(self, api: ApiClient | None = None, **older: Any) -> None:
        """`older`: what the older one's pods ask for."""
        listening: Any = Listening()
        self.store, self.queue = Store(nobody), Marked()
        self.older, self.younger = ("a", "older"), ("b", "younger")
        self.store.jobs.update(a_job_of(self.older, **older))
        self.store.jobs.update(a_job_of(self.younger, NOON + timedelta(seconds=1)))
        self.reconciler = a_reconciler(
            api=api or Silent(5), store=self.store, queue=self.queue, supervisors=listening, witnesses=listening
        )

    def stands(self, key: Key, decision: Decision, *pods: Pod) -> None:
        """A round of a job that has these pods has decided so."""
        stored = self.stored(key)
        snapshot: Any = SimpleNamespace(now=NOON, job=self.store.job(stored), pods=pods)
        self.reconciler._update_line(key, stored, snapshot, decision)

    def stored(self, key: Key) -> StoredJob:
        stored = self.store.jobs.get(key)
        assert stored
        return stored

    def behind(self, key: Key) -> bool:
        stored = self.stored(key)
        snapshot = self.reconciler._snapshot(key, stored, self.reconciler._memory(key, stored))
        return snapshot.ahead is not None


class Marked(WorkQueue):
    """Keeps who is to get a look."""

    def __init__(self) -> None:
        super().__init__()
        self.marked: list[Key] = []

    def mark(self, key: Key) -> None:
        self.marked.append(key)


def test_a_round_knows_whether_another_job_that_comes_first_lacks_nodes() -> None:
    jobs = Contending()
    assert not jobs.behind(jobs.younger)
    jobs.stands(jobs.older, LACKS)
    jobs.stands(jobs.younger, LACKS)
    assert (jobs.behind(jobs.older), jobs.behind(jobs.younger)) == (False, True)
    jobs.stands(jobs.older, Decision())
    assert not jobs.behind(jobs.younger)


def test_a_round_knows_nothing_of_jobs_that_ask_for_other_nodes() -> None:
    jobs = Contending(nodeSelector={"gpu": "h100"})
    jobs.stands(jobs.older, LACKS)
    assert not jobs.behind(jobs.younger)


def test_a_job_that_is_gone_stands_in_nobodys_way() -> None:
    jobs = Contending()
    jobs.stands(jobs.older, LACKS)
    jobs.store.jobs.forget(jobs.older, "uid of older")
    asyncio.run(jobs.reconciler.round(jobs.older))
    assert not jobs.behind(jobs.younger)


def test_a_priority_counts_for_as_long_as_a_job_lacks_nodes_also_while_it_has_no_pods() -> None:
    jobs = Contending()
    jobs.stands(jobs.older, LACKS)
    jobs.stands(jobs.younger, LACKS, Pod("digits-0", "uid", 0, 1, priority=5))
    assert jobs.queue.marked == [jobs.older], "it may have to give way now"
    jobs.stands(jobs.younger, Decision(in_line=InLine(away=True)))
    assert (jobs.behind(jobs.older), jobs.behind(jobs.younger)) == (True, False)


def test_an_autoscaler_is_asked_about_in_the_jobs_namespace() -> None:
    class Scaling(Silent):
        async def list(self, *_: Any, **__: Any) -> Any:
            return [EventObject(ObjectMeta(), reason="TriggeredScaleUp")], 1

    jobs = Contending(Scaling(5))
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    snapshot = jobs.reconciler._snapshot(key, stored, jobs.reconciler._memory(key, stored))
    found = asyncio.run(jobs.reconciler._with_answers(key, stored, snapshot, Needs(scale_up="pod-uid")))
    assert (found.scales_up, found.answered.scale_up) == (True, "pod-uid")


def test_nodes_are_asked_for_the_label_that_the_job_names() -> None:
    class Labelled(ApiClient):
        def __init__(self) -> None:
            pass

        async def get(self, *where: Any) -> Any:
            return read({"metadata": {"name": where[-1], "labels": {"rack": "rack-1", "zone": "a"}}}, NodeObject)

    trainer = {"name": "trainer", "image": "any", "command": ["ddpjob-train"]}
    placed = a_job(template={"spec": {"containers": [trainer]}}, scheduling={"topology": {"preferred": "rack"}})
    snapshot, stored = placed.created().placed(0).snapshot, SimpleNamespace(uid=UID, ref=DIGITS)
    needs = decide(snapshot).needs
    reconciler: Any = a_reconciler(api=Labelled())
    found = asyncio.run(reconciler._with_answers(KEY, stored, snapshot, needs))
    assert found.domains == {"node-0": "rack-1"}


class Obliging(Conflicting):
    """An API server that takes each status, and has the job in this version then."""

    deleted = 0

    async def replace_status(self, *_: Any) -> Any:
        return a_seen_job(self._version)

    async def delete(self, *_: Any) -> Any:
        self.deleted += 1


class Aside(WorkQueue):
    """Keeps what was set aside."""

    def __init__(self) -> None:
        super().__init__()
        self.aside: list[Key] = []

    def set_aside(self, key: Key) -> None:
        self.aside.append(key)


OTHER_PODS = DDPJobStatus(bookkeeping=Bookkeeping(incarnations=Incarnations(default=2)))


@pytest.mark.parametrize(
    ("status", "remembered"),
    [
        (DDPJobStatus(message="again"), True),
        (DDPJobStatus(attempt=1), True),
        (OTHER_PODS, False),
    ],
    ids=["the same pods", "another attempt in place", "other pods"],
)
def test_a_refusal_counts_for_the_pods_that_were_refused(status: DDPJobStatus, remembered: bool) -> None:  # noqa: FBT001  A table.
    assert is_still_refused(DDPJobStatus(), status) == remembered


def test_what_was_refused_of_a_job_says_nothing_about_its_mark_once_it_has_finished() -> None:
    done = a_job().running().succeeds(0).settled().status
    assert not is_still_refused(DDPJobStatus(bookkeeping=done.bookkeeping), done)


def is_still_refused(before: DDPJobStatus, then: DDPJobStatus) -> bool:
    """Whether something that was refused while the job had the first status is, once it has the second."""
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=Obliging(6), store=store)
    memory = reconciler._memory(KEY, stored)
    memory.note_refusal(Refused("QuotaExceeded", "no"), datetime.now(UTC), reconciler._situation(stored, before))
    asyncio.run(reconciler._apply(KEY, stored, memory, Decision(status=then), a_job().snapshot))
    return memory.refusal is not None


def test_what_is_refused_again_and_again_is_tried_later_each_time() -> None:
    memory, now, waits = _Memory(UID, saw_pods=True), datetime(2026, 1, 1, tzinfo=UTC), []
    for _ in range(8):
        memory.note_refusal(Refused("QuotaExceeded", "no"), now, None)
        assert memory.refusal
        waits.append((memory.refusal.retry_at - now).total_seconds())
    assert all(least <= wait <= 1.2 * least for least, wait in zip((1, 2, 4, 8, 16, 30, 30, 30), waits, strict=True))
    memory.note_accepted()
    memory.note_refusal(Refused("QuotaExceeded", "no"), now, None)
    assert memory.refusal
    assert (memory.refusal.retry_at - now).total_seconds() <= 1.2


def test_what_was_refused_of_several_jobs_at_once_is_not_tried_again_at_once() -> None:
    now, moments = datetime(2026, 1, 1, tzinfo=UTC), set[datetime]()
    for _ in range(8):
        memory = _Memory(UID, saw_pods=True)
        memory.note_refusal(Refused("QuotaExceeded", "no"), now, None)
        assert memory.refusal
        moments.add(memory.refusal.retry_at)
    assert len(moments) == 8


RESTARTS = DDPJobStatus(attempt=2)


@pytest.mark.parametrize(
    ("version", "status", "told", "left"),
    [
        (5, DDPJobStatus(), [], True),
        (6, RESTARTS, ["Restarting"], False),
        (6, RESTARTS.model_copy(update={"message": "2 pods"}), ["Restarting"], False),
        (6, DDPJobStatus(attempt=1), [], False),
        (6, DDPJobStatus(attempt=3), [], False),
    ],
    ids=["not known yet", "it was written", "in other words", "it never was", "another was written since"],
)
def test_what_goes_with_a_status_that_got_no_answer_is_told_once_it_is_seen_to_be_written(
    version: int,
    status: DDPJobStatus,
    told: list[str],
    left: bool,  # noqa: FBT001  A table.
) -> None:
    store, said = Store(nobody), list[str]()
    store.jobs.update(a_seen_job(5))
    first = store.jobs.get(KEY)
    assert first
    reconciler = a_reconciler(api=Silent(5), store=store, queue=Marked())
    recorder: Any = SimpleNamespace(record=lambda _, event: said.append(event.reason))
    reconciler._recorder = recorder
    memory = reconciler._memory(KEY, first)
    events = (Event(warning=True, reason="Restarting", message="Rank 1 failed"),)
    with pytest.raises(ApiError, match="no answer"):
        asyncio.run(reconciler._apply(KEY, first, memory, Decision(status=RESTARTS, events=events), a_job().snapshot))
    assert said == []
    store.jobs.update(a_seen_job(version, status))
    stored = store.jobs.get(KEY)
    assert stored
    for _ in range(2):
        reconciler._record_late_events(KEY, stored, memory)
    assert (said, memory.late_events is not None) == (told, left)


TRAINS = a_job(nodes=2).running().settled()
FAILED = TRAINS.fails(1).settled()
STARTS = a_job(nodes=2).created()
RESTARTED = "ddpjob_restarts_total", {"namespace": "team", "cause": "Application"}


def counted_restarts(reconciler: Reconciler) -> float | None:
    registry = CollectorRegistry()
    registry.register(reconciler._tally.metrics([], leads=True))
    return registry.get_sample_value(*RESTARTED)


@pytest.mark.parametrize(
    ("api", "counted"),
    [(Obliging(6), 1), (Conflicting(6), None), (Conflicting(5), None), (Silent(5), None)],
    ids=["written", "another has written it", "refused", "no answer"],
)
def test_only_who_has_written_a_status_counts_what_it_says(api: ApiClient, counted: int | None) -> None:
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=api, store=store, queue=Marked())
    memory, decision = reconciler._memory(KEY, stored), Decision(status=FAILED.status)
    with contextlib.suppress(ApiError):
        asyncio.run(reconciler._apply(KEY, stored, memory, decision, TRAINS.snapshot))
    assert counted_restarts(reconciler) == counted
    noted = reconciler._tally._noted.get(KEY)
    assert (noted and noted.standing.kind) == (TimeKind.INFRASTRUCTURE_RECOVERY if counted else None)


@pytest.mark.parametrize(
    ("version", "seen", "counted"),
    [(5, TRAINS, None), (6, FAILED, 1), (6, FAILED.restarted(), None), (6, TRAINS, None)],
    ids=["not known yet", "it was written", "another was written since", "it never was"],
)
def test_what_a_status_that_got_no_answer_says_is_counted_once_if_it_was_written(
    version: int, seen: Moment, counted: int | None
) -> None:
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    first = store.jobs.get(KEY)
    assert first
    reconciler = a_reconciler(api=Silent(5), store=store, queue=Marked())
    memory, decision = reconciler._memory(KEY, first), Decision(status=FAILED.status)
    with pytest.raises(ApiError, match="no answer"):
        asyncio.run(reconciler._apply(KEY, first, memory, decision, TRAINS.snapshot))
    store.jobs.update(a_seen_job(version, seen.status))
    stored = store.jobs.get(KEY)
    assert stored
    for _ in range(2):
        reconciler._record_late_events(KEY, stored, memory)
    assert counted_restarts(reconciler) == counted


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([TRAINS], [TimeKind.OTHER]),
        ([STARTS, STARTS.placed(0, 1)], [None, TimeKind.ACCELERATOR_INITIALIZATION]),
    ],
    ids=["another operator has written that it runs", "its pods are placed, without a new status"],
)
def test_the_time_of_a_job_counts_although_its_status_is_not_written_and_not_when_it_is_gone(
    moments: list[Moment], expected: list[TimeKind | None]
) -> None:
    store, kinds = Store(nobody), list[object]()
    store.jobs.update(a_seen_job(5, moments[0].status))
    listening: Any = Listening()
    reconciler = a_reconciler(api=Silent(5), store=store, queue=Marked(), supervisors=listening, witnesses=listening)
    for moment in moments:

        async def decides(*_: Any, moment: Moment = moment) -> tuple[Any, Decision]:
            return moment.snapshot, Decision()

        reconciler._decision = decides  # type: ignore[method-assign]
        stored = store.jobs.get(KEY)
        assert stored
        reconciler._memory(KEY, stored).saw_pods = True
        asyncio.run(reconciler.round(KEY))
        kinds.append(noted.standing.kind if (noted := reconciler._tally._noted.get(KEY)) else None)
    store.jobs.forget(KEY, UID)
    asyncio.run(reconciler.round(KEY))
    assert kinds == expected
    assert KEY not in reconciler._tally._noted


def test_what_changes_nothing_is_done_again_later_each_time_and_said(caplog: pytest.LogCaptureFixture) -> None:
    clock, acts, said = [datetime(2026, 1, 1, tzinfo=UTC)], [], IN_VAIN._value.get()
    api = Obliging(6)
    api.now = lambda: clock[0]  # type: ignore[method-assign]
    store, queue = Store(nobody), Marked()
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=api, store=store, queue=queue)
    memory = reconciler._memory(KEY, stored)
    memory.current = True
    decision = Decision(actions=(Delete(NETWORK_POLICY, "digits-x"),))

    async def looks() -> None:
        for _ in range(600):  # A look each 0.1 s, for a minute.
            before = len(queue.marked)
            await reconciler._apply(KEY, stored, memory, decision, a_job().snapshot)
            if len(queue.marked) > before:
                acts.append((clock[0] - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds())
            clock[0] += timedelta(seconds=0.1)

    asyncio.run(looks())
    pauses = [after - before for before, after in pairwise(acts)]
    assert len(acts) <= 7
    assert pauses == sorted(pauses)
    assert memory.refusal
    assert (memory.refusal.reason, memory.refusal.message) == (
        "NoEffect",
        "Delete NetworkPolicy digits-x had no effect; trying again later",
    )
    assert IN_VAIN._value.get() - said == len(caplog.messages) == len(acts)


def test_what_is_refused_each_time_is_refused_and_not_without_effect() -> None:
    moment, reasons, tries = datetime(2026, 1, 1, tzinfo=UTC), [], []
    api = Obliging(6)
    api.now = lambda: moment  # type: ignore[method-assign]
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=api, store=store, queue=Marked())

    async def refuse(*_: object) -> None:
        tries.append(moment)
        raise Refused("QuotaExceeded", "no")

    reconciler._writer.carry_out = refuse  # type: ignore[method-assign]
    memory = reconciler._memory(KEY, stored)
    memory.current = True
    for _ in range(3):
        for _ in range(2):  # The second look comes too soon.
            asyncio.run(
                reconciler._apply(
                    KEY, stored, memory, Decision(actions=(Delete(NETWORK_POLICY, "x"),)), a_job().snapshot
                )
            )
        assert memory.refusal
        reasons.append(memory.refusal.reason)
        moment = memory.refusal.retry_at
    assert (reasons, len(tries)) == (["QuotaExceeded"] * 3, 3)


@pytest.mark.parametrize(
    ("status", "service", "remembered"),
    [
        (DDPJobStatus(), True, True),
        (OTHER_PODS, True, False),
        (DDPJobStatus(), False, False),
    ],
    ids=["nothing", "a status that was written though no answer came", "the Service is gone"],
)
def test_a_refusal_is_forgotten_where_something_else_is_missing_now(
    status: DDPJobStatus,
    service: bool,  # noqa: FBT001  A table.
    remembered: bool,  # noqa: FBT001  A table.
) -> None:
    listening: Any = Listening()
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    store.owned[SERVICE].update(a_service())
    first = store.jobs.get(KEY)
    assert first
    reconciler = a_reconciler(api=Silent(6), store=store, supervisors=listening, witnesses=listening)
    memory = reconciler._memory(KEY, first)
    memory.saw_pods = True
    memory.note_refusal(
        Refused("QuotaExceeded", "no"), datetime.now(UTC), reconciler._situation(first, store.job(first).status)
    )
    store.jobs.update(a_seen_job(6, status))
    if not service:
        store.owned[SERVICE].forget(SERVICE_KEY, "service-uid")
    with pytest.raises(ApiError, match="no answer"):
        asyncio.run(reconciler.round(KEY))
    assert (memory.refusal is not None) == remembered


@pytest.mark.parametrize(
    ("status", "looked"),
    [(None, True), (UNSEEN, True), ({"observedGeneration": 1}, False)],
    ids=["none, as servers of before have it", "that of a new type", "an operator's"],
)
def test_a_list_tells_all_of_a_job_that_no_operator_has_looked_at(
    status: dict[str, int] | None,
    looked: bool,  # noqa: FBT001  A table.
) -> None:
    store, job = Store(nobody), a_job(nodes=2).snapshot.job.to_document()
    metadata = {"name": KEY[1], "namespace": KEY[0], "uid": UID, "resourceVersion": "5"}
    store.jobs.update(read({**job, "metadata": metadata, "status": status}, JobObject))
    stored = store.jobs.get(KEY)
    assert stored
    assert a_reconciler(store=store)._memory(KEY, stored).saw_pods is looked


def test_what_was_not_carried_out_had_no_chance_of_an_effect() -> None:
    store, tries, said = Store(nobody), [], IN_VAIN._value.get()
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    api = Obliging(6)
    api.now = lambda: datetime(2026, 1, 1, tzinfo=UTC)  # type: ignore[method-assign]
    reconciler = a_reconciler(api=api, store=store)
    memory = reconciler._memory(KEY, stored)
    memory.current = True

    async def unanswered(*_: Any) -> None:
        tries.append(1)
        raise ApiError(0, "NoAnswer", "no answer")

    reconciler._writer.carry_out = unanswered  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(ApiError, match="no answer"):
            asyncio.run(
                reconciler._apply(
                    KEY, stored, memory, Decision(actions=(Delete(NETWORK_POLICY, "digits-x"),)), a_job().snapshot
                )
            )
    assert (len(tries), IN_VAIN._value.get()) == (3, said)


def test_that_jobs_are_not_marked_is_told_as_long_as_their_namespace_has_any() -> None:
    listening: Any = Listening()
    store = Store(nobody)
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(api=Silent(5), store=store, supervisors=listening, witnesses=listening)
    reconciler._memory(KEY, stored)
    reconciler._writer.unmarked[KEY[0]] = "nobody may"
    assert (
        reconciler.problems
        == "namespace team: finished jobs do not get the annotation ddpjob.dev/finished, but everything else works: "
        "nobody may"
    )
    store.jobs.forget(KEY, stored.uid)
    asyncio.run(reconciler.round(KEY))
    assert reconciler.problems == ""


@pytest.mark.parametrize("pods", [LARGE_DECISION, LARGE_DECISION + 1])
def test_a_round_that_has_much_to_carry_out_keeps_no_other_waiting(pods: int) -> None:
    queue, store = Aside(), Store(nobody)
    store.jobs.update(a_seen_job(5))
    stored = store.jobs.get(KEY)
    assert stored
    api = Obliging(6)
    reconciler = a_reconciler(api=api, store=store, queue=queue)
    deletions = tuple(DeletePod(f"digits-{rank}", "uid", None) for rank in range(pods))
    memory = reconciler._memory(KEY, stored)
    asyncio.run(
        reconciler._apply(KEY, stored, memory, Decision(status=OTHER_PODS, actions=deletions), a_job().snapshot)
    )
    assert (api.deleted, queue.aside) == (pods, [KEY] if pods > LARGE_DECISION else [])


def test_what_is_to_be_made_waits_for_its_turn_and_what_is_to_end_does_not() -> None:
    queue = WorkQueue()
    reconciler = a_reconciler(queue=queue)
    much = a_job(nodes=LARGE_DECISION + 1).decision
    both = replace(much, actions=(*much.actions, DeletePod("digits-0", "uid", None)))
    assert queue.is_its_turn(("team", "another"))
    assert reconciler._limited_to_turn(KEY, both).actions == both.actions[-1:]
    little = a_job(nodes=LARGE_DECISION).decision
    assert reconciler._limited_to_turn(KEY, little) is little
    assert reconciler._limited_to_turn(("others", "digits"), both) is both


class Timed(WorkQueue):
    """Keeps in how many seconds a look is wanted."""

    def mark_in(self, key: Key, seconds: float) -> None:
        self.wanted = key, seconds


def test_a_job_for_which_only_time_passes_is_looked_at_again_in_time() -> None:
    nothing: Any = None
    now, queue = datetime.now(UTC), Timed()
    api: Any = SimpleNamespace(now=lambda: now, read_clock=lambda: a_reading(now))
    memory: Any = SimpleNamespace()
    reconciler = a_reconciler(api=api, queue=queue)
    waits = Decision(wake_at=now + timedelta(seconds=30))
    asyncio.run(reconciler._apply(KEY, nothing, memory, waits, a_job().snapshot))
    assert queue.wanted == (KEY, 30)


RESTING: dict[str, tuple[Moment, bool]] = {
    "one that has finished": (a_job().running().succeeds(0).settled(), True),
    "one that has finished, and of whose pods one is still to be deleted": (
        a_job(cleanPodPolicy="All").running().succeeds(0).said(),
        False,
    ),
    "one that has finished, which cannot be said in its metadata": (
        a_job().running().succeeds(0).settled().refused("Forbidden", "no rights"),
        False,
    ),
    "one that will be deleted in time": (
        a_job(ttlSecondsAfterFinished=60).running().succeeds(0).settled(),
        True,
    ),
    "one that is suspended": (a_job(suspend=True).settled(), True),
    "one that is suspended, of a queue": (a_job(suspend=True).queues().settled(), True),
    "one that is suspended, whose supervisor is still asked": (
        a_job().running().hears().asks(suspend=True).settled(),
        False,
    ),
    "one that is to go on": (a_job(suspend=True).settled().asks(suspend=False), False),
    "one that runs": (a_job().running().hears().settled(), False),
}


@pytest.mark.parametrize(("moment", "rests"), RESTING.values(), ids=RESTING)
def test_a_job_with_nothing_to_do_is_at_rest(moment: Moment, rests: bool) -> None:  # noqa: FBT001  A table.
    assert _at_rest(moment.asked, moment.decision) is rests


class Counting(Silent):
    """An API server that counts what it is asked for; it takes any status, and has the pods in `pods`."""

    def __init__(self, job: JobObject, pods: list[PodObject]) -> None:
        super().__init__(5)
        self.asked: list[str] = []
        self.job, self.pods = job, pods

    async def get(self, *_: Any) -> Any:
        self.asked.append("GET")
        return self.job

    async def list(self, *_: Any) -> Any:
        self.asked.append("LIST")
        return [*self.pods], 99

    async def replace_status(self, *_: Any) -> Any:
        self.asked.append("PUT")
        raise ApiError(0, "NoAnswer", "no answer")


def a_counted_job(document: dict[str, Any], pods: list[PodObject]) -> tuple[Counting, Store, Reconciler]:
    metadata = {"name": KEY[1], "namespace": KEY[0], "uid": UID, "resourceVersion": "5"}
    job, store, listening = read({**document, "metadata": metadata}, JobObject), Store(nobody), Listening()
    store.jobs.update(job)
    for pod in pods:
        store.pods.update(pod)
    api = Counting(job, pods)
    return api, store, a_reconciler(api=api, store=store, supervisors=listening, witnesses=listening)


def test_the_pods_of_a_job_that_ends_are_not_listed_each_time_that_one_of_them_goes() -> None:
    ending = a_job(nodes=4, restart={"maxRestarts": 0}).running().fails(0, message="no").decided()
    assert ending.status.ending
    present = [a_pod(rank, containerStatuses=trainer(running={})) for rank in range(4)]
    api, store, reconciler = a_counted_job(ending.snapshot.job.to_document(), present)

    async def goes() -> None:
        stored = store.jobs.get(KEY)
        assert stored
        memory = reconciler._memory(KEY, stored)
        memory.saw_pods = memory.current = True
        for rank in range(1, 4):
            gone = store.pods.owned_by(DIGITS)[0]
            store.pods.forget((KEY[0], gone.name), gone.uid)
            await reconciler._decision(KEY, stored, memory)
            assert len(store.pods.owned_by(DIGITS)) == 4 - rank
            api.pods.pop(0)
            assert api.asked == []
        store.pods.forget((KEY[0], name_of(3)), "pod-3-1")
        api.pods.clear()
        await reconciler._decision(KEY, stored, memory)

    asyncio.run(goes())
    assert api.asked == ["GET", "LIST"], "once, before it ends for good"


@pytest.fixture(params=["a Service", "a pod"])
def creation(request: pytest.FixtureRequest) -> Create | CreatePod:
    job = a_job(nodes=2).running().snapshot.job
    return Create(SERVICE, build_service(job)) if request.param == "a Service" else CreatePod(2, job, reserve=True)


class Answering(Counting):
    """An API server that counts requests, and takes any status. If `job` is an error, a read of the job raises it."""

    async def get(self, *_: Any) -> Any:
        job = await super().get()
        if isinstance(job, ApiError):
            raise job
        return job

    async def replace_status(self, *_: Any) -> Any:
        self.asked.append("PUT")
        return a_seen_job(6)


class Carrying:
    """A reconciler that knows a job, and only counts what would be carried out."""

    def __init__(self, there: Any) -> None:
        """`there`: the job that the API server has, or what it answers instead."""
        self.api, self.store, self.done = Answering(there, []), Store(nobody), 0
        self.store.jobs.update(a_seen_job(5))
        self.reconciler = a_reconciler(api=self.api, store=self.store, queue=Marked())
        self.reconciler._writer.carry_out = self._carry_out  # type: ignore[method-assign]
        self.memory = self.reconciler._memory(KEY, self._stored())
        self.memory.current = True

    def applies(self, decision: Decision) -> tuple[list[str], bool]:
        """What the API server is asked for, and whether the actions are carried out."""
        self.done, self.api.asked = 0, []
        with contextlib.suppress(ApiError):
            asyncio.run(self.reconciler._apply(KEY, self._stored(), self.memory, decision, a_job().snapshot))
        return self.api.asked, bool(self.done)

    async def _carry_out(self, *_: Any) -> None:
        self.done += 1

    def _stored(self) -> StoredJob:
        stored = self.store.jobs.get(KEY)
        assert stored
        return stored


@pytest.mark.parametrize(
    ("there", "creates"),
    [
        (a_seen_job(5), True),
        (a_seen_job(6), False),
        (None, False),
        (a_seen_job(6, uid="of-its-successor"), False),
    ],
    ids=["unchanged", "changed", "gone", "made anew"],
)
def test_without_a_status_something_is_created_only_for_a_job_that_is_still_there(
    there: JobObject | None,
    creates: bool,  # noqa: FBT001  A table.
    creation: Create | CreatePod,
) -> None:
    decision = Decision(actions=(Delete(NETWORK_POLICY, "x"), creation))
    assert Carrying(there).applies(decision) == (["GET"], creates)


def test_nothing_is_read_before_what_names_a_version_or_a_uid(creation: Create | CreatePod) -> None:
    carrying = Carrying(a_seen_job(5))
    assert carrying.applies(Decision(actions=(Delete(NETWORK_POLICY, "x"),))) == ([], True)
    assert carrying.applies(Decision(status=RESTARTS, actions=(creation,))) == (["PUT"], True)


@pytest.mark.parametrize("answer", [a_seen_job(6), ApiError(0, "NoAnswer", "no answer")], ids=["changed", "silent"])
def test_a_creation_that_waits_for_a_look_at_the_job_was_not_without_effect(
    answer: Any, creation: Create | CreatePod
) -> None:
    carrying, decision = Carrying(answer), Decision(actions=(creation,))
    assert carrying.applies(decision) == (["GET"], False)
    carrying.api.job = a_seen_job(6)
    carrying.store.jobs.update(a_seen_job(6))
    assert carrying.applies(decision) == (["GET"], True)
    assert carrying.memory.refusal is None
    assert carrying.applies(decision) == ([], False)
    assert carrying.memory.refusal is not None, "it was carried out, and the same is still missing"


def test_nothing_is_read_of_a_job_that_another_controller_manages() -> None:
    api, _, reconciler = a_counted_job(a_job(managedBy="kueue.x-k8s.io/multikueue").snapshot.job.to_document(), [])
    for _ in range(3):
        assert asyncio.run(reconciler.round(KEY)) == 0
    assert api.asked == []


def test_a_look_that_finds_a_job_at_rest_is_remembered() -> None:
    store, api = Store(nobody), SimpleNamespace(read_clock=lambda: a_reading(datetime.now(UTC)))
    suspended = a_job(suspend=True).settled().snapshot.job.to_document()
    suspended["metadata"] = {"name": KEY[1], "namespace": KEY[0], "uid": UID, "resourceVersion": "5"}
    store.jobs.update(read(suspended, JobObject))
    stored = store.jobs.get(KEY)
    assert stored
    listening = Listening()
    reconciler = a_reconciler(api=api, store=store, supervisors=listening, witnesses=listening)
    reconciler._memory(KEY, stored).saw_pods = True
    assert not reconciler.at_rest(KEY)
    asyncio.run(reconciler.round(KEY))
    assert reconciler.at_rest(KEY)


class Picky(Counting):
    """An API server that refuses each status for which `refuses` gives an error, and keeps all others."""

    def __init__(self, job: JobObject, refuses: Callable[[dict[str, Any]], ApiError | None]) -> None:
        super().__init__(job, [])
        self.refuses = refuses

    async def replace_status(self, _kind: Any, _namespace: Any, _name: Any, version: str, status: Any) -> Any:
        self.asked.append("PUT")
        if (error := self.refuses(status)) is not None:
            raise error
        document = {
            "spec": self.job.spec.read(),
            "metadata": msgspec.to_builtins(self.job.metadata, enc_hook=lambda _: {}),
        }
        metadata = {**document["metadata"], "resourceVersion": str(int(version) + 1)}
        self.job = read({**document, "metadata": metadata, "status": status}, JobObject)
        return self.job


def looked_at(
    document: dict[str, Any], refuses: Callable[[dict[str, Any]], ApiError | None]
) -> tuple[Picky, list[str]]:
    """A server and the events of a job that was looked at three times."""
    metadata = {"name": KEY[1], "namespace": KEY[0], "uid": UID, "resourceVersion": "5", "generation": 7}
    job, store, listening, said = read({**document, "metadata": metadata}, JobObject), Store(nobody), Listening(), []
    store.jobs.update(job)
    api = Picky(job, refuses)
    reconciler = a_reconciler(api=api, store=store, supervisors=listening, witnesses=listening, queue=Marked())
    recorder: Any = SimpleNamespace(record=lambda _, event: said.append(f"{event.reason}: {event.message}"))
    reconciler._recorder = recorder
    stored = store.jobs.get(KEY)
    assert stored
    memory = reconciler._memory(KEY, stored)
    memory.saw_pods = memory.current = True

    async def looks() -> None:
        for _ in range(3):
            with contextlib.suppress(ApiError):
                await reconciler.round(KEY)

    asyncio.run(looks())
    return api, said


def blocked(api: Picky) -> tuple[str, str]:
    """The reason and the message for which the job is blocked, by its status."""
    status = DDPJobStatus.model_validate(api.job.status.read())
    condition = status.condition(ConditionType.BLOCKED)
    assert condition is not None
    assert (condition.status, status.reason, status.observed_generation) == ("True", condition.reason, 7)
    return condition.reason, condition.message


def test_a_job_of_a_newer_version_says_that_nobody_attends_to_its_pods() -> None:
    running = a_job(nodes=2).running().hears(step=40).settled()
    document = running.snapshot.job.to_document()
    document["spec"] = {**running.snapshot.job.spec.to_dict(), "moon": "full"}
    api, said = looked_at(document, lambda _: None)
    assert blocked(api) == (
        "Unreadable",
        (
            "This version of the operator cannot read the job: spec.moon: Extra inputs are not permitted. Until that "
            "changes, the operator does nothing for the job: its pods stay as they are, and nothing restarts them"
        ),
    )
    kept = DDPJobStatus.model_validate(api.job.status.read())
    assert (kept.state, kept.attempt, kept.bookkeeping) == ("Running", 1, running.status.bookkeeping)
    assert api.asked == ["PUT"], "it is said once"
    assert all(words.startswith("Unreadable: ") for words in said)


def invalid(status: dict[str, Any]) -> ApiError | None:
    """That of an API server whose type knows only jobs that are blocked."""
    known = any(one["type"] == "Blocked" and one["status"] == "True" for one in status["conditions"])
    return None if known else ApiError(422, "Invalid", "status.moon: Unsupported value")


def test_a_status_that_is_refused_for_good_is_said_in_a_condition_and_an_event() -> None:
    api, said = looked_at(a_job(nodes=2).snapshot.job.to_document(), invalid)
    message = (
        "The API server refuses the job's status: status.moon: Unsupported value. Until that changes, the operator "
        "does nothing for the job: its pods stay as they are, and nothing restarts them"
    )
    assert blocked(api) == ("StatusRefused", message)
    assert said == [f"StatusRefused: {message}"]
    assert api.asked == ["PUT"] * 4, "the condition once, the status each time"


def test_where_a_policy_refuses_each_status_an_event_says_so() -> None:
    denied = ApiError(403, "Forbidden", 'admission webhook "policy" denied the request')
    _, said = looked_at(a_job(nodes=2).snapshot.job.to_document(), lambda _: denied)
    assert len(said) == 1
    assert said[0].startswith("StatusRefused: The API server refuses the job's status: admission webhook")


def test_a_status_that_cannot_be_written_now_is_no_refusal() -> None:
    busy = ApiError(503, "ServiceUnavailable", "later")
    api, said = looked_at(a_job(nodes=2).snapshot.job.to_document(), lambda _: busy)
    assert (said, api.asked) == ([], ["PUT"] * 3)


def test_a_job_that_can_no_longer_be_read_is_not_at_rest() -> None:
    store, said = Store(nobody), list[str]()
    unreadable = {"metadata": {"name": KEY[1], "namespace": KEY[0], "uid": UID, "resourceVersion": "5"}, "spec": {}}
    store.jobs.update(read(unreadable, JobObject))
    stored = store.jobs.get(KEY)
    assert stored
    reconciler = a_reconciler(store=store, api=Silent(5))
    recorder: Any = SimpleNamespace(record=lambda _, event: said.append(event.reason))
    reconciler._recorder = recorder
    memory = reconciler._memory(KEY, stored)
    memory.at_rest = True
    with pytest.raises(ApiError, match="no answer"):
        asyncio.run(reconciler.round(KEY))
    assert (said, reconciler.at_rest(KEY)) == (["Unreadable"], False), "what is wrong with it is said again"


def test_a_status_that_can_wait_is_written_soon_but_no_two_of_them_shortly_after_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, now, waits = _Memory(UID, saw_pods=True), [1000.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for later, written in ((0, None), (1, None), (2, "minor"), (1, None), (9, "major"), (1, None)):
        now[0] += later
        waits.append(memory.minor_wait())
        if written:
            memory.note_written(minor=written == "minor")
    assert waits == [3, 2, 0, 9, 0, 3]


def test_a_job_whose_objects_were_never_listed_is_read_before_it_is_decided_on() -> None:
    jobs, read_again = Contending(), AsyncMock()
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    jobs.reconciler._memory(key, stored).saw_pods = False
    jobs.reconciler._read_again = read_again  # type: ignore[method-assign]
    assert asyncio.run(jobs.reconciler.round(key)) == 0
    assert read_again.mock_calls == [call(key, stored)]
    assert jobs.queue.marked == [key]


def test_of_a_namespace_that_was_left_everything_is_read_again_and_of_others_nothing() -> None:
    jobs = Contending()
    for key in (jobs.older, jobs.younger):
        jobs.reconciler._memory(key, jobs.stored(key)).saw_pods = True
        jobs.reconciler._writer.unmarked[key[0]] = "nobody may"
    jobs.reconciler.leave_namespace(jobs.older[0])
    seen = [jobs.reconciler._memory(key, jobs.stored(key)).saw_pods for key in (jobs.older, jobs.younger)]
    assert seen == [False, True]
    assert jobs.reconciler._writer.unmarked.keys() == {jobs.younger[0]}


@pytest.mark.parametrize("changes", [True, False])
def test_a_job_that_changes_while_its_pods_are_listed_is_decided_on_anew(*, changes: bool) -> None:
    jobs = Contending()
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    done: Any = SimpleNamespace(needs=Needs())

    async def read_again(*_: Any) -> None:
        if changes:
            jobs.store.jobs.update(msgspec.structs.replace(a_job_of(key), metadata=replace_version(key)))

    def replace_version(key: Key) -> ObjectMeta:
        return msgspec.structs.replace(a_job_of(key).metadata, resource_version="6")

    jobs.reconciler._read_again = read_again  # type: ignore[method-assign]
    needs = [SimpleNamespace(needs=Needs(pods=True)), done]
    jobs.reconciler._decide = AsyncMock(side_effect=needs)  # type: ignore[method-assign]
    _, decision = asyncio.run(jobs.reconciler._decision(key, stored, jobs.reconciler._memory(key, stored)))
    assert decision is (None if changes else done)
    assert jobs.queue.marked == [key] * changes


def test_a_status_that_can_wait_does_and_is_looked_at_again_then(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, later = Contending(), Mock()
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    memory = jobs.reconciler._memory(key, stored)
    memory.minor_due = time.monotonic() + 60
    monkeypatch.setattr(jobs.queue, "mark_in", later)
    decision: Any = SimpleNamespace(wake_at=None, empty=False, can_wait=True)
    asyncio.run(jobs.reconciler._apply(key, stored, memory, decision, Mock()))
    assert later.mock_calls == [call(key, pytest.approx(60, abs=30))]


def test_before_what_no_status_precedes_a_job_is_read_that_may_not_be_current() -> None:
    jobs, read_again = Contending(), AsyncMock()
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    jobs.reconciler._read_again = read_again  # type: ignore[method-assign]
    memory = jobs.reconciler._memory(key, stored)
    assert asyncio.run(jobs.reconciler._is_present(key, stored, memory, ())) is False
    assert read_again.mock_calls == [call(key, stored)]


def test_what_is_looked_up_joins_what_is_known() -> None:
    jobs: Any = Contending()
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    snapshot = jobs.reconciler._snapshot(key, stored, jobs.reconciler._memory(key, stored))
    known = replace(snapshot, kubernetes_node_problems={"a": "x"}, flavors={"a": "x"})
    jobs.reconciler._kubernetes_nodes = SimpleNamespace(problems=AsyncMock(return_value={"b": "y"}))
    jobs.reconciler._flavors = SimpleNamespace(read=AsyncMock(return_value={"b": "y"}))
    needs = Needs(node_names=frozenset("b"), flavors=frozenset("b"))
    found = asyncio.run(jobs.reconciler._with_answers(key, stored, known, needs))
    assert found.kubernetes_node_problems == found.flavors == {"a": "x", "b": "y"}


@pytest.mark.parametrize(
    ("finished", "asks", "calls"),
    [(True, False, [call.forget(KEY)]), (False, False, [call.attend(KEY, UID, None)]), (False, True, [])],
)
def test_the_last_report_is_kept_until_the_job_has_finished(calls: list[Any], *, finished: bool, asks: bool) -> None:
    supervisors, witnesses = Mock(), Mock()
    reconciler = a_reconciler(supervisors=supervisors, witnesses=witnesses)
    job = SimpleNamespace(status=SimpleNamespace(finished=finished), metadata=SimpleNamespace(uid=UID))
    asked = Asked("digits-0", "10.0.0.1", 1) if asks else None
    snapshot: Any = SimpleNamespace(job=job, answered=Needs(supervisor=asked))
    reconciler._stop_asking(KEY, snapshot)
    assert supervisors.mock_calls == calls
    assert witnesses.mock_calls == [call.forget(KEY)]


@pytest.mark.parametrize("readable", [True, False])
def test_a_status_that_cannot_be_read_is_not_overwritten(*, readable: bool) -> None:
    jobs: Any = Contending()
    key = jobs.younger
    with pytest.raises(ValidationError) as raised:
        DDPJobStatus.model_validate({"attempt": "x"})
    stored = SimpleNamespace(without_spec=Mock(side_effect=None if readable else raised.value))
    jobs.reconciler._record_events, jobs.reconciler._block = Mock(), AsyncMock()
    asyncio.run(jobs.reconciler._report_unreadable(key, stored, raised.value))
    (event,) = jobs.reconciler._record_events.call_args.args[2]
    assert event.message.startswith("This version of the operator cannot read the job: attempt: ")
    assert jobs.reconciler._block.called is readable


FOUND = Defaults(image="registry.example.com/t:1", queue="training", sources={"image": "a", "queue": "a"})


@pytest.mark.parametrize(
    ("status", "answer", "expected", "asks"),
    [
        pytest.param({}, FOUND, (FOUND, ""), True, id="of a job that has not begun"),
        pytest.param({}, DefaultsUnknownError("nobody knows"), (NO_DEFAULTS, "nobody knows"), True, id="not known"),
        pytest.param({"attempt": 1}, FOUND, (NO_DEFAULTS, ""), False, id="of one that began without"),
        pytest.param(
            {"attempt": 1, "defaults": {"image": "b", "sources": {"image": "z"}}},
            FOUND,
            (Defaults(image="b", sources={"image": "z"}), ""),
            False,
            id="of one that began with others",
        ),
    ],
)
def test_a_job_that_has_begun_keeps_its_defaults_and_another_gets_those_of_its_namespace(
    status: dict[str, Any], answer: Any, expected: tuple[Defaults, str], *, asks: bool
) -> None:
    asked = []

    async def defaults_of(namespace: str) -> Defaults:
        asked.append(namespace)
        if isinstance(answer, Exception):
            raise answer
        found: Defaults = answer
        return found

    document = {"metadata": {"name": "digits", "namespace": "team"}, "spec": {"template": {"spec": {}}}}
    job = DDPJob.from_dict({**document, "status": status})
    reconciler = a_reconciler(defaults_of=defaults_of)
    assert asyncio.run(reconciler._defaults(job)) == expected
    assert asked == ["team"] * asks


def test_a_snapshot_has_the_defaults_the_job_with_them_and_the_default_queue_unless_the_job_names_one() -> None:
    jobs = Contending()
    key, stored = jobs.younger, jobs.stored(jobs.younger)
    snapshot = jobs.reconciler._snapshot(key, stored, jobs.reconciler._memory(key, stored), FOUND, "")
    assert (snapshot.defaults, snapshot.queue) == (FOUND, Queue("training"))
