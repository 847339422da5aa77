"""Carries out a decision's actions. Each can be repeated safely, and none changes objects of other owners."""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Any

from ddpjob_operator.api.contract import CHECKPOINT_REQUEST, DOMAIN, FINISHED, SECRET_KEY
from ddpjob_operator.api.ownership import JobRef
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine import (
    KUEUE_WORKLOAD,
    SECRET,
    Action,
    Create,
    CreatePod,
    Delete,
    DeleteJob,
    DeletePod,
    Manifest,
    MarkFinished,
    OwnedKind,
    Patch,
    RequestCheckpoint,
    StopPod,
    Tell,
    TellDomain,
)

from .conversion import STOPPED_SECONDS, Ref, owner_of
from .fair_queue import ALONE, Turns
from .kinds import RESOURCES
from .kube.api_client import (
    DDPJOBS,
    PODS,
    WHOLE_KUEUE_WORKLOADS,
    ApiClient,
    ApiError,
    FencedError,
    Resource,
)
from .kube.objects import KueueWorkloadObject, Object, read
from .kueue import patch_for, with_priority
from .refusals import Refused, is_over_quota, is_refused, refusal, refusal_of_pod
from .store import Cache, Children, Key, O, Store

SECRET_BYTES = 32
OF_PODS = (CreatePod, DeletePod, StopPod, TellDomain)
LAST = (*OF_PODS, MarkFinished)
"""The actions that are carried out after all other actions."""

LARGE_BYTES = 8 << 10
"""If a job has more JSON than this, its pods are built in a thread, so that the event loop is not blocked. Each pod
takes some milliseconds, or more than a tenth of a second if the job is as large as an API server accepts."""

ENOUGH_FAILURES = 32
"""After this many failures a round creates no more pods. The pods of a gang are all alike, so a quota that refuses
this many would refuse thousands more, and an API server that does not answer needs a pause."""

UID_MISMATCH = "metadata.uid: Invalid value"
"""Part of the API server's message if a change contains the uid of an object whose name another object now has."""

UNMARKED = f"finished jobs do not get the annotation {FINISHED}, but everything else works:"

logger = logging.getLogger(__name__)


