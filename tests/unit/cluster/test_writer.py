"""What the writer makes of answers that a real API server gives only now and then."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from ddpjob_operator.cluster.conversion import Ref
from ddpjob_operator.cluster.fair_queue import ALONE, AT_ONCE
from ddpjob_operator.cluster.kube import objects
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError, FencedError
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.kube.objects import JobObject, PodGroupObject
from ddpjob_operator.cluster.kube.objects import read as as_kept
from ddpjob_operator.cluster.refusals import Refused
from ddpjob_operator.cluster.store import Store
from ddpjob_operator.cluster.writer import ENOUGH_FAILURES, Writer
from ddpjob_operator.engine import (
    NETWORK_POLICY,
    POD_GROUP,
    SECRET,
    SERVICE,
    Action,
    Create,
    CreatePod,
    Delete,
    DeleteJob,
    DeletePod,
    MarkFinished,
    RequestCheckpoint,
    Settings,
    StopPod,
    TellDomain,
)
from ddpjob_operator.engine.manifests.children import build_network_policy, build_secret, build_service

from tests.support.waiting import patience
from tests.unit.engine.builders import a_job

from .manifests import DIGITS, UID, a_manifest, a_pod, name_of, nobody, owned, read

JOB = Ref("team", "digits", UID, 1)


@cache
def gang() -> tuple[CreatePod, ...]:
    """All pods of the largest job."""
    return tuple(one for one in a_job(nodes=4096).called(uid=UID).decision.actions if isinstance(one, CreatePod))


def first() -> CreatePod:
    return gang()[0]


class Answering(ApiClient):
    """An API server whose answer to a deletion is known beforehand."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(Answer(answer), lambda: True)


