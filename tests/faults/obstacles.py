"""Obstacles for one stage of a life: other people, rules, the clock.

An obstacle is removed after it has had an effect.
"""

import asyncio
import math
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine import pod_name, service_name
from ddpjob_operator.engine.manifests.names import pod_group_name

from .calls import QUEUED
from .dates import Dates, Wrong
from .rig import LEADS, PATIENCE_SECONDS, POLL_SECONDS, Rig
from .witness import Manifest, NeverError, Witness

Act = Callable[[Rig], Awaitable[None]]
Felt = Callable[[Rig], bool]

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NOT_TODAY = "no pods today"
HOUR = 3600
A_WHILE_SECONDS = 8.0
"""How long all answers are wrong."""
WRONG_DATES = 3
"""At least this many wrong answers must have been sent."""
MOMENT = re.compile(r"^(\d\d):(\d\d):(\d\d) ", re.MULTILINE)
"""The time at the beginning of each line of the operator's log."""
LATE_SECONDS = 4.5
"""The renewal's delay. It is too short for the leader to give up, and so long that it may lead only a moment
longer."""
FIRST, SECOND = 1, 2
"""The numbers of two processes."""

NEVER_PLACED = {
    "containers": [{"name": "other", "image": "other"}],
    "schedulingGates": [{"name": "example.com/never"}],
}
"""The pod must never get a node. kwok would end a pod with a node late and without comparing uids, and so end its
successor, which has the same name."""
PLACED_ONE_BY_ONE = {"schedulingPolicy": {"basic": {}}}


async def _nothing(_: Rig) -> None:
    """Does nothing, because the obstacle remains or disappears without help."""


def _at_once(_: Rig) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle that exists from before the stage until it has had an effect."""

    stage: str
    what: str
    put: Act
    felt: Felt
    lift: Act
    clock: bool = False
    """Whether the operator needs a clock that can be set."""
    held: float = 0.0
    """How many seconds the obstacle remains after it has had an effect."""
    proved: Felt = _at_once
    """Whether the obstacle has had an effect at all, at the end of the life."""

    def __str__(self) -> str:
        return self.what


def _blocked(reason: str) -> Felt:
    """The job's condition Blocked has this reason."""

    def felt(rig: Rig) -> bool:
        conditions = rig.witness.status().get("conditions", ())
        return any((one["type"], one["status"], one["reason"]) == ("Blocked", "True", reason) for one in conditions)

    return felt


def quota(stage: str) -> Obstacle:
    """A quota that is reached in the middle of a gang. It also forbids ConfigMaps, which shows when it takes effect.

    It allows one pod more than others have. If these ended, there would be room for the gang, so the gang waits.
    Kubernetes may admit another pod, if it counts again just while pods are created.
    """
    name, others = "few", [f"other-{number}" for number in range(4)]

    async def put(rig: Rig) -> None:
        for other in others:
            await rig.create("pods", _named(other, spec=NEVER_PLACED))
        hard = {"pods": 1 + len(others), "count/configmaps": 0}
        await rig.ask("POST", _url(rig, "resourcequotas"), _named(name, spec={"hard": hard}))
        await _until_refused(rig, _url(rig, "configmaps"), _named("probe"), "exceeded quota")

    async def lift(rig: Rig) -> None:
        await rig.ask("DELETE", _url(rig, "resourcequotas", name), {})
        for other in others:
            await rig.delete("pods", other)

    return Obstacle(
        stage,
        "a quota with room for 1 pod",
        put,
        _blocked("QuotaExceeded"),
        lift,
    )


def pod_security(stage: str, level: str) -> Obstacle:
    """From now on, the namespace admits only pods of this Pod Security level, as a job's pods are."""

    async def put(rig: Rig) -> None:
        await _enforce(rig, level)

    return Obstacle(stage, f"Pod Security: {level}", put, _at_once, _nothing)


def pod_security_violated(stage: str) -> Obstacle:
    """The namespace admits only restricted pods, which an operator with `--pod-security=none` does not create."""

    async def put(rig: Rig) -> None:
        await _enforce(rig, "restricted")

    async def lift(rig: Rig) -> None:
        await _label_namespace(rig, None)

    return Obstacle(stage, "Pod Security that pods violate", put, _blocked("PodSecurityViolation"), lift)


