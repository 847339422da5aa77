"""What stands in the way of one stage of a life, and is taken away once it is felt: others, rules, the clock."""

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
"""For so long all answers are wrong."""
WRONG_DATES = 3
"""At least so many must have been told."""
MOMENT = re.compile(r"^(\d\d):(\d\d):(\d\d) ", re.MULTILINE)
"""With which each line of the operator's log begins."""
LATE_SECONDS = 4.5
"""Sooner than a leader gives up its renewal, and so late that it may lead for hardly a moment more."""
FIRST, SECOND = 1, 2
"""The numbers of two processes."""

NEVER_PLACED = {
    "containers": [{"name": "other", "image": "other"}],
    "schedulingGates": [{"name": "example.com/never"}],
}
"""A pod on a node would be ended late by kwok, which asks for no uid: its successor's name is the same."""
PLACED_ONE_BY_ONE = {"schedulingPolicy": {"basic": {}}}


async def _nothing(_: Rig) -> None:
    """It stays, or has gone by itself."""


def _at_once(_: Rig) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Obstacle:
    """It is there from before the stage until it is felt."""

    stage: str
    what: str
    put: Act
    felt: Felt
    lift: Act
    clock: bool = False
    """Whether the operator's clock has to be one that can be set."""
    held: float = 0.0
    """For so many seconds after it is felt it stays."""
    proved: Felt = _at_once
    """Whether it has happened at all, at the end of the life."""

    def __str__(self) -> str:
        return self.what


def _blocked(reason: str) -> Felt:
    """The job says so."""

    def felt(rig: Rig) -> bool:
        conditions = rig.witness.status().get("conditions", ())
        return any((one["type"], one["status"], one["reason"]) == ("Blocked", "True", reason) for one in conditions)

    return felt


def quota(stage: str) -> Obstacle:
    """Met in the middle of a gang. No ConfigMap is allowed either: by that is seen when the quota counts.

    One pod more than others have is allowed: once these ended, there would be room for the gang, so it waits.
    Kubernetes may admit another, where it counts anew just as pods are made.
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
    """The namespace admits only such pods, from now on; those of a job are."""

    async def put(rig: Rig) -> None:
        await _enforce(rig, level)

    return Obstacle(stage, f"Pod Security: {level}", put, _at_once, _nothing)


def pod_security_violated(stage: str) -> Obstacle:
    """The namespace admits restricted pods only, which an operator with `--pod-security=none` does not make."""

    async def put(rig: Rig) -> None:
        await _enforce(rig, "restricted")

    async def lift(rig: Rig) -> None:
        await _label_namespace(rig, None)

    return Obstacle(stage, "Pod Security that pods violate", put, _blocked("PodSecurityViolation"), lift)


def limit_range(stage: str) -> Obstacle:
    """Pods get what they did not ask for."""
    limit = {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}

    async def put(rig: Rig) -> None:
        await rig.ask("POST", _url(rig, "limitranges"), _named("defaults", spec={"limits": [limit]}))

    def felt(rig: Rig) -> bool:
        pods = rig.witness.pods()
        return bool(pods) and all("limits" in pod["spec"]["containers"][0]["resources"] for pod in pods)

    return Obstacle(stage, "a LimitRange that changes pods", put, felt, _nothing)


def denying_webhook(stage: str) -> Obstacle:
    """A validating webhook says no to pods."""

    async def put(rig: Rig) -> None:
        url = await _serve_no(rig)
        await _hook(rig, url)
        pod = _named("probe", spec={"containers": [{"name": "probe", "image": "any"}]})
        await _until_refused(rig, rig.witness.url("pods"), pod, NOT_TODAY)

    return Obstacle(stage, "a webhook that denies", put, _blocked("PolicyDenied"), _unhook)


def dead_webhook(stage: str) -> Obstacle:
    """A validating webhook that pods cannot do without does not answer."""

    async def put(rig: Rig) -> None:
        await _hook(rig, "https://127.0.0.1:1/")

    return Obstacle(stage, "a webhook that does not answer", put, _blocked("WebhookFailed"), _unhook)


def foreign_pod(stage: str, rank: int, incarnation: int) -> Obstacle:
    """Somebody else's pod has the name of one to come."""

    async def put(rig: Rig) -> None:
        await rig.create("pods", _named(_pod_name(rig, rank, incarnation), spec=NEVER_PLACED))

    return Obstacle(stage, "a foreign pod", put, _blocked("PodTaken"), _deletes_pod(rank, incarnation))


def foreign_group(stage: str, incarnation: int) -> Obstacle:
    """Somebody else's PodGroup has the name of one to come."""

    async def put(rig: Rig) -> None:
        await rig.create("podgroups", _named(_group_name(rig, incarnation), spec=PLACED_ONE_BY_ONE))

    async def lift(rig: Rig) -> None:
        await rig.delete("podgroups", _group_name(rig, incarnation))

    return Obstacle(stage, "a foreign PodGroup", put, _blocked("PodGroupTaken"), lift)


def deleted_place(stage: str) -> Obstacle:
    """Somebody deletes the job's place in its queue, and it takes another."""

    async def put(rig: Rig) -> None:
        former = rig.witness.queued()["metadata"]
        await rig.delete(QUEUED, former["name"])

        def another(there: Witness) -> bool:
            return there.queued().get("metadata", former)["uid"] != former["uid"]

        await rig.witness.until("another place in the queue", another, PATIENCE_SECONDS)

    return Obstacle(stage, "its place in the queue deleted", put, _at_once, _nothing)


