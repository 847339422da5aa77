"""The scenarios. Each runs on a stage and returns figures, whose names include their units."""

import asyncio
import json
import math
import re
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from ddpjob_operator.api import ConditionType
from ddpjob_operator.api.contract import MAX_NODES, Label

from tests.plant.audit import kind, position, seconds, writes
from tests.support.jobs import FOR_LONG, a_job, steered
from tests.support.operators import Operator

from .audit import Life, job_name
from .client import Manifest
from .contestants import Running, our_operator
from .progress import progress
from .stage import LONGEST_SECONDS, Figures, Stage, cpu_seconds, memory, most_memory, quantile

FAILS_NOW = {"metadata": {"annotations": steered(runs_for="0s", exit_code="1")}}
LOOKS = 'ddpjob_reconciles_total{result="ok"}'
AFTERWARDS_SECONDS = 10.0
"""How long an operator is watched after its start."""
NOT_KEPT = {"selfsubjectaccessreviews", "selfsubjectrulesreviews"}
"""Resources whose creation is only a query, and stores nothing."""
PACE_SECONDS = 0.2
CEILING = "ceiling"
PAIRS = 15
"""How many pairs are measured. The number is fixed: if the measurement stopped as soon as the target is met, it would
hide that the operator has become slower."""
OWN_CPU = "CPU ms per job, contestant"
SERVERS_OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences", "generation")


@dataclass(frozen=True)
class Scenario:
    """What is measured, and under which conditions."""

    how: str
    measure: Callable[[Stage], Awaitable[Figures]]
    ours_only: bool = False
    nodes: int = 8
    node_grace_seconds: int = 60
    alone: bool = False
    """Whether the scenario needs its own plant."""
    once: bool = False
    """Whether the scenario is measured only one time instead of in each repeat."""


async def idle(stage: Stage) -> Figures:
    """Runs jobs of 8 pods one after the other."""
    rounds, pods = (3, 8) if stage.quick else (10, 8)
    await stage.begin()
    for number in range(rounds):
        await stage.submit([stage.contestant.job(job_name(number), pods, {})])
        await stage.until_done(number + 1)
    lives = stage.lives().values()
    created = [max(life.created) - life.submitted for life in lives]
    said = [life.said - life.ended for life in lives]
    return {
        "created p50 ms": 1000 * quantile(created, 0.5),
        "created p99 ms": 1000 * quantile(created, 0.99),
        "said p50 ms": 1000 * quantile(said, 0.5),
        "said p99 ms": 1000 * quantile(said, 0.99),
    }


def burst(jobs: int, quick_jobs: int) -> Callable[[Stage], Awaitable[Figures]]:
    """A scenario with this many jobs of 4 pods at the same time, or with `quick_jobs` jobs in a quick run."""

    async def measure(stage: Stage) -> Figures:
        return await _burst(stage, quick_jobs if stage.quick else jobs)

    return measure


async def _burst(stage: Stage, count: int) -> Figures:
    await stage.begin()
    await stage.submit(stage.contestant.job(job_name(number), 4, {}) for number in range(count))
    await stage.until_done(count)
    await stage.quiet()
    used, lives = stage.used(), stage.lives().values()
    created = [max(life.created) - life.submitted for life in lives]
    writes, events = [life.others for life in lives], [life.events for life in lives]
    began = min(life.submitted for life in lives)
    pods = sorted(moment for life in lives for moment in life.created)
    return {
        "created p50 s": quantile(created, 0.5),
        "created p99 s": quantile(created, 0.99),
        "jobs/s": count / (max(life.said for life in lives) - began),
        "pods created/s": len(pods) / (pods[-1] - began),
        "writes per job": statistics.mean(writes),
        "writes per job, most": max(writes),
        "events per job": statistics.mean(events),
        "events per job, most": max(events),
        **{f"CPU ms per job, {name}": 1000 * seconds / count for name, seconds in used.items()},
    }


async def ceiling(stage: Stage) -> Figures:
    """Creates pods like those of a job with a client that does nothing else, as an upper bound for a controller."""
    pod = await a_pod(stage)
    await stage.begin()
    pods = 100 if stage.quick else 1000
    await make_pods(stage, pod, pods)
    made = _made(stage)
    return {"pods created/s": pods / (made[-1] - made[0])}