def limit_range(stage: str) -> Obstacle:
    """Pods get limits that they did not request."""
    limit = {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}

    async def put(rig: Rig) -> None:
        await rig.ask("POST", _url(rig, "limitranges"), _named("defaults", spec={"limits": [limit]}))

    def felt(rig: Rig) -> bool:
        pods = rig.witness.pods()
        return bool(pods) and all("limits" in pod["spec"]["containers"][0]["resources"] for pod in pods)

    return Obstacle(stage, "a LimitRange that changes pods", put, felt, _nothing)


def denying_webhook(stage: str) -> Obstacle:
    """A validating webhook refuses pods."""

    async def put(rig: Rig) -> None:
        url = await _serve_no(rig)
        await _hook(rig, url)
        pod = _named("probe", spec={"containers": [{"name": "probe", "image": "any"}]})
        await _until_refused(rig, rig.witness.url("pods"), pod, NOT_TODAY)

    return Obstacle(stage, "a webhook that denies", put, _blocked("PolicyDenied"), _unhook)


def dead_webhook(stage: str) -> Obstacle:
    """A validating webhook that is required for pods does not answer."""

    async def put(rig: Rig) -> None:
        await _hook(rig, "https://127.0.0.1:1/")

    return Obstacle(stage, "a webhook that does not answer", put, _blocked("WebhookFailed"), _unhook)


def foreign_pod(stage: str, rank: int, incarnation: int) -> Obstacle:
    """Somebody else's pod has the name of a pod that is to be created."""

    async def put(rig: Rig) -> None:
        await rig.create("pods", _named(_pod_name(rig, rank, incarnation), spec=NEVER_PLACED))

    return Obstacle(stage, "a foreign pod", put, _blocked("PodTaken"), _deletes_pod(rank, incarnation))


def foreign_group(stage: str, incarnation: int) -> Obstacle:
    """Somebody else's PodGroup has the name of a PodGroup that is to be created."""

    async def put(rig: Rig) -> None:
        await rig.create("podgroups", _named(_group_name(rig, incarnation), spec=PLACED_ONE_BY_ONE))

    async def lift(rig: Rig) -> None:
        await rig.delete("podgroups", _group_name(rig, incarnation))

    return Obstacle(stage, "a foreign PodGroup", put, _blocked("PodGroupTaken"), lift)


def deleted_place(stage: str) -> Obstacle:
    """Somebody deletes the job's place in its queue, and the job takes another one."""

    async def put(rig: Rig) -> None:
        former = rig.witness.queued()["metadata"]
        await rig.delete(QUEUED, former["name"])

        def another(there: Witness) -> bool:
            return there.queued().get("metadata", former)["uid"] != former["uid"]

        await rig.witness.until("another place in the queue", another, PATIENCE_SECONDS)

    return Obstacle(stage, "its place in the queue deleted", put, _at_once, _nothing)


def disowned_service(stage: str) -> Obstacle:
    """Somebody removes the owner reference from the job's Service, so that it no longer belongs to the job."""

    async def put(rig: Rig) -> None:
        await _disown(rig, "services", _service_name(rig))

    async def lift(rig: Rig) -> None:
        await rig.delete("services", _service_name(rig))

    return Obstacle(stage, "the Service without its owner", put, _blocked("ServiceTaken"), lift)


def disowned_policy(stage: str) -> Obstacle:
    """Somebody removes the owner reference from the job's NetworkPolicy, so that it no longer belongs to the job."""

    async def put(rig: Rig) -> None:
        await _disown(rig, "networkpolicies", _policy_name(rig))

    async def lift(rig: Rig) -> None:
        await rig.delete("networkpolicies", _policy_name(rig))

    return Obstacle(stage, "the NetworkPolicy without its owner", put, _blocked("NetworkPolicyTaken"), lift)


def disowned_pod(stage: str, rank: int, incarnation: int) -> Obstacle:
    """Somebody removes the owner reference from a pod, so that the job has lost this pod."""

    async def put(rig: Rig) -> None:
        await _disown(rig, "pods", _pod_name(rig, rank, incarnation))

    def felt(rig: Rig) -> bool:
        return bool(rig.witness.status()["attempt"] > incarnation)

    return Obstacle(stage, "a pod without its owner", put, felt, _deletes_pod(rank, incarnation))