class Answer(Connection):
    """The connection to it."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        return 200, json.dumps(self._answer).encode(), None


def without_version() -> dict[str, Any]:
    pod = a_manifest()
    del pod["metadata"]["resourceVersion"]
    return pod


def a_store() -> Store:
    """It knows of a pod."""
    store = Store(nobody)
    store.pods.update(a_pod())
    return store


def a_writer(api: ApiClient, store: Store) -> Writer:
    """With one job to work on."""
    return Writer(api, store, lambda: True)


def delete(api: ApiClient, store: Store) -> None:
    """That pod."""
    identity = a_pod().metadata
    asyncio.run(a_writer(api, store).carry_out((DeletePod(identity.name, identity.uid, 5),), JOB))


@pytest.mark.parametrize(
    "answer",
    [without_version(), {"kind": "Status", "metadata": {}, "status": "Success"}],
    ids=["pod", "status"],
)
def test_a_pod_that_went_while_it_was_being_deleted_is_gone(answer: dict[str, Any]) -> None:
    store = a_store()
    delete(Answering(answer), store)
    assert not store.pods.owned_by(DIGITS)


def test_a_pod_that_ends_is_known_as_it_is_while_it_ends() -> None:
    store, ending = a_store(), a_manifest(version=2)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    delete(Answering(ending), store)
    assert [known.deleting for known in store.pods.owned_by(DIGITS)] == [True]


class Unmarked(Answering):
    """One that lets nobody change a job, or does not find it; none of its pods can be made now."""

    def __init__(self, error: ApiError | None) -> None:
        super().__init__(without_version())
        self.error = error
        self.makes = asyncio.Event()

    async def merge(self, *_: Any) -> Any:
        if self.error is not None:
            raise self.error
        return a_job_object()

    async def create(self, *_: Any) -> Any:
        await self.makes.wait()


NO_RIGHT = ApiError(403, "Forbidden", 'ddpjobs.ddpjob.dev "digits" is forbidden: nobody may')
MARK = MarkFinished("Failed 12345678")


def a_job_object() -> JobObject:
    metadata = {"name": "digits", "namespace": "team", "uid": UID, "resourceVersion": "1"}
    return as_kept({"metadata": metadata}, JobObject)


def test_the_pods_of_a_finished_job_go_also_where_it_may_not_be_marked() -> None:
    store, identity = a_store(), a_pod().metadata
    with pytest.raises(Refused):
        asyncio.run(
            a_writer(Unmarked(NO_RIGHT), store).carry_out((MARK, DeletePod(identity.name, identity.uid, 5)), JOB)
        )
    assert not store.pods.owned_by(DIGITS)


def test_where_jobs_may_not_be_marked_it_is_said_once_until_they_may(caplog: pytest.LogCaptureFixture) -> None:
    api = Unmarked(NO_RIGHT)
    writer = a_writer(api, Store(nobody))
    for _ in range(2):
        with pytest.raises(Refused, match="nobody may"):
            asyncio.run(writer.carry_out((MARK,), JOB))
    assert caplog.messages == [
        (
            "namespace team: finished jobs do not get the annotation ddpjob.dev/finished, but everything else works: "
            f"{NO_RIGHT}"
        )
    ]
    assert writer.unmarked == {"team": NO_RIGHT.message}
    api.error = None
    asyncio.run(writer.carry_out((MARK,), JOB))
    assert writer.unmarked == {}


@pytest.mark.parametrize(
    "error",
    [
        ApiError(404, "NotFound", "no"),
        ApiError(422, "Invalid", 'DDPJob "digits" is invalid: metadata.uid: Invalid value: …'),
    ],
    ids=["gone", "another one has its name"],
)
def test_a_finished_job_that_is_gone_by_now_is_forgotten_and_not_marked(error: ApiError) -> None:
    store = Store(nobody)
    store.jobs.update(a_job_object())
    asyncio.run(a_writer(Unmarked(error), store).carry_out((MARK,), JOB))
    assert store.jobs.get(("team", "digits")) is None


def test_a_mark_does_not_wait_for_all_that_is_to_be_made() -> None:
    async def play() -> None:
        api = Unmarked(None)
        writer = Writer(api, Store(nobody), lambda: False)
        others = [Ref("team", f"large-{number}", "uid", 1) for number in range(AT_ONCE)]
        making = [asyncio.create_task(writer.carry_out((first(),), job)) for job in others]
        await asyncio.sleep(0)
        async with asyncio.timeout(patience(2)):
            await writer.carry_out((MARK,), JOB)
        for task in making:
            task.cancel()

    asyncio.run(play())


class Refusing(Answering):
    """One that lets nobody make a pod."""

    def __init__(self, error: ApiError) -> None:
        super().__init__({})
        self._error = error
        self.asked = 0

    async def create(self, *_: Any) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        raise self._error


@pytest.mark.parametrize(
    ("status", "reason", "message", "told"),
    [
        (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: few', "QuotaExceeded"),
        (403, "Forbidden", 'pods "a" is forbidden: violates PodSecurity "restricted:latest"', "PodSecurityViolation"),
        (403, "Forbidden", "no PriorityClass with name high was found", "Forbidden"),
        (400, "400", 'admission webhook "a.b" denied the request: no', "PolicyDenied"),
        (422, "any word 2", 'admission webhook "a.b" denied the request: exceeded quota', "PolicyDenied"),
        (
            422,
            "Invalid",
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'all' denied request: no label",
            "PolicyDenied",
        ),
        (422, "Invalid", 'Pod "a" is invalid: spec.hostname: Invalid value', "Invalid"),
        (400, "BadRequest", "Pod in version v1 cannot be handled as a Pod", "Invalid"),
        (404, "NotFound", 'namespaces "team" not found', "Forbidden"),
        (500, "InternalError", 'Internal error occurred: failed calling webhook "a.b": refused', "WebhookFailed"),
    ],
)
def test_a_refusal_is_told_in_a_word_of_the_status(status: int, reason: str, message: str, told: str) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(a_writer(Refusing(ApiError(status, reason, message)), Store(nobody)).carry_out((first(),), JOB))
    assert (refused.value.reason, refused.value.message) == (told, message)


class Taken(Answering):
    """One where the name is another pod's."""

    async def create(self, *_: Any) -> Any:
        raise ApiError(409, "AlreadyExists", "already exists")


