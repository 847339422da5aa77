"""Carries out a decision's actions: each may be done twice, and none touches what is not the job's own."""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ddpjob_operator.api.contract import DOMAIN, FINISHED, SECRET_KEY
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
from .kueue import changed, with_priority
from .store import Cache, Children, Key, O, Store

SECRET_BYTES = 32
OF_PODS = (CreatePod, DeletePod, StopPod, TellDomain)
LAST = (*OF_PODS, MarkFinished)
"""What comes after all that belongs beside the pods."""

LARGE_BYTES = 8 << 10
"""Each pod of a job with more JSON than this takes some milliseconds to build, and more than a tenth of a second if
the job is as large as an API server accepts: these are built in a thread, while everything else goes on."""

ENOUGH_FAILURES = 32
"""How many failures end the creations of one round. Pods of a gang are alike: a quota that refuses this many refuses
the next thousands too, and a server that does not answer is better left alone for a while."""

ANOTHER = "metadata.uid: Invalid value"
"""What the server says if a change was meant for another object, which had this name before."""

UNMARKED = "finished jobs are not marked, all else goes on:"

DEAD_WEBHOOK = "failed calling webhook"
"""The server's words if a webhook that it must ask does not answer: to the server an error of its own, but one that
others have to fix."""

SAID = {
    "exceeded quota": Reason.QUOTA_EXCEEDED,
    "violates PodSecurity": Reason.POD_SECURITY_VIOLATION,
    "denied the request": Reason.FORBIDDEN,
    DEAD_WEBHOOK: Reason.WEBHOOK_FAILED,
}
"""Words that distinguish refusals: to the server quotas and Pod Security are both Forbidden, and a webhook answers
with whatever status it likes."""
UNFIT = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refused(Exception):  # noqa: N818  It is a finding, not a fault.
    """Something of the job cannot be created or marked until something outside the job changes."""

    reason: str
    """One CamelCase word."""
    message: str
    """The API server's own words, if they come from it."""