def second_operator(stage: str) -> Obstacle:
    """Another operator works at the same time, and neither knows of the other."""

    async def put(rig: Rig) -> None:
        rig.start_operator()
        await rig.until_it_watches()

    def both_write(rig: Rig) -> bool:
        """Whether both write, or try to write and are refused because the other one was first."""
        log = rig.proxy.log
        began = next(record.began for record in log if record.process == SECOND)
        writes = (one for one in log if one.call.writes and one.call.resource != "events")
        return {FIRST, SECOND} <= {one.process for one in writes if one.began > began}

    return Obstacle(stage, "two operators without a lease", put, _at_once, _nothing, proved=both_write)


def killed_leader(stage: str) -> Obstacle:
    """A second replica waits, the leader is killed, and the second one leads when the Lease has expired."""

    async def put(rig: Rig) -> None:
        await _stand_by(rig)
        rig.leave(FIRST)
        rig.operators[0].kill()
        rig.proxy.hang_up(FIRST)
        await rig.until_it_watches()

    return Obstacle(stage, "the leader of two replicas is killed", put, _at_once, _nothing, proved=_second_writes)


def late_renewal(stage: str) -> Obstacle:
    """A second replica waits.

    The leader's Lease is renewed, but the answer is late, and no later request for it arrives.

    If the leader led for the Lease's whole duration from the answer on, the other one would lead at the same time.
    All other requests of both arrive.
    """

    async def put(rig: Rig) -> None:
        await _stand_by(rig)
        rig.leave(FIRST)
        rig.proxy.last_words[FIRST, "leases"] = LATE_SECONDS
        await rig.proxy.until(lambda: (FIRST, "leases") in rig.proxy.cut_off, PATIENCE_SECONDS)
        await rig.until_it_leads()
        if await asyncio.to_thread(rig.operators[0].metric, LEADS) == 1:
            raise NeverError("two replicas lead at once")
        rig.proxy.hang_up(FIRST)
        await rig.until_it_watches()

    what = "the leader of two replicas hears late of its renewal, and then nothing of its Lease"
    return Obstacle(stage, what, put, _at_once, _nothing, proved=_second_writes)


async def _stand_by(rig: Rig) -> None:
    """Starts a replica, and waits until it is ready to take over."""
    rig.start_operator()
    await rig.proxy.until(lambda: _asks(rig, SECOND), PATIENCE_SECONDS)


def _asks(rig: Rig, process: int) -> bool:
    """Whether a process has found out who leads."""
    return any((one.process, one.call.resource, one.status) == (process, "leases", 200) for one in rig.proxy.log)


def _second_writes(rig: Rig) -> bool:
    """Whether the second process writes. (`oracle.two_leaders` checks that it does not write before it leads.)"""
    return any(one.process == SECOND and one.call.writes for one in rig.proxy.log)


def clock_step(stage: str, hours: int) -> Obstacle:
    """The operator's clock is set."""

    async def put(rig: Rig) -> None:
        rig.set_clock(hours * HOUR)

    def told(rig: Rig) -> bool:
        """Whether the last line of the operator's log is dated to another hour."""
        moments = MOMENT.findall(rig.operators[-1].log)
        there = datetime.now().astimezone() + timedelta(hours=hours)
        last = there.replace(**dict(zip(("hour", "minute", "second"), map(int, moments[-1]), strict=True)))
        apart = abs(last - there)
        return min(apart, timedelta(days=1) - apart) < timedelta(hours=0.5)

    return Obstacle(stage, f"the clock is set by {hours:+d} h", put, told, _nothing, clock=True)


def wrong_dates(stage: str, which: Wrong, hours: int, *, restart: bool) -> Obstacle:
    """The clock of one API server is wrong.

    This affects the running operator or, with `restart`, an operator that starts then.

    If the clock is ahead, the next process meets this server, too. If it is behind, the next process does not:
    otherwise it would wait for an hour.
    """

    async def put(rig: Rig) -> None:
        last = math.inf if hours > 0 else rig.proxy.process + restart
        seconds = A_WHILE_SECONDS if which is Wrong.ALL else math.inf
        rig.proxy.dates = Dates(which, timedelta(hours=hours), time.monotonic, seconds, last)
        if restart:
            await rig.crash()
            await rig.until_it_watches()
        # Until then, the operator might still use a date that it received before the clock was wrong.
        await rig.proxy.until(lambda: told(rig), PATIENCE_SECONDS)

    def told(rig: Rig) -> bool:
        return rig.proxy.dates is not None and rig.proxy.dates.told >= WRONG_DATES

    return Obstacle(stage, f"{which} dated an hour off", put, _at_once, _nothing, proved=told)