TAKEN = "Pod digits-0-c59gt exists and belongs to somebody else: delete it, or give the job another name"


@pytest.mark.parametrize(
    "there",
    [{"ownerReferences": []}, {"ownerReferences": [owned("another", "other")], "labels": {}}],
    ids=["of ours, without owner", "another controller's"],
)
def test_that_anothers_pod_has_the_name_of_one_to_come_is_told(there: dict[str, Any]) -> None:
    pod = a_manifest()
    api = Taken({**pod, "metadata": pod["metadata"] | there})
    with pytest.raises(Refused) as refused:
        asyncio.run(a_writer(api, Store(nobody)).carry_out((first(),), JOB))
    assert (refused.value.reason, refused.value.message) == ("PodTaken", TAKEN)


def test_a_network_policy_that_a_finalizer_keeps_counts_as_gone_and_a_new_one_waits() -> None:
    policy, creation = (
        {**a_manifest(), "kind": "NetworkPolicy"},
        Create(NETWORK_POLICY, build_network_policy(first().job, Settings())),
    )
    name = policy["metadata"]["name"] = creation.name
    store = Store(nobody)
    going = {**policy["metadata"], "resourceVersion": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    api = Taken({**policy, "metadata": going})
    store.owned[NETWORK_POLICY].update(read(policy))
    asyncio.run(a_writer(api, store).carry_out((Delete(NETWORK_POLICY, name),), JOB))
    store.owned[NETWORK_POLICY].update(read(policy))
    assert not store.owned[NETWORK_POLICY].owned_by(DIGITS), "an older view brings it back"
    with pytest.raises(Refused) as refused:
        asyncio.run(a_writer(api, store).carry_out((creation,), JOB))
    told = f"NetworkPolicy {name} is being deleted: wait until it is gone"
    assert (refused.value.reason, refused.value.message) == ("BeingDeleted", told)


@cache
def grouped() -> tuple[Action, ...]:
    """All that is made for a gang of one."""
    return a_job(nodes=1).called(uid=UID).grouped().decision.actions


def group() -> Create:
    return next(action for action in grouped() if isinstance(action, Create) and action.kind is POD_GROUP)


def a_pod_group(version: int = 1, **metadata: Any) -> dict[str, Any]:
    manifest = group().manifest
    own = {"uid": "group-uid", "resourceVersion": str(version)}
    return {**manifest, "metadata": {**manifest["metadata"], **own, **metadata}}


class Making(Answering):
    """One that makes everything, and notes in which order it was asked to."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[str] = []
        self.answered: list[str] = []

    async def create(self, resource: Any, _namespace: Any, body: dict[str, Any]) -> Any:
        self.asked.append(body["kind"])
        await asyncio.sleep(0.001)
        self.answered.append(body["kind"])
        body["metadata"] |= {"uid": f"uid of {body['kind']}", "resourceVersion": "1"}
        return as_kept(body, resource.type)


def test_a_workload_comes_before_its_pod_group_and_both_before_the_pods() -> None:
    api = Making()
    asyncio.run(a_writer(api, Store(nobody)).carry_out(grouped(), JOB))
    assert api.asked[0] == api.answered[0] == "Workload"
    assert api.asked[-1] == "Pod"
    assert "PodGroup" in api.answered[: len(api.asked) - 1]
    assert sorted(api.asked) == ["Pod", "PodGroup", "Secret", "Service", "Workload"]


class Unserved(Making):
    """One that has no PodGroups any more."""

    async def create(self, resource: Any, namespace: Any, body: dict[str, Any]) -> Any:
        if body["kind"] == "PodGroup":
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return await super().create(resource, namespace, body)


def test_without_its_pod_group_no_pod_is_made() -> None:
    api = Unserved()
    with pytest.raises(Refused, match="could not find"):
        asyncio.run(a_writer(api, Store(nobody)).carry_out(grouped(), JOB))
    assert "Pod" not in api.asked


def test_somebody_elses_pod_group_of_that_name_is_left_alone_and_said() -> None:
    api = Taken(a_pod_group(ownerReferences=[], labels={}))
    with pytest.raises(Refused) as refused:
        asyncio.run(a_writer(api, Store(nobody)).carry_out((group(),), JOB))
    name = a_pod_group()["metadata"]["name"]
    told = f"PodGroup {name} exists and belongs to somebody else: delete it, or give the job another name"
    assert (refused.value.reason, refused.value.message) == ("PodGroupTaken", told)


def test_a_pod_group_that_its_pods_keep_is_known_to_be_going() -> None:
    store, name = Store(nobody), a_pod_group()["metadata"]["name"]
    store.owned[POD_GROUP].update(as_kept(a_pod_group(), PodGroupObject))
    going = a_pod_group(2, deletionTimestamp="2026-01-01T00:00:00Z")
    asyncio.run(a_writer(Answering(going), store).carry_out((Delete(POD_GROUP, name),), JOB))
    assert [(group.name, group.deleting) for group in store.owned[POD_GROUP].owned_by(DIGITS)] == [(name, True)]


def test_a_pod_group_that_is_not_known_any_more_is_not_deleted() -> None:
    asyncio.run(a_writer(Answering({}), Store(nobody)).carry_out((Delete(POD_GROUP, "former"),), JOB))


def test_a_gang_of_thousands_is_not_asked_for_pod_by_pod_where_a_quota_lets_none_in() -> None:
    api = Refusing(ApiError(403, "Forbidden", "exceeded quota: few"))
    with pytest.raises(Refused):
        asyncio.run(a_writer(api, Store(nobody)).carry_out(gang(), JOB))
    assert ENOUGH_FAILURES <= api.asked < ENOUGH_FAILURES + ALONE


class Fenced(Answering):
    """One that this process may not write to."""

    asked = 0

    async def delete(self, *_: Any) -> Any:
        self.asked += 1
        raise FencedError


class Silent(Answering):
    """One that gives no answer."""

    async def create(self, *_: Any) -> Any:
        await asyncio.Event().wait()


def test_a_pod_is_built_when_it_is_sent_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = CreatePod.build
    monkeypatch.setattr(CreatePod, "build", lambda pod: built.append(pod.node) or build(pod))

    async def a_while() -> None:
        writing = asyncio.create_task(a_writer(Silent({}), Store(nobody)).carry_out(gang(), JOB))
        for _ in range(10):
            await asyncio.sleep(0)
        writing.cancel()

    asyncio.run(a_while())
    assert built == list(range(ALONE))


class Failing(Answering):
    """One that fails in another way each time."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__({})
        self._errors = iter(errors)

    async def create(self, *_: Any) -> Any:
        raise next(self._errors)


BUSY = ApiError(429, "TooManyRequests", "busy", retry_after=30)
FORBIDDEN = ApiError(403, "Forbidden", "no")
SILENT = ApiError(0, "NoAnswer", "no answer")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ((SILENT, BUSY, FORBIDDEN), BUSY),
        ((FORBIDDEN, SILENT), SILENT),
        ((BUSY, FencedError()), FencedError),
    ],
    ids=["who wants to be left alone", "what passes by itself", "what is no answer at all"],
)
def test_of_several_failures_the_gravest_is_told(errors: tuple[Exception, ...], told: Any) -> None:
    with pytest.raises((ApiError, FencedError)) as raised:
        asyncio.run(a_writer(Failing(*errors), Store(nobody)).carry_out((first(),) * len(errors), JOB))
    assert raised.value is told or raised.type is told


