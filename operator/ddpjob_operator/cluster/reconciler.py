"""Runs the rounds of jobs: takes a snapshot, lets the engine decide, writes the status, carries out the actions."""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from ddpjob_operator.api import NO_DEFAULTS, ConditionType, DDPJob, DDPJobStatus, Defaults, State
from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.gitops import keeper
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine import (
    Action,
    Claim,
    Counts,
    Create,
    CreatePod,
    Decision,
    Event,
    Feature,
    KueueWorkload,
    Needs,
    Obstacle,
    OwnedKind,
    Pod,
    PodGroup,
    Refusal,
    Settings,
    Snapshot,
    blocked_status,
    counted,
    decide,
    domain_key,
    kind_of_kubernetes_nodes,
    standing,
    with_defaults,
)

from .autoscalers import adds_a_node
from .contention import Contention
from .conversion import queue_of, ref_of
from .followed_defaults import DefaultsUnknownError
from .kube.api_client import DDPJOBS, PODS, ApiClient, ApiError
from .kube.objects import JobObject
from .kubernetes_nodes import KubernetesNodes
from .kueue import Flavors
from .line import Place, WaitingLines
from .recorder import EventRecorder
from .refusals import Refused, is_refused
from .serve.log import about
from .serve.metrics import IN_VAIN
from .store import Key, Store, StoredJob, of_owner
from .supervisors import Supervisors
from .tally import Tally
from .workqueue import WorkQueue
from .writer import UNMARKED, Writer, describe, is_ending

MINOR_SECONDS = 3.0
"""How long a status write that can wait is delayed. Usually an important change follows, so that one write is enough
for both."""
MINOR_INTERVAL_SECONDS = 10.0
"""The minimum time between two status writes that can wait."""

LONGEST_RETRY_SECONDS = 30.0
"""The longest wait before a refused action is retried. The waits are 1, 2, 4 s and so on, because nothing reports
when the action would succeed."""

LARGE_DECISION = 8
"""A decision with more actions than this is large. The large gangs of a namespace are created one after the other,
and other jobs' rounds do not wait for a large decision."""

NAMED_ACTIONS = 3
"""How many actions are named in a message about actions without effect."""

FEW_PODS = 128
"""Decisions about up to this many pods, which take 15 ms at most, run in the event loop. When thousands of pods fail
together, each with the end of its log, a decision may take half a second. In the event loop, that would delay the
renewal of the Lease and the rounds of all other jobs."""

PLACING = frozenset({State.STARTING, State.RESTARTING})
"""The states in which a job gets its Kubernetes nodes. Its status need not change when it gets them."""