class Writer:
    """Creates and deletes what belongs to jobs; the API server's answers go into the store at once."""

    def __init__(
        self, api: ApiClient, store: Store, alone: Callable[[], bool], apart: Executor | None = None
    ) -> None:
        """`alone`: whether no more than one job is worked on now; `apart`: the threads for what takes long."""
        self._api = api
        self._store = store
        self._apart = apart
        # Deletions do not wait for creations: another job may be waiting for what this one gives back.
        self._making, self._ending = Turns(alone), Turns(alone)
        self.unmarked: dict[str, str] = {}
        """Namespaces in which finished jobs cannot be marked, each with the API server's words."""

    async def carry_out(self, actions: tuple[Action, ...], job: Ref) -> None:
        """Does everything for a job: first all that belongs beside its pods, at once, then the rest.

        Before them comes what they refer to, as Kubernetes' own controllers have it.

        Of the rest, each is tried whatever happens to the others.

        Raises:
            Refused: something could not be created or marked, and others have to fix that; everything else is done,
                as far as that makes sense.
            ApiError: the server did not answer, or cannot now; whatever was not done is still to do.
            FencedError: this process may no longer write.
        """
        for turn in range(3):
            await self._do_all([action for action in actions if _turn(action) == turn], job)

    async def _do_all(self, actions: Sequence[Action], job: Ref) -> None:
        """Returns when all of it is done or has failed, and raises the first of the gravest failures."""
        rest, failures = iter(enumerate(actions)), dict[int, Exception]()

        async def some() -> None:
            for number, action in rest:
                if isinstance(action, CreatePod) and len(failures) >= ENOUGH_FAILURES:
                    continue
                turns = self._ending if is_ending(action) else self._making
                async with turns.one((job.namespace, job.name)):
                    try:
                        await self._do(action, job)
                    except FencedError as error:
                        failures[number] = error
                        return  # Otherwise each of thousands is tried, all in one go.
                    except Exception as error:  # noqa: BLE001  It is raised in the end.
                        failures[number] = error

        await asyncio.gather(*(some() for _ in actions[:ALONE]))
        if failures:
            # Of equally grave ones always the same, whichever came first: otherwise the job's message would change
            # each time.
            raise max((failures[number] for number in sorted(failures)), key=_gravity)

    async def _do(self, action: Action, job: Ref) -> None:
        namespace, owner = job.namespace, job.job
        match action:
            case Create(kind, manifest) if kind is SECRET:
                await self._create_secret(manifest)
            case Create(kind, manifest):
                made = await self._prioritized(manifest) if kind is KUEUE_WORKLOAD else manifest
                await self._create(RESOURCES[kind], self._store.owned[kind], made, owner)
            case Patch():
                await self._change_queued((namespace, action.name), action, owner)
            case Delete(kind, name):
                await self._delete_known(kind, (namespace, name), owner)
            case CreatePod():
                await self._create(PODS, self._store.pods, await self._built(action, job), owner)
            case DeletePod(name, uid, grace):
                await self._delete(PODS, self._store.pods, (namespace, name), uid, grace)
            case StopPod(name, uid):
                await self._stop((namespace, name), uid)
            case TellDomain(name, uid, domain):
                await self._tell_domain((namespace, name), uid, domain)
            case MarkFinished(mark):
                await self._mark_finished(job, mark)
            case DeleteJob():
                await self._delete_job(job)

    async def _built(self, action: CreatePod, job: Ref) -> Manifest:
        stored = self._store.jobs.get((job.namespace, job.name))
        if stored is None or stored.size <= LARGE_BYTES:
            return action.build()
        return await asyncio.get_running_loop().run_in_executor(self._apart, action.build)

    async def _prioritized(self, manifest: Manifest) -> Manifest:
        try:
            return await with_priority(self._api, manifest)
        except ApiError as error:
            raise _refusal(error) from error

    async def _change_queued(self, key: Key, action: Patch, owner: JobRef) -> None:
        """Changes a Workload of Kueue's as it is now: most of its status is Kueue's, and nobody has kept it."""
        cache = self._store.owned[action.kind]
        uid, there = cache.uid_of(key, owner), await self._api.get(WHOLE_KUEUE_WORKLOADS, *key)
        if uid is None or there is None or there["metadata"]["uid"] != uid:
            if uid is not None:
                cache.forget(key, uid)
            return
        part, changes = changed(there, action.change, self._api.now())
        version = there["metadata"]["resourceVersion"]
        try:
            now = await self._api.patch(WHOLE_KUEUE_WORKLOADS, key[0], f"{key[1]}{part}", version, changes)
        except ApiError as error:
            raise _refusal(error) from error
        cache.saw(read(now, KueueWorkloadObject))

    async def _stop(self, key: Key, uid: str) -> None:
        """Makes the kubelet end a pod as if its time were over, so that it stays, with its logs.

        If the cluster does not let us, its end matters more than its logs; also if a webhook does not answer, since
        it is unknown for how long.
        """
        body = {"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": STOPPED_SECONDS}}
        try:
            await self._merge(PODS, self._store.pods, key, uid, body)
        except ApiError as error:
            if not _is_refused(error):
                raise
            await self._delete(PODS, self._store.pods, key, uid, None)

    async def _tell_domain(self, key: Key, uid: str, domain: str) -> None:
        body = {"metadata": {"uid": uid, "annotations": {DOMAIN: domain}}}
        try:
            await self._merge(PODS, self._store.pods, key, uid, body)
        except ApiError as error:
            raise _refusal(error) from error

    async def _merge(self, resource: Resource[O], cache: Cache[O, Any], key: Key, uid: str, body: Manifest) -> None:
        """Changes an object of ours, unless it is gone by now."""
        try:
            cache.saw(await self._api.merge(resource, *key, body))
        except ApiError as error:
            if not _is_gone(error):
                raise
            cache.forget(key, uid)

    async def _mark_finished(self, job: Ref, mark: str) -> None:
        """Says for each namespace once that it is refused: a role of before there were marks does not permit it."""
        body = {"metadata": {"uid": job.uid, "annotations": {FINISHED: mark}}}
        try:
            await self._merge(DDPJOBS, self._store.jobs, (job.namespace, job.name), job.uid, body)
        except ApiError as error:
            if not _is_refused(error):
                raise
            if job.namespace not in self.unmarked:
                logger.warning("namespace %s: %s %s", job.namespace, UNMARKED, error)
            self.unmarked[job.namespace] = error.message
            raise _refusal(error) from error
        else:
            self.unmarked.pop(job.namespace, None)

    async def _delete_job(self, job: Ref) -> None:
        """Deletes the job unless it has changed: its user may want to keep it after all."""
        key, same = (job.namespace, job.name), {"uid": job.uid, "resourceVersion": str(job.version)}
        try:
            await self._api.delete(DDPJOBS, *key, same)
        except ApiError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise
        # The answer may be a mere Status: unless it is read again, a job on its way out is deleted again.
        now = await self._api.get(DDPJOBS, *key)
        if now is not None:
            self._store.jobs.saw(now)
        if now is None or now.metadata.uid != job.uid:
            self._store.jobs.forget(key, job.uid)

    async def _create(
        self, resource: Resource[O], cache: Children[O, Any], manifest: Manifest, owner: JobRef
    ) -> None:
        namespace, name, kind = manifest["metadata"]["namespace"], manifest["metadata"]["name"], manifest["kind"]
        try:
            cache.saw(await self._api.create(resource, namespace, manifest))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                there = await self._api.get(resource, namespace, name)
                if there is None:
                    return
                cache.saw(there)
                if cache.uid_of((namespace, name), owner) is None:
                    raise _taken(kind, there, owner) from None
                return
            raise _refusal(error) from error

    async def _create_secret(self, manifest: Manifest) -> None:
        """With a value that this process does not keep. It may not read Secrets, and only learns that it exists."""
        value = {SECRET_KEY: secrets.token_hex(SECRET_BYTES)}
        try:
            await self._api.create(
                RESOURCES[SECRET], manifest["metadata"]["namespace"], manifest | {"stringData": value}
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise _refusal(error) from error

    async def _delete_known(self, kind: OwnedKind, key: Key, owner: JobRef) -> None:
        """Deletes an object of a job by its name, if it is still the one that we know."""
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
            # A conflict usually, but not always, means that another object has the name by now, which is not meant.
            if error.status == HTTPStatus.CONFLICT and await self._is_there(resource, key, uid):
                raise
            cache.forget(key, uid)
        else:
            if left is not None:
                cache.saw(left)
            else:
                cache.forget(key, uid)

    async def _is_there(self, resource: Resource[O], key: Key, uid: str) -> bool:
        """Whether the object still exists: one that was wrongly forgotten would live on, and never be seen again."""
        there = await self._api.get(resource, *key)
        return there is not None and there.metadata.uid == uid


def is_ending(action: Action) -> bool:
    """Whether an action makes nothing: what it ends or gives back others may be waiting for."""
    return isinstance(action, (Delete, DeletePod, StopPod, MarkFinished, DeleteJob)) or (
        isinstance(action, Patch) and isinstance(action.change, Tell)
    )


def _turn(action: Action) -> int:
    if isinstance(action, LAST):
        return 2
    return 0 if isinstance(action, Create) and action.kind.first else 1


def described(action: Action) -> str:
    """What is to be done: `DeletePod digits-0-x2k4m`, `Create Service digits-x2k4m`."""
    kind = action.kind.kind if isinstance(action, Create | Delete | Patch) else ""
    return " ".join(filter(None, (type(action).__name__, kind, getattr(action, "name", ""))))


def _is_gone(error: ApiError) -> bool:
    """Whether what was to be changed does not exist any more."""
    return error.status == HTTPStatus.NOT_FOUND or ANOTHER in error.message


def _is_refused(error: ApiError) -> bool:
    """Whether others have to fix it; otherwise it is tried again."""
    return error.status != HTTPStatus.CONFLICT and (not error.passing or DEAD_WEBHOOK in error.message)


def _refusal(error: ApiError) -> Exception:
    """What it means that something could not be done: others have to fix it, or it is tried again."""
    return Refused(_reason(error), error.message) if _is_refused(error) else error


def _taken(kind: str, there: Object, owner: JobRef) -> Refused:
    """Why an object that has a name of ours does not serve the job."""
    what = f"{kind} {there.metadata.name}"
    if there.metadata.deletion_timestamp is not None:
        return Refused(Reason.BEING_DELETED, f"{what} is being deleted: wait until it is gone")
    own = owner_of(there, lambda *_: True) == owner
    why = "is the job's own, but its labels were changed" if own else "exists and belongs to somebody else"
    other = "" if own else ", or give the job another name"
    return Refused(f"{kind}Taken", f"{what} {why}: delete it{other}")


def _gravity(failure: Exception) -> float:
    """Which of several failures is reported: one that is not an answer of the server, then the longest wait."""
    match failure:
        case Refused():
            return -1.0
        case ApiError():
            return failure.retry_after or 0.0
        case _:
            return math.inf


def _reason(error: ApiError) -> Reason:
    """A refusal as one of the words of a job's status."""
    by_status = Reason.INVALID if error.status in UNFIT else Reason.FORBIDDEN
    return next((reason for words, reason in SAID.items() if words in error.message), by_status)
