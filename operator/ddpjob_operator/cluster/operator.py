"""The operator as a whole: its parts, and the order in which they start and stop."""

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from http import HTTPStatus
from itertools import count, filterfalse
from typing import Any

from ddpjob_operator.engine import Claim, Event, Feature

from .followed_defaults import FollowedDefaults
from .job_watch import watch
from .kinds import RESOURCES
from .kube import rights
from .kube.api_client import (
    DDPJOBS,
    PODS,
    ApiClient,
    ApiError,
    FencedError,
    Resource,
)
from .kube.backoff import backoff
from .kube.connection import Connection
from .kube.lease import LeaderElector
from .kube.objects import ObjectMeta
from .metrics_access import MetricsAccess
from .namespaces import Namespaces
from .optional_api import OptionalApi
from .options import OperatorOptions
from .reconciler import Reconciler
from .recorder import CONFIG_MAP, EventRecorder
from .reflector import OURS, Reflector
from .serve.log import about
from .serve.metrics import LEADER, ROUND_SECONDS, ROUNDS
from .serve.web import PortTakenError, serve
from .store import Cache, Key, Store, StoredJob, in_namespace
from .supervisors import Supervisors
from .tally import Tally
from .workqueue import WorkQueue

REST_SECONDS_PER_POD = 0.0001
"""How long a job rests after each round, per pod. A round takes some microseconds per pod, so without the rest a
large gang whose pods keep changing would use up all CPU time."""
SPREAD_SECONDS = 30.0
"""A resync spreads its rounds over at most this time, so that a new event need not wait for all of them."""
AT_ONCE_SECONDS = 1.0
"""Rounds of all jobs after a change of the organisation's defaults are spread over this time."""
SPREAD_SHARE = 0.1
"""A resync spreads its rounds over at most this fraction of the time between two resyncs."""
CRD_RETRY_SECONDS = 2.0
STOP_SECONDS = 4.0
"""How long the operator may take to finish its work after it was told to stop."""
IN_HAND_SECONDS = 2.0
"""How long rounds in progress may begin further writes after the operator was told to stop. If a large job still
lacks pods then, the next leader creates them."""
EVENTS_SECONDS = 1.0
"""How long a stopping operator waits for its events to be written before it releases the Lease. Until then, no other
replica can lead."""
CLOSED = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
"""The HTTP statuses of a request to a namespace that the operator is not allowed to read, or that does not exist."""

logger = logging.getLogger(__name__)


class StoppedError(Exception):
    """The operator cannot continue. The program prints the text of this error unchanged, and exits."""