class Forbidding(Answering):
    """One that lets nobody change pods."""

    def __init__(self, answer: dict[str, Any], why: ApiError) -> None:
        super().__init__(answer)
        self._why = why

    async def merge(self, *_: Any) -> Any:
        raise self._why


@pytest.mark.parametrize(
    "why",
    [
        ApiError(403, "Forbidden", "pods may not be changed"),
        ApiError(500, "InternalError", 'Internal error occurred: failed calling webhook "a.b": refused'),
    ],
    ids=["a policy of the cluster, or a ClusterRole of an older chart", "a webhook that does not answer"],
)
def test_a_pod_that_may_not_be_told_to_stop_is_deleted(why: ApiError) -> None:
    store, pod, ending = Store(nobody), a_pod(), a_manifest(version=2)
    store.pods.update(pod)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stop = StopPod(pod.metadata.name, pod.metadata.uid)
    asyncio.run(a_writer(Forbidding(ending, why), store).carry_out((stop,), JOB))
    assert [known.deleting for known in store.pods.owned_by(DIGITS)] == [True]


class Merging(Answering):
    """One that answers a change, or refuses it, and keeps what it was."""

    def __init__(self, answer: dict[str, Any] | ApiError) -> None:
        self._answer = answer
        self.changes: list[Any] = []

    async def merge(self, _: Any, *change: Any) -> Any:
        self.changes.append(change)
        if isinstance(self._answer, ApiError):
            raise self._answer
        return read(self._answer)