async def shares(stage: Stage) -> Figures:
    """Compares a few jobs with the same pods created by hand shortly before, so that other load cancels out."""
    pod = await a_pod(stage)
    await _pair(stage, pod)  # Not counted, because the first pair opens connections and warms caches.
    found = [await _pair(stage, pod) for _ in range(1 if stage.quick else PAIRS)]
    return {what: statistics.median(one[what] for one in found) for what in found[0]}


async def _pair(stage: Stage, pod: Manifest) -> Figures:
    """Creates the pods of a few jobs by hand, then the jobs. Compares the speeds, and the CPU times."""
    jobs = 40
    await stage.begin()
    before = time.process_time()
    await make_pods(stage, pod, 4 * jobs)
    used = time.process_time() - before
    made = _made(stage)
    await stage.until_phase("Succeeded", 4 * jobs)
    found = await _burst(stage, jobs)
    shares = {
        "pods/s, share of a client's": found["pods created/s"] * (made[-1] - made[0]) / (4 * jobs),
        "a client's CPU for the pods of a job, share of the operator's": 1000 * used / jobs / found[OWN_CPU],
    }
    print("  " + ", ".join(f"{what}: {share:.3f}" for what, share in shares.items()), flush=True)
    return shares


async def a_pod(stage: Stage) -> Manifest:
    """The manifest of a pod as our operator creates it, but without an owner."""
    await stage.begin()
    await stage.submit([stage.contestant.job(job_name(0), 1, {})])
    await stage.until_done(1)
    pod: Manifest = (await stage.client.get(stage.pods))["items"][0]
    for field in SERVERS_OWN:
        pod["metadata"].pop(field, None)
    pod["metadata"]["labels"][Label.MANAGED_BY] = "nobody"
    del pod["spec"]["nodeName"], pod["status"]
    return pod


async def make_pods(stage: Stage, like: Manifest, count: int) -> None:
    """Creates `count` pods by hand."""
    bodies = (_named(like, f"{CEILING}-{number}", stage.namespace) for number in range(count))
    await stage.client.create_all(stage.pods, bodies)


def _named(pod: Manifest, name: str, namespace: str) -> Manifest:
    return pod | {"metadata": pod["metadata"] | {"name": name, "namespace": namespace}}


def _made(stage: Stage) -> list[float]:
    """When the first of the pods made by hand was requested, then when each of them was created, in order."""
    creations = [
        event
        for event in writes(stage.plant, stage.since, stage.namespace)
        if event["verb"] == "create" and kind(event) == "pods" and event["objectRef"]["name"].startswith(CEILING)
    ]
    began = min(seconds(event["requestReceivedTimestamp"]) for event in creations)
    return [began, *sorted(seconds(event["stageTimestamp"]) for event in creations)]


async def live(stage: Stage) -> Figures:
    """Measures the operator's memory with 1,000 running jobs of 8 pods, and its restart with these jobs."""
    operator = stage.running.operator
    assert operator is not None
    jobs, pods = (30 if stage.quick else 1000), 8
    await stage.begin()
    await stage.submit(stage.contestant.job(job_name(number), pods, FOR_LONG) for number in range(jobs))
    await stage.until(stage.contestant.path(stage.namespace), jobs, runs)
    await stage.quiet()
    before = memory(stage.running.processes[0])
    operator.stop()
    since, began = position(stage.plant), time.monotonic()
    with our_operator(stage.plant) as fresh:
        ready = time.monotonic() - began
        await _all_looked_at(fresh, jobs)
        quiet = time.monotonic() - began
        process = psutil.Process(fresh.program.process.pid)
        used = cpu_seconds(process)
        await asyncio.sleep(AFTERWARDS_SECONDS)
        used = cpu_seconds(process) - used
        after = memory(process)
    mine = stage.contestant.users
    written = [event for event in writes(stage.plant, since) if event["user"]["username"] in mine]
    return {
        **{f"{kind} MiB, live jobs": mib for kind, mib in before.items()},
        **{f"{kind} MiB, started among them": mib for kind, mib in after.items()},
        "start: ready after s": ready,
        "start: quiet after s": quiet,
        "start: writes": sum(event["objectRef"]["resource"] not in NOT_KEPT for event in written),
        "at rest: share of a core": used / AFTERWARDS_SECONDS,
    }