class Writer:
    """Creates, changes and deletes the objects of jobs, and stores the API server's answers."""

    def __init__(
        self, api: ApiClient, store: Store, alone: Callable[[], bool], apart: Executor | None = None
    ) -> None:
        """`alone` returns whether at most one round is in progress. `apart` is a thread for work that takes long."""
        self._api = api
        self._store = store
        self._apart = apart
        # Deletions do not wait for creations, because another job may need the resources that a deletion frees.
        self._creations, self._endings = Turns(alone), Turns(alone)
        self._with_secret: dict[Key, str] = {}
        """The uids of jobs whose Secret this process has created or found to exist."""
        self.unmarked: dict[str, str] = {}
        """The namespaces in which finished jobs cannot be marked, each with the API server's words."""

    async def carry_out(self, actions: tuple[Action, ...], job: Ref) -> None:
        """Carries out a job's actions in three steps. The actions of a step run concurrently.

        The first step creates the objects of kinds marked `first`, because others refer to them. The second handles
        all other objects except pods, and the third the pods and the mark of a finished job. In each step every
        action is tried, even if others fail. But if any action fails, the following steps are left to another round.

        Raises:
            Refused: an action was refused, and somebody else has to fix the reason. ApiError: the API server does not
            answer, or cannot handle requests now. The failed actions are still due. FencedError: this process is no
            longer allowed to write.
        """
        for step in range(3):
            await self._do_all([action for action in actions if _step(action) == step], job)

    def forget(self, key: Key) -> None:
        """Forgets a job that needs nothing more."""
        self._with_secret.pop(key, None)

    async def _do_all(self, actions: Sequence[Action], job: Ref) -> None:
        """Carries out all actions concurrently, then raises the most severe failure, if there was any."""
        rest, failures = iter(enumerate(actions)), dict[int, Exception]()

        async def worker() -> None:
            for number, action in rest:
                if isinstance(action, CreatePod) and len(failures) >= ENOUGH_FAILURES:
                    continue
                turns = self._endings if is_ending(action) else self._creations
                async with turns.take((job.namespace, job.name)):
                    try:
                        await self._do(action, job)
                    except FencedError as error:
                        failures[number] = error
                        return  # The fence would refuse all further actions too, and there may be thousands.
                    except Exception as error:  # noqa: BLE001  It is raised below.
                        failures[number] = error

        await asyncio.gather(*(worker() for _ in actions[:ALONE]))
        if failures:
            # Of equally severe failures, raise that of the earliest action in the list, not the earliest in time.
            # Otherwise the job's message would change from round to round.
            raise max((failures[number] for number in sorted(failures)), key=_severity)

    async def _do(self, action: Action, job: Ref) -> None:
        namespace, owner = job.namespace, job.job
        match action:
            case Create(kind, manifest, made_before) if kind is SECRET:
                made_before |= self._with_secret.get((job.namespace, job.name)) == job.uid
                await self._create_secret(manifest, made_before=made_before)
                self._with_secret[job.namespace, job.name] = job.uid
            case Create(kind, manifest):
                made = await self._with_priority(manifest) if kind is KUEUE_WORKLOAD else manifest
                await self._create(RESOURCES[kind], self._store.owned[kind], made, owner)
            case Patch():
                await self._change_queued((namespace, action.name), action, owner)
            case Delete(kind, name):
                await self._delete_known(kind, (namespace, name), owner)
            case CreatePod():
                await self._create(PODS, self._store.pods, await self._build_pod(action, job), owner)
            case DeletePod(name, uid, grace):
                await self._delete(PODS, self._store.pods, (namespace, name), uid, grace)
            case StopPod(name, uid):
                await self._stop((namespace, name), uid)
            case TellDomain(name, uid, domain):
                await self._annotate((namespace, name), uid, DOMAIN, domain)
            case RequestCheckpoint(name, uid, request):
                await self._annotate((namespace, name), uid, CHECKPOINT_REQUEST, request)
            case MarkFinished(mark):
                await self._mark_finished(job, mark)
            case DeleteJob():
                await self._delete_job(job)

    async def _build_pod(self, action: CreatePod, job: Ref) -> Manifest:
        stored = self._store.jobs.get((job.namespace, job.name))
        if stored is None or stored.size <= LARGE_BYTES:
            return action.build()
        return await asyncio.get_running_loop().run_in_executor(self._apart, action.build)

    async def _with_priority(self, manifest: Manifest) -> Manifest:
        try:
            return await with_priority(self._api, manifest)
        except ApiError as error:
            raise refusal(error) from error

    async def _change_queued(self, key: Key, action: Patch, owner: JobRef) -> None:
        """Changes a Kueue Workload. Reads it first, because most of its status belongs to Kueue and is not stored."""
        cache = self._store.owned[action.kind]
        uid, workload = cache.uid_of(key, owner), await self._api.get(WHOLE_KUEUE_WORKLOADS, *key)
        if uid is None or workload is None or workload["metadata"]["uid"] != uid:
            if uid is not None:
                cache.forget(key, uid)
            return
        part, changes = patch_for(workload, action.change, self._api.now())
        version = workload["metadata"]["resourceVersion"]
        try:
            answer = await self._api.patch(WHOLE_KUEUE_WORKLOADS, key[0], f"{key[1]}{part}", version, changes)
        except ApiError as error:
            raise refusal(error) from error
        cache.update(read(answer, KueueWorkloadObject))

    async def _stop(self, key: Key, uid: str) -> None:
        """Stops a pod by setting an activeDeadlineSeconds that has passed. The kubelet ends the pod, but keeps logs.

        If the cluster refuses this change, the pod is deleted, because ending it matters more than keeping its logs.
        The pod is also deleted if a webhook does not answer, because nobody knows how long that will last.
        """
        body = {"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": STOPPED_SECONDS}}
        try:
            await self._merge(PODS, self._store.pods, key, uid, body)
        except ApiError as error:
            if not is_refused(error):
                raise
            await self._delete(PODS, self._store.pods, key, uid, None)

    async def _annotate(self, key: Key, uid: str, annotation: str, value: str) -> None:
        """Sets an annotation of a pod, which the pod's supervisor reads."""
        body = {"metadata": {"uid": uid, "annotations": {annotation: value}}}
        try:
            await self._merge(PODS, self._store.pods, key, uid, body)
        except ApiError as error:
            raise refusal(error) from error

    async def _merge(self, resource: Resource[O], cache: Cache[O, Any], key: Key, uid: str, body: Manifest) -> None:
        """Applies a merge patch to an object. If the object no longer exists, the store forgets it."""
        try:
            cache.update(await self._api.merge(resource, *key, body))
        except ApiError as error:
            if not _is_gone(error):
                raise
            cache.forget(key, uid)

    async def _mark_finished(self, job: Ref, mark: str) -> None:
        """Writes the annotation that marks a finished job.

        A refusal is logged only once for each namespace. The operator's role may be older than this annotation.
        """
        body = {"metadata": {"uid": job.uid, "annotations": {FINISHED: mark}}}
        try:
            await self._merge(DDPJOBS, self._store.jobs, (job.namespace, job.name), job.uid, body)
        except ApiError as error:
            if not is_refused(error):
                raise
            if job.namespace not in self.unmarked:
                logger.warning("namespace %s: %s %s", job.namespace, UNMARKED, error)
            self.unmarked[job.namespace] = error.message
            raise refusal(error) from error
        else:
            self.unmarked.pop(job.namespace, None)

    async def _delete_job(self, job: Ref) -> None:
        """Deletes the job unless it has changed, because its user may want to keep it after all."""
        key, unchanged = (job.namespace, job.name), {"uid": job.uid, "resourceVersion": str(job.version)}
        try:
            await self._api.delete(DDPJOBS, *key, unchanged)
        except ApiError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise
        # The answer may be only a Status, without the job. So the job is read again. If the store still held the old
        # version, the next round would delete the job again.
        answer = await self._api.get(DDPJOBS, *key)
        if answer is not None:
            self._store.jobs.update(answer)
        if answer is None or answer.metadata.uid != job.uid:
            self._store.jobs.forget(key, job.uid)

    async def _create(
        self, resource: Resource[O], cache: Children[O, Any], manifest: Manifest, owner: JobRef
    ) -> None:
        namespace, name, kind = manifest["metadata"]["namespace"], manifest["metadata"]["name"], manifest["kind"]
        try:
            cache.update(await self._api.create(resource, namespace, manifest))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                there = await self._api.get(resource, namespace, name)
                if there is None:
                    return
                cache.update(there)
                if cache.uid_of((namespace, name), owner) is None:
                    raise _name_taken(kind, there, owner) from None
                return
            raise (refusal_of_pod(error, manifest) if resource is PODS else refusal(error)) from error

    async def _create_secret(self, manifest: Manifest, *, made_before: bool) -> None:
        """Creates a job's Secret with a random value, which this process does not keep.

        The operator has no right to read Secrets. The answer AlreadyExists shows that the job already has its Secret.
        But the API server looks at quotas before it looks at names: where the quota is used up, the job's own Secret
        included, the answer is that of the quota. Then the Secret counts as existing if it was made before.
        """
        value = {SECRET_KEY: secrets.token_hex(SECRET_BYTES)}
        try:
            await self._api.create(
                RESOURCES[SECRET], manifest["metadata"]["namespace"], manifest | {"stringData": value}
            )
        except ApiError as error:
            if error.reason != "AlreadyExists" and not (made_before and is_over_quota(error)):
                raise refusal(error) from error

    async def _delete_known(self, kind: OwnedKind, key: Key, owner: JobRef) -> None:
        """Deletes the object that the store has under this name, if it belongs to the job."""
        cache = self._store.owned[kind]
        uid = cache.uid_of(key, owner)
        if uid is not None:
            await self._delete(RESOURCES[kind], cache, key, uid, None)

    async def _delete(
        self, resource: Resource[O], cache: Cache[O, Any], key: Key, uid: str, grace: int | None
    ) -> None:
        try:
            left = await self._api.delete(resource, *key, {"uid": uid}, grace)
        except ApiError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise
            # A conflict usually means that another object has this name by now, which must stay. The conflict is a
            # failure only if the object to delete still exists.
            if error.status == HTTPStatus.CONFLICT and await self._exists(resource, key, uid):
                raise
            cache.forget(key, uid)
        else:
            if left is not None:
                cache.update(left)
            else:
                cache.forget(key, uid)

    async def _exists(self, resource: Resource[O], key: Key, uid: str) -> bool:
        """Whether the object still exists. If the store forgot it by mistake, nothing would ever delete it."""
        there = await self._api.get(resource, *key)
        return there is not None and there.metadata.uid == uid