def tell_domain(answer: dict[str, Any] | ApiError) -> tuple[Merging, Store]:
    store, api = a_store(), Merging(answer)
    identity = a_pod().metadata
    told = TellDomain(identity.name, identity.uid, "rack-1")
    asyncio.run(a_writer(api, store).carry_out((told,), JOB))
    return api, store


def test_a_pod_is_told_its_domain_by_an_annotation_and_known_to_have_it_at_once() -> None:
    answer = a_manifest(version=2)
    answer["metadata"]["annotations"] = {"ddpjob.dev/topology-domain": "rack-1"}
    api, store = tell_domain(answer)
    metadata = {"uid": "pod-0-1", "annotations": {"ddpjob.dev/topology-domain": "rack-1"}}
    assert api.changes == [("team", name_of(), {"metadata": metadata})]
    assert [pod.domain for pod in store.pods.owned_by(DIGITS)] == ["rack-1"]


def test_a_request_for_a_checkpoint_is_written_into_an_annotation_of_its_pod() -> None:
    answer = a_manifest(version=2)
    answer["metadata"]["annotations"] = {"ddpjob.dev/checkpoint-request": "a"}
    store, api = a_store(), Merging(answer)
    identity = a_pod().metadata
    asyncio.run(a_writer(api, store).carry_out((RequestCheckpoint(identity.name, identity.uid, "a"),), JOB))
    metadata = {"uid": "pod-0-1", "annotations": {"ddpjob.dev/checkpoint-request": "a"}}
    assert api.changes == [("team", name_of(), {"metadata": metadata})]
    assert [pod.checkpoint_request for pod in store.pods.owned_by(DIGITS)] == ["a"]


def test_one_that_is_gone_need_not_be_told() -> None:
    _, store = tell_domain(ApiError(404, "NotFound", "gone"))
    assert store.pods.owned_by(DIGITS) == ()


def test_that_a_pod_may_not_be_told_is_left_to_others() -> None:
    with pytest.raises(Refused, match="may not be changed"):
        tell_domain(ApiError(403, "Forbidden", "pods may not be changed"))


class Broken(Answering):
    """One that fails, whatever it is asked for."""

    def __init__(self) -> None:
        """It needs no connection."""

    async def get(self, *_: Any) -> Any:
        raise FAILS

    create = merge = delete = patch = get


FAILS = ApiError(500, "InternalError", "the database is away")