async def many(stage: Stage) -> Figures:
    """Measures an operator that starts with 10,000 jobs in 20 namespaces, a tenth of which are running."""
    operator = stage.running.operator
    assert operator is not None
    jobs, namespaces = (60, 3) if stage.quick else (10_000, 20)
    await stage.begin()
    for _ in range(namespaces):
        path = stage.contestant.path(stage.plant.new_namespace())
        some = (_one_of_many(stage, number) for number in range(jobs // namespaces))
        await stage.client.create_all(path, some)
        await stage.until(path, jobs // namespaces // A_TENTH, runs)
    await stage.quiet()
    operator.stop()
    began = time.monotonic()
    with our_operator(stage.plant) as fresh:
        await _all_looked_at(fresh, jobs)
        quiet = time.monotonic() - began
        process = psutil.Process(fresh.program.process.pid)
        settling, measured = QUICK_AT_REST if stage.quick else AT_REST
        await asyncio.sleep(settling)
        used = cpu_seconds(process)
        await asyncio.sleep(measured)
        used = cpu_seconds(process) - used
        return {
            "jobs": jobs,
            "start: quiet after s": quiet,
            "RSS MiB": memory(process)["RSS"],
            "most MiB": most_memory(process),
            "at rest: share of a core": used / measured,
        }


A_TENTH = 10
AT_REST = 120.0, 300.0
"""Seconds to settle and to measure. At first, supervisors that do not answer are queried more often. The measured
time covers a whole resync period."""
QUICK_AT_REST = 1.0, 5.0


def _one_of_many(stage: Stage, number: int) -> Manifest:
    """A job of one pod. Every tenth job runs; the others are suspended."""
    job = stage.contestant.job(job_name(number), 1, FOR_LONG)
    job["spec"]["suspend"] = number % A_TENTH != 0
    return job


async def resting(stage: Stage) -> Figures:
    """Measures the peak and resting memory of an operator that starts with suspended jobs of large templates."""
    operator = stage.running.operator
    assert operator is not None
    await stage.begin()
    operator.stop()
    figures, made = Figures(), 0
    for how_many, jobs in (QUICK_RESTING if stage.quick else RESTING).items():
        await stage.submit(large_job(number) for number in range(made, jobs))
        made = jobs
        with our_operator(stage.plant) as fresh:
            await _all_looked_at(fresh, jobs)
            await asyncio.sleep(AFTERWARDS_SECONDS)
            process = psutil.Process(fresh.program.process.pid)
            figures |= {
                f"most MiB, {how_many}": most_memory(process),
                f"RSS MiB, {how_many}": memory(process)["RSS"],
            }
    return figures


RESTING = {"few": 300, "many": 1000}
QUICK_RESTING = {"few": 6, "many": 20}


def large_job(number: int) -> Manifest:
    """A suspended job of 91 KiB. Most of it is its trainer's environment variables."""
    job = a_job(job_name(number), suspend=True)
    [trainer] = job["spec"]["template"]["spec"]["containers"]
    trainer["env"] = [
        {"name": f"SETTING_{one}", "value": f"{one} of {number}".ljust(330, "x")} for one in range(LARGE_VARIABLES)
    ]
    return job


LARGE_VARIABLES = 250


async def _all_looked_at(operator: Operator, jobs: int) -> None:
    """Waits until the operator has reconciled each job since its start, and its queue is empty."""
    async with asyncio.timeout(LONGEST_SECONDS):
        while operator.metric(LOOKS) < jobs or operator.metric("ddpjob_workqueue_depth") > 0:  # noqa: ASYNC110  Another process.
            await asyncio.sleep(0.1)


def runs(job: Manifest) -> bool:
    """Whether the job's state is Running, which means that all of its pods are running."""
    return bool(job.get("status", {}).get("state") == "Running")


async def big(stage: Stage) -> Figures:
    """Measures one job of 1,000 pods, each on its own node: its creation, its restart after a failure, and its size.

    For comparison, a client that does nothing else creates, deletes and recreates the same pods.
    """
    count = _big_count(stage.quick)
    pod = await a_pod(stage)
    pod["metadata"]["annotations"] |= FOR_LONG
    await stage.begin()
    life = await _comes_up(stage, count)
    job = await stage.client.get(f"{stage.contestant.path(stage.namespace)}/{job_name(0)}")
    created, writes = max(life.created) - life.submitted, life.others
    restarted = await _restarts(stage, life)
    by_hand, again = await _by_hand(stage, pod, count)
    recreated = max(restarted.created) - restarted.report
    return {
        "pods": count,
        "created s": created,
        "created by hand s": by_hand,
        "created, share of the speed by hand": by_hand / created,
        "recreated s": recreated,
        "recreated by hand s": again,
        "recreated, share of the speed by hand": again / recreated,
        "writes until it runs": writes,
        "statuses": sum(one.writes["patch ddpjobs/status"] for one in (life, restarted)),
        "object KB": len(json.dumps(job, separators=(",", ":"))) / 1000,
    }


async def _comes_up(stage: Stage, count: int) -> Life:
    """Submits a job of `count` pods that restarts without backoff. Returns its life until it runs."""
    job = stage.contestant.job(job_name(0), count, FOR_LONG)
    job["spec"]["restart"] = {"backoffSeconds": 0}
    await stage.submit([job])
    await stage.until(stage.contestant.path(stage.namespace), 1, runs)
    await stage.quiet()
    return stage.lives()[job_name(0)]


async def _restarts(stage: Stage, life: Life) -> Life:
    """Makes the pod of the job's node 0 fail. Returns the job's life from then until it runs again."""
    failed = next(name for name in life.played if name.startswith(f"{job_name(0)}-0-"))
    stage.since = position(stage.plant)
    await stage.client.merge(f"{stage.pods}/{failed}", FAILS_NOW)
    jobs = stage.contestant.path(stage.namespace)
    await stage.until(jobs, 1, lambda job: runs(job) and job["status"]["attempt"] == 2)
    await stage.quiet()
    return stage.lives()[job_name(0)]


async def largest(stage: Stage) -> Figures:
    """Measures memory, and how long callbacks block the event loop, as the largest job starts and restarts."""
    operator = stage.running.operator
    assert operator
    await stage.begin()
    operator.stop()
    count = _big_count(stage.quick) if stage.quick else MAX_NODES
    with our_operator(stage.plant, {"PYTHONPATH": str(TIMED)}) as timed:
        process = psutil.Process(timed.program.process.pid)
        stage.running = Running((process,), timed)
        life = await _comes_up(stage, count)
        used = cpu_seconds(process)
        restarted = await _restarts(stage, life)
        return {
            "pods": count,
            "created s": max(life.created) - life.submitted,
            "recreated s": max(restarted.created) - restarted.report,
            "loop stood still ms": 1000 * max(map(float, STOOD_STILL.findall(timed.log))),
            "most MiB": most_memory(process),
            "CPU s, recreated": cpu_seconds(process) - used,
        }


TIMED = Path(__file__).with_name("timed")
"""A folder. If it is on the path of a Python process, that process measures its event loop."""
STOOD_STILL = re.compile(r"the loop stood still for ([\d.]+) s")


async def fairness(stage: Stage) -> Figures:
    """Creates the largest job, first alone, then while jobs of 4 pods are submitted one after the other."""
    pods = 200 if stage.quick else MAX_NODES
    alone, _ = await _made_beside(stage, pods, math.inf)
    beside, created = await _made_beside(stage, pods, PACE_SECONDS)
    return {
        "pods": pods,
        "alone pods/s": alone,
        "beside small jobs pods/s": beside,
        "small jobs": len(created),
        "created p50 ms": 1000 * quantile(created, 0.5),
        "created p99 ms": 1000 * quantile(created, 0.99),
    }


async def _made_beside(stage: Stage, pods: int, pace: float) -> tuple[float, list[float]]:
    """Creates a large job and, every `pace` seconds meanwhile, submits a small job.

    Returns the pods per second of the large job, and the seconds until all pods of each small job were created.
    """
    await stage.begin()
    jobs = stage.contestant.path(stage.namespace)
    await stage.submit([stage.contestant.job(job_name(0), pods, FOR_LONG)])
    whole = asyncio.create_task(stage.until(jobs, 1, has_all_pods))
    small = 0
    while not (await asyncio.wait((whole,), timeout=min(pace, LONGEST_SECONDS)))[0]:
        small += 1
        await stage.submit([stage.contestant.job(job_name(small), 4, {})])
    await whole
    await stage.until_done(small)
    await stage.quiet()
    lives = stage.lives()
    large = lives.pop(job_name(0))
    made = sorted(large.created)
    meanwhile = [max(life.created) - life.submitted for life in lives.values() if life.submitted < made[-1]]
    await stage.client.delete_all(jobs, [job_name(0), *lives])
    await stage.client.until_gone(stage.pods, LONGEST_SECONDS)
    return len(made) / (made[-1] - large.submitted), meanwhile


def has_all_pods(job: Manifest) -> bool:
    """Whether this is the large job, and all of its pods have been created."""
    conditions = job.get("status", {}).get("conditions", ())
    return job["metadata"]["name"] == job_name(0) and any(
        (one["type"], one["status"]) == (ConditionType.CREATED, "True") for one in conditions
    )


def _big_count(quick: bool) -> int:  # noqa: FBT001  This is the only parameter.
    return 50 if quick else 1000


async def _by_hand(stage: Stage, pod: Manifest, count: int) -> tuple[float, float]:
    """Returns the seconds to create `count` pods by hand, and the seconds to delete and recreate all of them."""
    await stage.client.delete(f"{stage.contestant.path(stage.namespace)}/{job_name(0)}")
    await stage.client.until_gone(stage.pods, LONGEST_SECONDS)
    await stage.begin()
    await make_pods(stage, pod, count)
    made = _made(stage)
    await stage.until_phase("Running", count)
    began, stage.since = time.time(), position(stage.plant)
    await stage.client.delete_all(stage.pods, (f"{CEILING}-{number}" for number in range(count)))
    await stage.client.until_gone(stage.pods, LONGEST_SECONDS)
    await make_pods(stage, pod, count)
    return made[-1] - made[0], _made(stage)[-1] - began


def churn(minutes: float) -> Callable[[Stage], Awaitable[Figures]]:
    """A scenario that creates, runs and deletes batches of jobs, to see whether the operator's memory grows."""

    async def measure(stage: Stage) -> Figures:
        process, samples = stage.running.processes[0], list[tuple[float, float]]()
        await stage.begin()
        began = time.monotonic()
        while time.monotonic() - began < (10 if stage.quick else 60 * minutes):
            first = len(samples) * BATCH % 10_000
            names = [job_name(number) for number in range(first, first + BATCH)]
            await stage.submit(stage.contestant.job(name, 4, {}) for name in names)
            await stage.until_done(BATCH)
            await stage.client.delete_all(stage.contestant.path(stage.namespace), names)
            await stage.client.until_gone(stage.pods, LONGEST_SECONDS)
            samples.append(((len(samples) + 1) * BATCH / 1000, memory(process)["anonymous"]))
        settled = samples[len(samples) // 3 :]
        slope = statistics.linear_regression(*zip(*settled, strict=True)).slope if len(settled) > 1 else 0.0
        return {
            "anonymous MiB per 1,000 jobs": slope,
            "anonymous MiB at the end": samples[-1][1],
            "jobs": len(samples) * BATCH,
            "minutes": (time.monotonic() - began) / 60,
        }

    return measure


BATCH = 20


def scenarios(churn_minutes: float) -> dict[str, Scenario]:
    """All scenarios by name, in an order in which none disturbs the next."""
    return {
        CEILING: Scenario("pods made by a client that does nothing else", ceiling, ours_only=True, alone=True),
        "shares": Scenario(
            f"{PAIRS} times a few jobs beside the same pods made by a client",
            shares,
            ours_only=True,
            alone=True,
            once=True,
        ),
        "idle": Scenario("one job of 8 pods after the other", idle),
        "burst": Scenario("100 jobs of 4 pods at once", burst(100, 10)),
        "burst500": Scenario("500 jobs of 4 pods at once", burst(500, 20)),
        "live": Scenario("1,000 running jobs of 8 pods", live, ours_only=True, nodes=12, alone=True, once=True),
        "many": Scenario("10,000 jobs in 20 namespaces", many, ours_only=True, nodes=12, alone=True, once=True),
        "progress": Scenario("jobs that report progress", progress, ours_only=True, alone=True, once=True),
        "memory": Scenario("suspended jobs of 91 KiB", resting, ours_only=True, alone=True, once=True),
        "big": Scenario("one job of 1,000 pods", big, ours_only=True, nodes=1002, node_grace_seconds=600, alone=True),
        "largest": Scenario(
            "one job of 4,096 pods", largest, ours_only=True, nodes=64, node_grace_seconds=600, alone=True, once=True
        ),
        "fairness": Scenario(
            "small jobs beside one that is being made", fairness, ours_only=True, alone=True, once=True
        ),
        "churn": Scenario("jobs that come and go", churn(churn_minutes), ours_only=True, alone=True, once=True),
    }