def disowned_service(stage: str) -> Obstacle:
    """Somebody takes the owner reference from the job's Service: it is nobody's then."""

    async def put(rig: Rig) -> None:
        await _disown(rig, "services", _service_name(rig))

    async def lift(rig: Rig) -> None:
        await rig.delete("services", _service_name(rig))

    return Obstacle(stage, "the Service without its owner", put, _blocked("ServiceTaken"), lift)


def disowned_policy(stage: str) -> Obstacle:
    """Somebody takes the owner reference from the job's NetworkPolicy: it is nobody's then."""

    async def put(rig: Rig) -> None:
        await _disown(rig, "networkpolicies", _policy_name(rig))

    async def lift(rig: Rig) -> None:
        await rig.delete("networkpolicies", _policy_name(rig))

    return Obstacle(stage, "the NetworkPolicy without its owner", put, _blocked("NetworkPolicyTaken"), lift)


def disowned_pod(stage: str, rank: int, incarnation: int) -> Obstacle:
    """Somebody takes the owner reference from a pod: it is nobody's then, and so it is gone for the job."""

    async def put(rig: Rig) -> None:
        await _disown(rig, "pods", _pod_name(rig, rank, incarnation))

    def felt(rig: Rig) -> bool:
        return bool(rig.witness.status()["attempt"] > incarnation)

    return Obstacle(stage, "a pod without its owner", put, felt, _deletes_pod(rank, incarnation))


def second_operator(stage: str) -> Obstacle:
    """Another operator works beside the first, and neither knows of the other."""

    async def put(rig: Rig) -> None:
        rig.start_operator()
        await rig.until_it_watches()

    def both_write(rig: Rig) -> bool:
        """Or try to, and are refused because the other was first."""
        log = rig.proxy.log
        began = next(record.began for record in log if record.process == SECOND)
        writes = (one for one in log if one.call.writes and one.call.resource != "events")
        return {FIRST, SECOND} <= {one.process for one in writes if one.began > began}

    return Obstacle(stage, "two operators without a lease", put, _at_once, _nothing, proved=both_write)


def killed_leader(stage: str) -> Obstacle:
    """A replica stands by, the leader is killed, and the other one leads once the Lease is over."""

    async def put(rig: Rig) -> None:
        await _stand_by(rig)
        rig.leave(FIRST)
        rig.operators[0].kill()
        rig.proxy.hang_up(FIRST)
        await rig.until_it_watches()

    return Obstacle(stage, "the leader of two replicas is killed", put, _at_once, _nothing, proved=_second_writes)


def late_renewal(stage: str) -> Obstacle:
    """A replica stands by. The leader's Lease is renewed, it hears so late, and no later request for it arrives.

    If it led for its whole time from the answer on, the other one would lead beside it. All else of both arrives.
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
    """Whether it has looked who leads."""
    return any((one.process, one.call.resource, one.status) == (process, "leases", 200) for one in rig.proxy.log)


def _second_writes(rig: Rig) -> bool:
    """And not before it leads: what else both write is judged by `oracle.two_leaders`."""
    return any(one.process == SECOND and one.call.writes for one in rig.proxy.log)


def clock_step(stage: str, hours: int) -> Obstacle:
    """The operator's clock is set."""

    async def put(rig: Rig) -> None:
        rig.set_clock(hours * HOUR)

    def told(rig: Rig) -> bool:
        """The last line of the operator's log is of another hour."""
        moments = MOMENT.findall(rig.operators[-1].log)
        there = datetime.now().astimezone() + timedelta(hours=hours)
        last = there.replace(**dict(zip(("hour", "minute", "second"), map(int, moments[-1]), strict=True)))
        apart = abs(last - there)
        return min(apart, timedelta(days=1) - apart) < timedelta(hours=0.5)

    return Obstacle(stage, f"the clock is set by {hours:+d} h", put, told, _nothing, clock=True)


def wrong_dates(stage: str, which: Wrong, hours: int, *, restart: bool) -> Obstacle:
    """The clock of one API server is wrong, for the operator at work or, with `restart`, for one that starts then.

    The process after it meets one that is ahead, too. One that is behind it does not: else it would wait for an hour.
    """

    async def put(rig: Rig) -> None:
        last = math.inf if hours > 0 else rig.proxy.process + restart
        seconds = A_WHILE_SECONDS if which is Wrong.ALL else math.inf
        rig.proxy.dates = Dates(which, timedelta(hours=hours), time.monotonic, seconds, last)
        if restart:
            await rig.crash()
            await rig.until_it_watches()
        await rig.proxy.until(lambda: told(rig), PATIENCE_SECONDS)  # Else it may act by what it heard before.

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
    """From now on the namespace admits only such pods: one that wants the node's network is refused."""
    await _label_namespace(rig, level)
    pod = _named("probe", spec={"hostNetwork": True, "containers": [{"name": "probe", "image": "any"}]})
    await _until_refused(rig, rig.witness.url("pods"), pod, "violates PodSecurity")


async def _label_namespace(rig: Rig, level: str | None) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    await rig.ask("PATCH", f"/api/v1/namespaces/{rig.witness.namespace}", {"metadata": {"labels": labels}})


async def _serve_no(rig: Rig) -> str:
    """A server that denies every request, for as long as the rig lives."""
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
    """Pods of the namespace are shown to it first."""
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
    """The server tells nobody when what is to refuse begins to count."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await _is_refused(rig, url, body, words):  # noqa: ASYNC110  It is another process.
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NeverError(f"the server never says {words!r} to {url}") from None


async def _is_refused(rig: Rig, url: str, body: Manifest, words: str) -> bool:
    async with rig.upstream.post(f"{url}?dryRun=All", json=body) as answer:
        return words in await answer.text()