def _pod_name(rig: Rig, rank: int, incarnation: int) -> str:
    return pod_name(DDPJob.from_dict(rig.witness.job()), rank, incarnation)


def _group_name(rig: Rig, incarnation: int) -> str:
    return pod_group_name(DDPJob.from_dict(rig.witness.job()), incarnation)


def _service_name(rig: Rig) -> str:
    return service_name(DDPJob.from_dict(rig.witness.job()))


def _policy_name(rig: Rig) -> str:
    return name_beside(DDPJob.from_dict(rig.witness.job()).ref)


async def _disown(rig: Rig, kind: str, name: str) -> None:
    await rig.merge(kind, name, {"metadata": {"ownerReferences": None}})


def _deletes_pod(rank: int, incarnation: int) -> Act:
    async def act(rig: Rig) -> None:
        await rig.delete("pods", _pod_name(rig, rank, incarnation))

    return act


async def _enforce(rig: Rig, level: str) -> None:
    """Makes the namespace admit only pods of this level. A pod that wants the node's network must be refused."""
    await _label_namespace(rig, level)
    pod = _named("probe", spec={"hostNetwork": True, "containers": [{"name": "probe", "image": "any"}]})
    await _until_refused(rig, rig.witness.url("pods"), pod, "violates PodSecurity")


async def _label_namespace(rig: Rig, level: str | None) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    await rig.ask("PATCH", f"/api/v1/namespaces/{rig.witness.namespace}", {"metadata": {"labels": labels}})


async def _serve_no(rig: Rig) -> str:
    """Starts a server that denies every request, for as long as the rig exists."""
    pair = rig.plant.authority.server("webhook", reached_as={"127.0.0.1"})
    files = [rig.plant.directory / "pki" / f"{rig.witness.namespace}.{kind}" for kind in ("crt", "key")]
    for file, text in zip(files, (pair.certificate, pair.key), strict=True):
        file.write_text(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)

    async def deny(request: web.BaseRequest) -> web.Response:
        review = await request.json()
        said = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": NOT_TODAY}}
        return web.json_response({**review, "response": said})

    runner = web.ServerRunner(web.Server(deny, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    rig.closing.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return f"https://127.0.0.1:{runner.addresses[0][1]}/"


async def _hook(rig: Rig, url: str) -> None:
    """Makes the API server show the namespace's pods to this webhook first."""
    namespace = rig.witness.namespace
    hook = {
        "name": "pods.test.ddpjob.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "clientConfig": {"url": url, "caBundle": b64encode(rig.plant.authority.certificate.encode()).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    await rig.ask("POST", HOOKS, _named(namespace, webhooks=[hook]))


async def _unhook(rig: Rig) -> None:
    await rig.ask("DELETE", f"{HOOKS}/{rig.witness.namespace}", {})


def _url(rig: Rig, kind: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{rig.witness.namespace}/{kind}" + (f"/{name}" if name else "")


def _named(name: str, **fields: Any) -> Manifest:
    return {"metadata": {"name": name}, **fields}


def _deletes(kind: str, name: str) -> Act:
    async def lift(rig: Rig) -> None:
        await rig.ask("DELETE", _url(rig, kind, name), {})

    return lift


async def _until_refused(rig: Rig, url: str, body: Manifest, words: str) -> None:
    """Waits until the server refuses a request: it does not announce when a new rule takes effect."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _is_refused(rig, url, body, words):  # noqa: ASYNC110  This happens in another process.
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NeverError(f"the server never says {words!r} to {url}") from None


async def _is_refused(rig: Rig, url: str, body: Manifest, words: str) -> bool:
    async with rig.upstream.post(f"{url}?dryRun=All", json=body) as answer:
        return words in await answer.text()