UNATTENDED = (
    "Until that changes, the operator does nothing for the job: its pods stay as they are, and nothing restarts them"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LateEvents:
    """The events of a status write that failed, perhaps only because the API server's answer was lost."""

    version: str
    """The job's resource version before the write."""
    status: DDPJobStatus
    events: tuple[Event, ...]
    counts: Counts


@dataclass(slots=True)
class _Memory:
    """What the reconciler remembers about a job between two rounds. Losing it costs only a request or a second."""

    uid: str
    saw_pods: bool
    """Whether this process has seen all pods of the job."""
    at_rest: bool = False
    """Whether the last round left nothing to do."""
    current: bool = False
    """Whether this process has read this single job or written its status. A job from a list may be outdated."""
    minor_due: float | None = None
    """The time, by the monotonic clock, at which a delayed status must be written."""
    minor_written: float = -math.inf
    late_events: _LateEvents | None = None
    refusal: Refusal | None = None
    refusals: int = 0
    refused_in: object = None
    """The state of the job when the action was refused, from `Reconciler._situation`."""
    last_actions: object = None
    """The last actions, together with the state of the job before them."""
    noted: bool = False
    """Whether the tally has recorded how the job spends its time with its present status."""
    status_refused: bool = False
    """Whether the last status was refused permanently, and an event has reported that."""
    without_effect: bool = False
    """Whether `last_actions` had no effect, and the time to repeat them has not come yet."""

    def minor_wait(self) -> float:
        """Returns for how many more seconds a status write that can wait is delayed."""
        now = time.monotonic()
        if self.minor_due is None:
            self.minor_due = max(now + MINOR_SECONDS, self.minor_written + MINOR_INTERVAL_SECONDS)
        return self.minor_due - now

    def note_written(self, *, minor: bool) -> None:
        """Records that the status was written. `minor` is true if the write could have waited."""
        self.minor_due = None
        if minor:
            self.minor_written = time.monotonic()

    def note_refusal(self, refused: Refused, now: datetime, situation: object) -> None:
        """Records a refusal and when to retry. The wait becomes longer with each refusal, and has jitter."""
        seconds = min(2.0**self.refusals, LONGEST_RETRY_SECONDS) * random.uniform(1.0, 1.2)  # noqa: S311
        self.refusals += 1
        retry_at = now + timedelta(seconds=seconds)
        self.refusal = Refusal(refused.reason, refused.message, retry_at, refused.fits)
        self.refused_in = situation

    def wait_without_effect(self, now: datetime, wanted: object, words: str, situation: object) -> float:
        """Returns the seconds until actions without effect may be repeated; 0 if actions may be carried out now.

        `wanted` identifies the actions together with the state that they should change. If it is the same as last
        time, the actions had no effect.
        """
        if wanted != self.last_actions:
            self.last_actions, self.without_effect = wanted, False
        elif self.refusal is not None and self.refusal.reason != Reason.NO_EFFECT:  # Refused actions have no effect.
            return max(0.0, (self.refusal.retry_at - now).total_seconds())
        elif not self.without_effect:
            self.without_effect = True
            self.note_refusal(Refused(Reason.NO_EFFECT, words), now, situation)
        elif self.refusal is None or now >= self.refusal.retry_at:
            self.without_effect = False
        return (self.refusal.retry_at - now).total_seconds() if self.without_effect and self.refusal else 0.0

    def drop_outdated_refusal(self, situation: object) -> None:
        """Drops a refusal if the job's state has changed since, because other actions may be needed now."""
        if self.refusal is not None and self.refused_in != situation:
            self.forget_refusal()

    def note_accepted(self) -> None:
        """Drops the refusal once the API server has accepted all actions, unless its reason is a lack of effect."""
        if self.refusal is None or self.refusal.reason != Reason.NO_EFFECT:
            self.forget_refusal()

    def forget_refusal(self) -> None:
        """Drops the refusal, and resets the growing delay."""
        self.refusal, self.refusals = None, 0


Granted = Mapping[Feature, Callable[[str], bool]]
"""For each optional feature, a function that returns whether its objects can be created in a namespace."""


class Reconciler:
    """Runs the rounds of all jobs. The queue never returns a job whose round is still in progress."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        queue: WorkQueue,
        recorder: EventRecorder,
        *,
        supervisors: Supervisors,
        witnesses: Supervisors,
        settings: Settings,
        granted: Granted,
        tally: Tally,
        defaults_of: Callable[[str], Awaitable[Defaults]],
    ) -> None:
        """`defaults_of` returns the organisation's defaults for a namespace, as `FollowedDefaults.of` does."""
        self._api = api
        self._store = store
        self._queue = queue
        self._recorder = recorder
        self._supervisors = supervisors
        self._witnesses = witnesses
        self._settings = settings
        self._granted = granted
        self._tally = tally
        self._defaults_of = defaults_of
        self._thread = ThreadPoolExecutor(1, "apart")
        """A single thread, because under Python's GIL each thread would get as much CPU time as the event loop."""
        self._writer = Writer(api, store, queue.alone, self._thread)
        self._kubernetes_nodes = KubernetesNodes(api)
        self._flavors = Flavors(api)
        self._lines = WaitingLines(queue.mark)
        self._contention = Contention(api, store, queue, recorder, me=settings.holder)
        self._memories: dict[Key, _Memory] = {}

    @property
    def problems(self) -> str:
        """A line for each namespace in which finished jobs cannot be marked, or other operators run jobs too."""
        unmarked = self._writer.unmarked
        names = sorted(unmarked.keys() & {namespace for namespace, _ in self._memories})
        lines = (f"namespace {name}: {UNMARKED} {unmarked[name]}" for name in names)
        return "\n".join(filter(None, (*lines, self._contention.problems)))

    def note_listed(self, keys: Iterable[Key]) -> None:
        """Records that all objects of these jobs have just been listed."""
        for key in keys:
            stored = self._store.jobs.get(key)
            if stored is not None:
                self._memory(key, stored).saw_pods = True

    def leave_namespace(self, namespace: str) -> None:
        """Records that a namespace is no longer watched."""
        self._writer.unmarked.pop(namespace, None)
        self._contention.leave_namespace(namespace)
        for key, memory in self._memories.items():
            if key[0] == namespace:
                memory.saw_pods = False

    def at_rest(self, key: Key) -> bool:
        """Whether the job needs no round unless a watch, a list or a timer requests one."""
        memory = self._memories.get(key)
        return memory is not None and memory.at_rest

    async def round(self, key: Key) -> int:
        """Runs one round of a job. Returns the number of its pods, or 0 if there was nothing to decide.

        Raises:
            ApiError: the round cannot be finished now. FencedError: this process is no longer allowed to write.
        """
        stored = self._store.jobs.get(key)
        if stored is None or stored.deleting:
            self._forget(key)
            self._queue.forget(key)
            return 0
        if await self._is_others(key, stored):
            return 0
        memory = self._memory(key, stored)
        if not memory.saw_pods:
            await self._read_again(key, stored)
            self._queue.mark(key)
            return 0
        memory.at_rest = False
        try:
            job = self._store.job(stored)
        except ValidationError as error:
            await self._report_unreadable(key, stored, error)
            return 0
        self._record_late_events(key, stored, memory)
        memory.drop_outdated_refusal(self._situation(stored, job.status))
        snapshot, decision = await self._decision(key, stored, memory)
        memory.at_rest = decision is not None and _at_rest(snapshot, decision)
        if decision is not None:
            if not memory.noted or job.status.state in PLACING:
                self._tally.note(key, standing(snapshot, job.status, stored.metadata.creation_timestamp))
                memory.noted = True
            self._update_line(key, stored, snapshot, decision)
            await self._apply(key, stored, memory, decision, snapshot)
        return len(snapshot.pods)

    async def _is_others(self, key: Key, stored: StoredJob) -> bool:
        """Whether another controller or operator runs the job. If so, nothing is remembered about the job."""
        claimed = stored.claimed_by(self._settings.holder)
        if stored.ours and claimed is Claim.OURS:
            self._contention.heard(key, stored)
            return False
        if stored.ours and claimed is Claim.CONTESTED and not await self._contention.is_left(key, stored):
            return False
        self._forget(key)
        return True

    async def _decision(self, key: Key, stored: StoredJob, memory: _Memory) -> tuple[Snapshot, Decision | None]:
        """Returns the snapshot, with all facts that the engine requested, and the decision.

        The decision is None if the job has changed in the meantime, so that another round has to decide.
        """
        snapshot = self._snapshot(key, stored, memory, *await self._defaults(self._store.job(stored)))
        while (decision := await self._decide(snapshot)).needs:
            if decision.needs.pods:
                await self._read_again(key, stored)
                if self._store.jobs.get(key) is not stored:
                    self._queue.mark(key)
                    return snapshot, None
            snapshot = await self._with_answers(key, stored, snapshot, decision.needs)
        self._stop_asking(key, snapshot)
        return snapshot, decision

    def _update_line(self, key: Key, stored: StoredJob, snapshot: Snapshot, decision: Decision) -> None:
        if decision.in_line is None:
            self._lines.leave(key, snapshot.now)
        else:
            place = self._place(key, stored, snapshot.job, snapshot.pods)
            self._lines.put(key, place, decision.in_line, snapshot.now)

    def _place(self, key: Key, stored: StoredJob, job: DDPJob, pods: Iterable[Pod]) -> Place:
        """Returns the place that the job has, or would have, in the line for its kind of Kubernetes nodes."""
        priority = max((pod.priority for pod in pods), default=self._lines.priority(key))
        created = stored.metadata.creation_timestamp or self._api.now()
        return Place(kind_of_kubernetes_nodes(job), -priority, created, stored.uid)

    async def _decide(self, snapshot: Snapshot) -> Decision:
        """Lets the engine decide, in a thread if there are many pods, so that the event loop is not blocked."""
        if len(snapshot.pods) <= FEW_PODS:
            return decide(snapshot)
        return await asyncio.get_running_loop().run_in_executor(self._thread, decide, snapshot)

    async def _apply(
        self, key: Key, stored: StoredJob, memory: _Memory, decision: Decision, snapshot: Snapshot
    ) -> None:
        if decision.wake_at is not None:
            self._queue.mark_in(key, (decision.wake_at - self._api.now()).total_seconds())
        if decision.empty:
            memory.minor_due = None
            return
        if decision.can_wait and (wait := memory.minor_wait()) > 0:
            self._queue.mark_in(key, wait)
            return
        decision = self._limited_to_turn(key, decision)
        if decision.empty:
            return
        if wait := self._wait_without_effect(stored, memory, decision):
            self._queue.mark_in(key, wait)
            return
        self._queue.mark(key)
        unchecked = bool(decision.actions) and decision.status is None
        if unchecked and not await self._is_present(key, stored, memory, decision.actions):
            return
        seen, created = stored.seen, stored.metadata.creation_timestamp
        if decision.status is not None:
            counts = counted(snapshot, decision.status, created)
            try:
                written = await self._write(key, stored, decision.status)
            except ApiError as error:
                memory.late_events = _LateEvents(
                    stored.metadata.resource_version, decision.status, decision.events, counts
                )
                if is_refused(error):
                    await self._tell_of_refused_status(key, stored, memory, error)
                raise
            if written is None:
                return
            memory.late_events, memory.current, memory.status_refused = None, True, False
            memory.drop_outdated_refusal(self._situation(stored, decision.status))
            seen = written
            memory.note_written(minor=decision.can_wait)
            self._tally.add(key[0], counts)
            self._tally.note(key, standing(snapshot, decision.status, created))
        self._record_events(key, stored, decision.events)
        if decision.actions:
            await self._carry_out(key, stored, memory, decision, seen)

    async def _is_present(self, key: Key, stored: StoredJob, memory: _Memory, actions: tuple[Action, ...]) -> bool:
        """Whether the stored job is current enough for these actions, which no status write precedes.

        A status write would fail if the job had changed. A change or deletion names the uid of its object, so one
        earlier read of the job is enough. But a creation would succeed for a deleted job: its Service is missing
        because it was deleted with the job, and the watch has not reported the job's deletion yet.
        """
        if not memory.current:
            await self._read_again(key, stored)
            return False
        if any(isinstance(action, Create | CreatePod) for action in actions):
            last_actions, memory.last_actions = memory.last_actions, None  # No action is tried before the read.
            if await self._read_job(key, stored) is not stored:
                return False
            memory.last_actions = last_actions
        return True

    async def _carry_out(
        self, key: Key, stored: StoredJob, memory: _Memory, decision: Decision, seen: JobObject
    ) -> None:
        if len(decision.actions) > LARGE_DECISION:
            self._queue.set_aside(key)
        try:
            await self._writer.carry_out(decision.actions, ref_of(seen))
        except Refused as refused:
            status = decision.status or self._store.job(stored).status
            memory.note_refusal(refused, self._api.now(), self._situation(stored, status))
        except ApiError:
            memory.last_actions = None  # Failed actions do not count as actions without effect.
            raise
        else:
            memory.note_accepted()

    def _wait_without_effect(self, stored: StoredJob, memory: _Memory, decision: Decision) -> float:
        """Returns the seconds to wait if the same actions had no effect before. Logs this when first noticed."""
        if not decision.actions or decision.status is not None or not memory.current:
            return 0.0
        situation = self._situation(stored, self._store.job(stored).status)
        actions = tuple(map(describe, decision.actions))
        wanted = stored.metadata.generation, situation, hash(self._store.pods.owned_by(stored.ref)), actions
        refusals_before = memory.refusals
        message = f"{', '.join(actions[:NAMED_ACTIONS])} had no effect; trying again later"
        wait = memory.wait_without_effect(self._api.now(), wanted, message, situation)
        if memory.refusals > refusals_before:
            IN_VAIN.inc()
            logger.warning("%s", message, extra=about(stored.ref[:2], stored.uid))
        return wait

    def _limited_to_turn(self, key: Key, decision: Decision) -> Decision:
        """Returns the decision. If it creates many pods, but it is another job's turn, its creations are left out."""
        many = sum(isinstance(action, CreatePod) for action in decision.actions) > LARGE_DECISION
        if not many or self._queue.is_its_turn(key):
            return decision
        return replace(decision, actions=tuple(ending for ending in decision.actions if is_ending(ending)))

    def _situation(self, stored: StoredJob, status: DDPJobStatus) -> object:
        """Returns the state that determines which actions a job needs. If it changes, former refusals are irrelevant.

        The state contains whether the job is finished, the incarnations of its pods, and its other objects.
        """
        beside = (dict(map(_comparable, cache.owned_by(stored.ref))) for cache in self._store.owned.values())
        return status.finished, status.bookkeeping.incarnations, *beside

    def _owned(self, stored: StoredJob) -> Mapping[OwnedKind, tuple[Any, ...]]:
        """Returns a job's objects except its pods, by kind, for all kinds that can be created in its namespace."""
        namespace, owned = stored.metadata.namespace, self._store.owned.items()
        creatable = (
            (kind, cache) for kind, cache in owned if not kind.feature or self._granted[kind.feature](namespace)
        )
        return {kind: cache.owned_by(stored.ref) for kind, cache in creatable}

    async def _write(self, key: Key, stored: StoredJob, status: DDPJobStatus) -> JobObject | None:
        """Writes the status, and returns the job with the new status.

        Returns None if the job has changed since it was read, so that another round has to decide.

        Raises:
            ApiError: the write was refused although the job has not changed; an immediate retry would fail too.
        """
        try:
            answer = await self._api.replace_status(DDPJOBS, *key, stored.metadata.resource_version, status.to_dict())
        except ApiError as error:
            if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise
            await self._read_again(key, stored)
            if self._store.jobs.get(key) is stored:
                raise
            return None
        self._store.jobs.update(answer)
        return answer

    async def _read_job(self, key: Key, stored: StoredJob) -> StoredJob | None:
        """Reads the job from the API server rather than from the store, and returns what the store then holds."""
        job = await self._api.get(DDPJOBS, *key)
        if job is None:
            self._store.jobs.forget(key, stored.uid)
        else:
            self._store.jobs.update(job)
        return self._store.jobs.get(key)

    async def _read_again(self, key: Key, stored: StoredJob) -> None:
        """Reads the job and its pods from the API server rather than from the store."""
        if await self._read_job(key, stored) is None:
            return
        pods, version = await self._api.list(PODS, key[0], f"{Label.JOB_UID}={stored.uid}")
        await self._store.pods.update_all(pods, version, of_owner(stored.ref))
        memory = self._memory(key, stored)
        memory.saw_pods = memory.current = True

    async def _defaults(self, job: DDPJob) -> tuple[Defaults, str]:
        """Returns the organisation's defaults for a job, and why they are not known; empty if they are.

        Raises:
            ApiError: the namespace's labels cannot be read now.
        """
        if job.status.begun:
            return job.status.defaults or NO_DEFAULTS, ""
        try:
            return await self._defaults_of(job.metadata.namespace), ""
        except DefaultsUnknownError as error:
            return NO_DEFAULTS, str(error)

    def _snapshot(
        self,
        key: Key,
        stored: StoredJob,
        memory: _Memory,
        defaults: Defaults = NO_DEFAULTS,
        defaults_unknown: str = "",
    ) -> Snapshot:
        pods, asked = self._store.pods.owned_by(stored.ref), self._supervisors.asked(key, stored.uid)
        job = with_defaults(self._store.job(stored), defaults)
        # A supervisor that is already being read counts as looked up. Otherwise the engine would request its report
        # in each round of a running job, and would have to decide twice.
        still_there = asked is not None and any((pod.name, pod.address) == (asked.pod, asked.address) for pod in pods)
        return Snapshot(
            **self._api.read_clock()._asdict(),
            job=job,
            pods=pods,
            refusal=memory.refusal,
            settings=self._settings,
            owned=self._owned(stored),
            # The job's place is computed only if some job lacks nodes, which is rare. It depends on the kind of nodes
            # that the job requests, and computing that takes longer than most of the rest of this function.
            ahead=self._lines.ahead(key, self._place(key, stored, job, pods)) if self._lines else None,
            report=self._supervisors.report(key, stored.uid),
            answered=Needs(supervisor=asked if still_there else None),
            mark=stored.metadata.annotations.finished,
            labels=stored.metadata.labels,
            annotations=stored.metadata.annotations.others,
            checkpoint_request=stored.metadata.annotations.checkpoint_request,
            keeper=stored.metadata.annotations.keeper or keeper(stored.metadata.labels),
            queue=queue_of(stored.metadata.labels, defaults.queue),
            defaults=defaults,
            defaults_unknown=defaults_unknown,
        )

    async def _with_answers(self, key: Key, stored: StoredJob, snapshot: Snapshot, needs: Needs) -> Snapshot:
        """Returns the snapshot with the facts in `needs`, as far as they can be looked up.

        If `needs` requests pods, the caller must have listed them again before.
        """
        found = replace(snapshot, answered=snapshot.answered | needs)
        if needs.pods:
            found = replace(found, pods=self._store.pods.owned_by(stored.ref))
        if needs.node_names:
            problems = await self._kubernetes_nodes.problems(needs.node_names)
            found = replace(found, kubernetes_node_problems={**snapshot.kubernetes_node_problems, **problems})
        if needs.domains and (key_of_nodes := domain_key(snapshot.job)):
            domains = await self._kubernetes_nodes.domains(needs.domains, key_of_nodes)
            found = replace(found, domains={**snapshot.domains, **domains})
        if needs.flavors:
            found = replace(found, flavors={**snapshot.flavors, **await self._flavors.read(needs.flavors)})
        if needs.supervisor:
            found = replace(found, report=self._supervisors.attend(key, stored.uid, needs.supervisor))
        if needs.witness:
            found = replace(found, witness=self._witnesses.attend(key, stored.uid, needs.witness))
        if needs.scale_up:
            found = replace(found, scales_up=await adds_a_node(self._api, key[0], needs.scale_up))
        return found

    def _stop_asking(self, key: Key, snapshot: Snapshot) -> None:
        """Stops reading supervisors whose reports the engine no longer needs.

        The last report of rank 0's supervisor is kept until the job is finished.
        """
        if snapshot.job.status.finished:
            self._supervisors.forget(key)
        elif snapshot.answered.supervisor is None:
            self._supervisors.attend(key, snapshot.job.metadata.uid, None)
        if snapshot.answered.witness is None:
            self._witnesses.forget(key)

    def _forget(self, key: Key) -> None:
        """Forgets a job that needs nothing more."""
        self._memories.pop(key, None)
        self._writer.forget(key)
        self._store.drop_parsed(key)
        self._lines.leave(key, self._api.now())
        self._supervisors.forget(key)
        self._witnesses.forget(key)
        self._tally.forget(key)

    def _memory(self, key: Key, stored: StoredJob) -> _Memory:
        memory = self._memories.get(key)
        if memory is None or memory.uid != stored.uid:
            memory = self._memories[key] = _Memory(stored.uid, saw_pods=stored.is_new)
        return memory

    def _record_events(self, key: Key, stored: StoredJob, events: tuple[Event, ...]) -> None:
        for event in events:
            logger.info("%s: %s", event.reason, event.message, extra=about(key, stored.uid))
            self._recorder.record(stored.metadata, event)

    def _record_late_events(self, key: Key, stored: StoredJob, memory: _Memory) -> None:
        """Records the events of a status write that seemed to fail, but took effect."""
        late_events = memory.late_events
        if late_events is not None and stored.metadata.resource_version != late_events.version:
            memory.late_events, memory.noted = None, False
            status = self._store.job(stored).status
            if _news(status) == _news(late_events.status):
                self._record_events(key, stored, late_events.events)
            # Two statuses with the same news may differ in their steps, so steps are counted only if the status is
            # equal.
            if status == late_events.status:
                self._tally.add(key[0], late_events.counts)

    async def _report_unreadable(self, key: Key, stored: StoredJob, error: ValidationError) -> None:
        """Reports a job that the API server accepted but the operator cannot read, because their versions differ."""
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"This version of the operator cannot read the job: {where}: {first['msg']}"
        self._record_events(key, stored, (Event(warning=True, reason=Reason.UNREADABLE, message=message),))
        try:
            job = stored.without_spec()
        except ValidationError:
            return  # An unreadable status must not be overwritten.
        await self._block(key, stored, job, Obstacle(Reason.UNREADABLE, f"{message}. {UNATTENDED}"))

    async def _tell_of_refused_status(self, key: Key, stored: StoredJob, memory: _Memory, error: ApiError) -> None:
        """Reports that a status cannot be written because the type or a policy forbids it.

        Also writes a condition, unless the API server refuses even that.
        """
        message = f"The API server refuses the job's status: {error.message}. {UNATTENDED}"
        if not memory.status_refused:
            memory.status_refused = True
            self._record_events(key, stored, (Event(warning=True, reason=Reason.STATUS_REFUSED, message=message),))
        job = self._store.job(stored)
        blocked = job.status.condition(ConditionType.BLOCKED)
        if blocked is None or (blocked.status, blocked.reason) != ("True", Reason.STATUS_REFUSED):
            with contextlib.suppress(ApiError):
                await self._block(key, stored, job, Obstacle(Reason.STATUS_REFUSED, message))

    async def _block(self, key: Key, stored: StoredJob, job: DDPJob, obstacle: Obstacle) -> None:
        """Writes a job's status with only the condition Blocked changed, unless it already has that condition."""
        status = blocked_status(Snapshot(self._api.now(), job), obstacle)
        if status != job.status:
            await self._write(key, stored, status)


def _at_rest(snapshot: Snapshot, decision: Decision) -> bool:
    """Whether a finished or suspended job has nothing to do or to retry, and its decision needed no further facts."""
    job = snapshot.job
    idle = job.status.finished or job.spec.suspend
    # A job with a refusal is not at rest, because the decision does not always contain a time for the retry.
    return idle and decision.empty and snapshot.refusal is None and not snapshot.answered


def _news(status: DDPJobStatus) -> tuple[object, ...]:
    """Returns what must be equal in two statuses that report the same news. Their times may differ."""
    return status.attempt, *((condition.type, condition.status, condition.reason) for condition in status.conditions)


def _comparable(seen: Any) -> tuple[str, Any]:
    """Returns an object's name and content, as far as they show the effect of an action.

    For a PodGroup this is only the name, because the scheduler keeps changing the reason why the group is waiting.
    For a Kueue Workload the reason is left out, because Kueue keeps changing it.
    """
    if isinstance(seen, str):
        return seen, None
    if isinstance(seen, KueueWorkload):
        return seen.name, replace(seen, waiting=None)
    return seen.name, None if isinstance(seen, PodGroup) else seen