@pytest.mark.parametrize(
    "action",
    [
        StopPod(name_of(), "pod-0-1"),
        DeletePod(name_of(), "pod-0-1", 5),
        TellDomain(name_of(), "pod-0-1", "rack-1"),
        RequestCheckpoint(name_of(), "pod-0-1", "a"),
        DeleteJob(),
        MARK,
        lambda: Create(SECRET, build_secret(a_job().snapshot.job)),
    ],
    ids=lambda action: getattr(type(action), "__name__", ""),
)
def test_a_failure_of_the_server_is_no_answer_and_changes_nothing_that_is_known(
    action: Action | Callable[[], Action],
) -> None:
    store, action = a_store(), action() if callable(action) else action
    with pytest.raises(ApiError) as raised:
        asyncio.run(a_writer(Broken(), store).carry_out((action,), JOB))
    assert raised.value is FAILS
    assert len(store.pods.owned_by(DIGITS)) == 1


class Conflicting(Answering):
    """One that answers a deletion with a conflict, and a question with the pod that has the name."""

    async def delete(self, *_: Any) -> Any:
        raise ApiError(409, "Conflict", "the object has been modified")


def test_a_pod_whose_deletion_met_a_conflict_is_known_as_long_as_it_is_there() -> None:
    store = a_store()
    with pytest.raises(ApiError):
        delete(Conflicting(a_manifest()), store)
    assert store.pods.owned_by(DIGITS)


def test_a_pod_whose_name_another_one_has_is_forgotten() -> None:
    store, other = a_store(), a_manifest(version=2)
    other["metadata"]["uid"] = "another"
    delete(Conflicting(other), store)
    assert not store.pods.owned_by(DIGITS)


class Keeping(Connection):
    """A connection that keeps what was sent, to a server that gives each request this answer."""

    def __init__(self, status: int, reason: str = "", message: str = "") -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        self._answer = status, json.dumps({"metadata": {}, "reason": reason, "message": message}).encode(), None

    async def send(self, *words: Any, **_: Any) -> tuple[int, bytes, None]:
        method, path, data, *_rest = words
        self.sent.append((method, path, json.loads(data)))
        return self._answer


def make_secret(connection: Keeping, *more: CreatePod) -> None:
    secret, writer = (
        Create(SECRET, build_secret(a_job().snapshot.job)),
        a_writer(ApiClient(connection, lambda: True), a_store()),
    )
    asyncio.run(writer.carry_out((secret, *more), JOB))


def test_each_secret_gets_a_value_of_its_own_that_is_long_enough() -> None:
    connection = Keeping(201)
    for _ in range(2):
        make_secret(connection)
    values = [body["stringData"]["secret"] for _, _, body in connection.sent]
    assert [len(bytes.fromhex(value)) for value in values] == [32, 32]
    assert values[0] != values[1]
    assert {path for _, path, _ in connection.sent} == {"/api/v1/namespaces/team/secrets"}


def test_a_secret_that_is_there_is_not_looked_at() -> None:
    """The operator has no right to."""
    connection = Keeping(409, "AlreadyExists", 'secrets "digits-s" already exists')
    make_secret(connection)
    assert [method for method, _, _ in connection.sent] == ["POST"]


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind"),
    [
        (403, "Forbidden", "exceeded quota: secrets=10", Refused),
        (503, "ServiceUnavailable", "later", ApiError),
    ],
)
def test_no_pod_is_made_without_its_secret(status: int, reason: str, message: str, kind: type[Exception]) -> None:
    connection = Keeping(status, reason, message)
    with pytest.raises(kind):
        make_secret(connection, first())
    assert len(connection.sent) == 1


OVER_QUOTA = 403, "Forbidden", "exceeded quota: secrets=1, requested: secrets=1, used: secrets=1, limited: secrets=1"