def is_ending(action: Action) -> bool:
    """Whether an action only ends or releases something, which other jobs may be waiting for."""
    return isinstance(action, (Delete, DeletePod, StopPod, MarkFinished, DeleteJob)) or (
        isinstance(action, Patch) and isinstance(action.change, Tell)
    )


def _step(action: Action) -> int:
    if isinstance(action, LAST):
        return 2
    return 0 if isinstance(action, Create) and action.kind.first else 1


def describe(action: Action) -> str:
    """Describes an action, as in `DeletePod digits-0-x2k4m` or `Create Service digits-x2k4m`."""
    kind = action.kind.kind if isinstance(action, Create | Delete | Patch) else ""
    return " ".join(filter(None, (type(action).__name__, kind, getattr(action, "name", ""))))


def _is_gone(error: ApiError) -> bool:
    """Whether the error means that the object to change no longer exists."""
    return error.status == HTTPStatus.NOT_FOUND or UID_MISMATCH in error.message


def _name_taken(kind: str, there: Object, owner: JobRef) -> Refused:
    """Returns the refusal to create an object because another object has its name.

    The other object belongs to somebody else, is being deleted, or belongs to the job but has changed labels.
    """
    subject = f"{kind} {there.metadata.name}"
    if there.metadata.deletion_timestamp is not None:
        return Refused(Reason.BEING_DELETED, f"{subject} is being deleted: wait until it is gone")
    own = owner_of(there, lambda *_: True) == owner
    why = "is the job's own, but its labels were changed" if own else "exists and belongs to somebody else"
    alternative = "" if own else ", or give the job another name"
    return Refused(f"{kind}Taken", f"{subject} {why}: delete it{alternative}")


def _severity(failure: Exception) -> float:
    """Returns a number that is higher the more severe the failure is. Only the most severe failure is reported.

    Refusals are the least severe, then come API errors by the wait that they demand, then all other exceptions.
    """
    match failure:
        case Refused():
            return -1.0
        case ApiError():
            return failure.retry_after or 0.0
        case _:
            return math.inf