class Operator:
    """A replica of the operator."""

    def __init__(self, options: OperatorOptions, connection: Connection) -> None:
        self._options = options
        unfenced = ApiClient(connection, lambda: True)
        self._elector = LeaderElector(unfenced, *options.lease, options.identity) if options.lease else None
        self._api = ApiClient(connection, self._may_write)
        self._unfenced = unfenced
        self._server = connection.server
        self._queue = WorkQueue()
        self._namespaces = Namespaces(
            unfenced,
            options.namespaces,
            options.namespace_selector,
            enter=self._enter_namespace,
            leave=self._leave_namespace,
        )
        self._optional = tuple(OptionalApi(unfenced, feature) for feature in Feature)
        self._store = Store(self._queue.mark, self._namespaces.serves)
        self._children: list[tuple[Resource[Any], Cache[Any, Any]]] = [
            (PODS, self._store.pods),
            *((RESOURCES[kind], cache) for kind, cache in self._store.owned.items()),
        ]
        """The resources whose objects belong to jobs, each with its cache."""
        namespaces: list[str | None] = [*options.namespaces] or [None]
        self._reflectors = {namespace: self._reflectors_for(namespace) for namespace in namespaces}
        # An event reports what has already happened, so it is written even after rounds are barred from writing.
        self._recorder = EventRecorder(ApiClient(connection, self._is_leader))
        self._supervisors, self._witnesses = (Supervisors(self._queue, unfenced.now) for _ in range(2))
        self._tally = Tally(unfenced.now)
        self._defaults = FollowedDefaults(
            unfenced, options.defaults, changed=self._look_at_all, record=self._record_about_defaults
        )
        self._reconciler = Reconciler(
            self._api,
            self._store,
            self._queue,
            self._recorder,
            supervisors=self._supervisors,
            witnesses=self._witnesses,
            settings=options.settings,
            granted={api.feature: api.granted for api in self._optional},
            tally=self._tally,
            defaults_of=self._defaults.of,
        )
        self._not_ready = "starting"
        self._stopping = asyncio.Event()
        self._leaving = False
        """Whether rounds are barred from writing, so that the Lease can be released."""
        self._leading = False
        """Whether this replica was elected. From then on it reads not only jobs, but also pods and other objects."""
        self._listed = asyncio.Event()
        self._all_due = False
        """Whether the next resync must request rounds of all jobs, even of those at rest, because an optional API has
        become usable or unusable."""

    async def run(self) -> None:
        """Runs until the process is told to stop.

        Raises:
            StoppedError: the operator cannot start, or cannot continue.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._supervisors.close)
            stack.push_async_callback(self._witnesses.close)
            try:
                port, probe_port = await serve(
                    stack,
                    (self._options.port, self._options.probe_port),
                    ready=lambda: self._not_ready or self._namespaces.why_not_ready,
                    problems=lambda: "\n".join(
                        filter(None, (self._namespaces.problems, self._reconciler.problems, self._defaults.problem))
                    ),
                    jobs=lambda: self._tally.metrics(self._jobs, leads=self._leading),
                    access=MetricsAccess(self._unfenced) if self._options.metrics_auth else None,
                )
            except PortTakenError as error:
                raise StoppedError(f"{error}: {os.strerror(error.error.errno or 0)}") from error
            logger.info(
                "serving /healthz, /readyz and /metrics on port %d, probes on %d; API server %s",
                port,
                probe_port,
                self._server,
            )
            await self._until_stopped(self._work())

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            await working
            return
        await self._finish()
        working.cancel()
        await asyncio.wait((working,), timeout=1)

    async def _finish(self) -> None:
        """Finishes the rounds in progress, writes the queued events, and releases the Lease for the next leader."""
        logger.info("stopping")
        self._not_ready = "stopping"
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._end_rounds()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVENTS_SECONDS):
                        await self._recorder.drained()
                if self._elector is not None:
                    await self._elector.release()
        except (TimeoutError, ApiError) as error:
            logger.warning(
                "stopped before everything was finished: %s", str(error) or f"it took more than {STOP_SECONDS} s"
            )

    async def _end_rounds(self) -> None:
        try:
            async with asyncio.timeout(IN_HAND_SECONDS):
                await self._queue.close()
        except TimeoutError:
            self._leaving = True  # The fence now refuses writes, so each round ends once its pending writes are done.
            await self._queue.close()

    async def _work(self) -> None:
        await self._until_installed()
        parts = {
            "leading": self._lead(),
            "election": self._elector.run() if self._elector else asyncio.Event().wait(),
            "events": self._recorder.run(),
            "watching": watch(self._store.jobs, self._namespaces.choose),
            "following namespaces": self._namespaces.run(),
            "following defaults": self._defaults.run(),
            "rounds": self._run_rounds(),
            **{
                f"following {reflector}": self._run_reflector(reflector)
                for reflectors in self._reflectors.values()
                for reflector in reflectors
            },
        }
        tasks = {name: asyncio.create_task(part, name=name) for name, part in parts.items()}
        try:
            await self._until_a_part_ends(tasks)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.wait(tasks.values(), timeout=2)

    async def _until_a_part_ends(self, tasks: dict[str, asyncio.Task[Any]]) -> None:
        """Waits until any of the tasks ends. Normally none does.

        Raises:
            StoppedError: a task has ended, although the operator was not told to stop.
        """
        done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        ended = done.pop()
        if self._stopping.is_set():
            return
        if ended is tasks["election"]:
            raise StoppedError("The leadership is lost: the Lease could not be renewed in time.")
        error = None if ended.cancelled() else ended.exception()
        raise StoppedError(f"The task {ended.get_name()!r} has ended: {error or 'the reason is unknown'}") from error

    async def _until_installed(self) -> None:
        """Waits for the API server and the CRD. Meanwhile, /readyz and the log show what is missing."""
        while missing := await self._missing_prerequisite():
            if missing != self._not_ready:
                logger.warning("%s", missing)
            self._not_ready = missing
            await asyncio.sleep(CRD_RETRY_SECONDS)
        self._not_ready = "starting"

    async def _missing_prerequisite(self) -> str:
        """Describes what the operator has to wait for before it can start; empty if nothing is missing.

        Raises:
            StoppedError: the operator lacks rights, or the API server refuses its requests. Waiting would not help.
        """
        try:
            if DDPJOBS.plural not in await self._unfenced.served(DDPJOBS.path):
                return "waiting for the type DDPJob: apply deploy/crd.yaml, or install the chart"
            await self._check_rights()
        except ApiError as error:
            if not error.passing:
                raise StoppedError(
                    f"The API server {self._server} refuses the operator's requests: {error.message}"
                ) from error
            return f"waiting for the API server {self._server}: {error.message}"
        else:
            return ""

    async def _check_rights(self) -> None:
        missing = await self._namespaces.begin()
        if self._options.lease is not None:
            missing += await rights.missing_for_lease(self._unfenced, *self._options.lease)
        if missing:
            raise StoppedError("The operator lacks rights that it needs: " + "; ".join(missing))

    async def _lead(self) -> None:
        """Waits to be elected, lists everything, lets the rounds begin, and then resyncs at regular intervals."""
        if self._elector is not None:
            # A standby counts as ready. Otherwise a rollout would never end: it stops the leader only after its
            # successor is ready, and the successor can lead only after the leader has stopped.
            self._not_ready = ""
            # These requests are made before the election, because after it every second counts: a pod that is evicted
            # together with the leader may be gone a second later, and then nothing shows why it ended.
            ahead = asyncio.create_task(self._check_optional_early())
            await self._elector.elected.wait()
            ahead.cancel()
        LEADER.set(1)
        self._leading = True
        await self._resync(spread=0.0, anew=False)
        await self._defaults.first_read()
        self._listed.set()
        self._queue.open()
        self._not_ready = ""
        while True:
            await asyncio.sleep(self._options.resync_seconds)
            self._namespaces.check_soon()
            await self._resync(min(SPREAD_SECONDS, SPREAD_SHARE * self._options.resync_seconds), anew=True)

    async def _resync(self, spread: float, *, anew: bool) -> None:
        """Lists everything, then requests a round of each job not at rest, at a random time within `spread` seconds.

        If `anew` is true, it also checks again which optional APIs can be used.
        """
        for failures in count(1):
            try:
                await self._list(anew=anew)
            except ApiError as error:
                seconds = backoff(failures, error.retry_after)
                logger.warning("a list of all objects failed: %s; trying again in %.1f s", error, seconds)
                await asyncio.sleep(seconds)
            else:
                break
        self._tally.look(self._jobs)
        self._look_at_all(spread)
        self._all_due = False
        # The lists leave more garbage behind than anything else. Without this call, Python would search older objects
        # for reference cycles only after a million new objects.
        gc.collect()

    def _look_at_all(self, spread: float = AT_ONCE_SECONDS) -> None:
        """Requests a round of each job that may need one, at a random time within `spread` seconds."""
        jobs = self._store.jobs.keys(namespace=None)
        for key in jobs if self._all_due else filterfalse(self._reconciler.at_rest, jobs):
            self._queue.mark_in(key, random.uniform(0.0, spread))  # noqa: S311  It only spreads work.

    def _record_about_defaults(self, seen: ObjectMeta, event: Event) -> None:
        if self._is_leader():  # All replicas follow the defaults, but one event is enough.
            self._recorder.record(seen, event, CONFIG_MAP)

    async def _list(self, *, anew: bool = False) -> None:
        """Lists everything. A named namespace that cannot be read is closed, so that the others are still listed."""
        for namespace in self._reflectors:
            if namespace is not None and not self._namespaces.serves(namespace):
                continue
            try:
                await self._list_one(namespace, anew=anew)
            except ApiError as error:
                if namespace is None or error.status not in CLOSED:
                    raise
                # Closed namespaces are checked regularly, and reopened when they can be read again.
                self._namespaces.close(namespace, str(error))

    async def _list_one(self, namespace: str | None, *, anew: bool) -> None:
        jobs, version = await self._api.list(DDPJOBS, namespace)
        await self._store.jobs.update_all(jobs, version, in_namespace(namespace))
        known = self._store.jobs.keys(namespace)
        if anew or not all(api.was_checked(namespace) for api in self._optional):
            await self._check_optional(namespace)
        for reflector in self._reflectors[namespace]:
            if reflector.wanted:
                await reflector.list()
        self._reconciler.note_listed(known)  # The lists may lack pods of jobs newer than these.

    async def _enter_namespace(self, namespace: str) -> None:
        """Lists a namespace whose jobs are run from now on. A standby does not list it before its election.

        Raises:
            ApiError: the namespace cannot be read now.
        """
        if not self._leading:
            return
        if namespace in self._reflectors:  # Otherwise optional APIs are checked cluster-wide.
            await self._check_optional(namespace)
        kinds: list[tuple[Resource[Any], Cache[Any, Any]]] = [*self._children, (DDPJOBS, self._store.jobs)]
        for resource, cache in kinds:  # Jobs come last, so that a job's first round finds all its objects.
            if not self._is_available(resource, namespace):
                continue
            labels = "" if resource is DDPJOBS else OURS
            objects, version = await self._api.list(resource, namespace, labels)
            await cache.update_all(objects, version, in_namespace(namespace))
        self._reconciler.note_listed(self._store.jobs.keys(namespace))

    def _leave_namespace(self, namespace: str) -> None:
        """Forgets a namespace. Its jobs stay as they are in the cluster, and have no more rounds."""
        self._store.drop_namespace(namespace)
        self._tally.end(namespace)
        self._reconciler.leave_namespace(namespace)

    def _reflectors_for(self, namespace: str | None) -> tuple[Reflector[Any, Any], ...]:
        """Returns the reflectors for objects that belong to jobs, in one namespace or, with None, in all."""

        def reflector(resource: Resource[Any], cache: Cache[Any, Any]) -> Reflector[Any, Any]:
            def wanted() -> bool:
                served = namespace is None or self._namespaces.serves(namespace)
                return served and self._is_available(resource, namespace)

            return Reflector(
                self._api, resource, namespace, cache, wanted=wanted, refused=self._namespaces.check_soon
            )

        return tuple(reflector(resource, cache) for resource, cache in self._children)

    def _is_available(self, resource: Resource[Any], namespace: str | None) -> bool:
        """Whether the API server serves this kind of object and lets the operator use it in the namespace."""
        optional = next((api for api in self._optional if resource in api.kinds), None)
        return optional is None or optional.granted(namespace)

    async def _check_optional_early(self) -> None:
        """Checks the optional APIs while this replica is a standby. Failed checks are repeated when it leads."""
        with contextlib.suppress(ApiError):
            for namespace in self._reflectors:
                await self._check_optional(namespace)

    async def _check_optional(self, namespace: str | None) -> None:
        async def check(optional: OptionalApi) -> None:
            if await optional.check(namespace):
                self._all_due = True  # This is set here, so that it is kept even if the next API's check fails.

        await asyncio.gather(*map(check, self._optional))

    async def _run_reflector(self, reflector: Reflector[Any, Any]) -> None:
        """Runs a reflector, beginning when this replica leads and has listed everything. Standbys need none."""
        await self._listed.wait()
        await reflector.run()

    async def _run_rounds(self) -> None:
        async with asyncio.TaskGroup() as rounds:
            while True:
                rounds.create_task(self._round(await self._queue.take()))

    async def _round(self, key: Key) -> None:
        try:
            with ROUND_SECONDS.time():
                pods = await self._reconciler.round(key)
        except ApiError as error:
            seconds = self._queue.failed(key, error.retry_after or 0.0)
            ROUNDS.labels("error").inc()
            logger.warning("%s; trying again in %.1f s", error, seconds, extra=about(key))
        except FencedError:
            ROUNDS.labels("fenced").inc()
            self._queue.failed(key)
        except Exception:
            ROUNDS.labels("bug").inc()
            logger.exception("this is a bug; trying again in %.1f s", self._queue.failed(key), extra=about(key))
        else:
            ROUNDS.labels("ok").inc()
            self._queue.done(key, REST_SECONDS_PER_POD * pods)

    @property
    def _jobs(self) -> list[StoredJob]:
        me = self._options.settings.holder
        return [job for _, job in self._store.jobs.all() if job.claimed_by(me) is Claim.OURS]

    def _may_write(self) -> bool:
        return not self._leaving and self._is_leader()

    def _is_leader(self) -> bool:
        return self._elector is None or self._elector.leads