def test_a_quota_that_the_jobs_own_secret_uses_up_is_in_nobodys_way() -> None:
    """The API server looks at quotas before it looks at names."""
    secret = Create(SECRET, build_secret(a_job().snapshot.job))
    writer = a_writer(ApiClient(Keeping(*OVER_QUOTA), lambda: True), a_store())
    asyncio.run(writer.carry_out((replace(secret, made_before=True),), JOB))
    asyncio.run(writer.carry_out((secret,), JOB))
    writer.forget((JOB.namespace, JOB.name))
    with pytest.raises(Refused):
        asyncio.run(writer.carry_out((secret,), JOB))


class Together(Answering):
    """Answers what stands beside pods once it was asked for all three of it, and keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[str] = []
        self._three = asyncio.Barrier(3)

    async def create(self, *words: Any) -> Any:
        _, _, manifest = words
        if manifest["kind"] != "Pod":
            await self._three.wait()
        self.asked.append(manifest["kind"])
        return read(a_manifest())


def test_what_stands_beside_pods_is_made_at_once_and_before_them() -> None:
    api, job = Together(), first().job
    policy = Create(NETWORK_POLICY, build_network_policy(job, Settings()))
    beside = policy, Create(SERVICE, build_service(job)), Create(SECRET, build_secret(job))
    writing = a_writer(api, Store(nobody)).carry_out((*beside, *gang()[:2]), JOB)
    asyncio.run(asyncio.wait_for(writing, patience(5)))
    assert {*api.asked[:3]} == {"NetworkPolicy", "Service", "Secret"}
    assert api.asked[3:] == ["Pod", "Pod"]


def test_a_gang_of_thousands_is_left_alone_by_one_who_may_not_write_any_more() -> None:
    api = Fenced({})
    with pytest.raises(FencedError):
        asyncio.run(a_writer(api, Store(nobody)).carry_out((DeletePod("a", "b", 5),) * 4096, JOB))
    assert api.asked <= ALONE


class Busy(Silent):
    """One that answers no creation, and deletes at once."""

    def __init__(self) -> None:
        super().__init__({})
        self.gone = asyncio.Event()

    async def delete(self, *_: Any) -> Any:
        self.gone.set()


def test_what_ends_waits_for_nothing_that_is_made() -> None:
    """A gang that gives back its places may be what another one waits for."""

    async def play() -> None:
        api, store = Busy(), a_store()
        writer, identity = Writer(api, store, lambda: False), a_pod().metadata
        others = [Ref("team", f"other{number}", UID, 1) for number in range(AT_ONCE)]
        making = [asyncio.create_task(writer.carry_out(gang()[:100], one)) for one in others]
        await asyncio.sleep(0.01)
        ending = asyncio.create_task(writer.carry_out((DeletePod(identity.name, identity.uid, 5),), JOB))
        await asyncio.wait_for(api.gone.wait(), patience(5))
        for task in (*making, ending):
            task.cancel()

    asyncio.run(play())


class Keeper(Answering):
    """One that has this job once a job was to be deleted."""

    def __init__(self, now: JobObject | None) -> None:
        super().__init__({"metadata": {}})
        self._now = now

    async def get(self, *_: Any) -> Any:
        return self._now


def a_seen_job(uid: str = UID, version: int = 1) -> JobObject:
    metadata = {"name": "digits", "namespace": "team", "uid": uid, "resourceVersion": str(version)}
    return objects.read({"metadata": metadata}, JobObject)


@pytest.mark.parametrize(
    "now", [None, a_seen_job("another", 2), a_seen_job()], ids=["nothing", "another job", "the job"]
)
def test_a_job_that_was_deleted_is_known_as_long_as_it_is_there(now: JobObject | None) -> None:
    store = Store(nobody)
    store.jobs.update(a_seen_job())
    asyncio.run(a_writer(Keeper(now), store).carry_out((DeleteJob(),), JOB))
    known = store.jobs.get(("team", "digits"))
    assert (known and known.uid) == (now and now.metadata.uid)
