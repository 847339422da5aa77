"""A hundred jobs at once, and what they cost. Times are printed, not asserted: the machine may be busy."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from statistics import quantiles
from typing import Any

import psutil
from ddpjob_operator.api.contract import Label

from tests.plant import Plant

from .jobs import Team, a_job
from .operators import an_operator

JOBS, NODES = 100, 4
WRITES_PER_JOB = NODES + 5
"""Pods, the Service and status, and one more for every ten seconds; events and deletions are counted apart."""


@dataclass
class Cost:
    """What the audit log tells of one job."""

    submitted: datetime | None = None
    created: list[datetime] = field(default_factory=list)
    last: datetime | None = None
    writes: Counter[str] = field(default_factory=Counter)


def costs(plant: Plant, namespace: str) -> dict[str, Cost]:
    """The cost of each job in a namespace, by its name."""
    found: defaultdict[str, Cost] = defaultdict(Cost)
    for line in plant.audit_log.read_text().splitlines():
        event = json.loads(line)
        target = event.get("objectRef", {})
        if target.get("namespace") == namespace and event["verb"] in {"create", "patch", "delete"}:
            _count(found, event, target)
    return found


def _count(found: dict[str, Cost], event: dict[str, Any], target: dict[str, Any]) -> None:
    time = datetime.fromisoformat(event["stageTimestamp"])
    ours = event["userAgent"].startswith("ddpjob-operator/")
    name, kind = target.get("name", ""), target["resource"]
    if kind == "ddpjobs" and event["verb"] == "create":
        found[name].submitted = time
    elif ours and kind in {"pods", "events"}:
        job = name.split(".")[0] if kind == "events" else name.rsplit("-", 2)[0]
        found[job].writes[kind] += 1
        if kind == "pods":
            found[job].created.append(time)
    elif ours:
        found[name].writes[kind] += 1
        found[name].last = time


def seconds(values: list[float]) -> str:
    """Median and 99th percentile."""
    cuts = quantiles(values, n=100, method="inclusive")
    return f"p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s"


def test_a_hundred_jobs_finish_with_few_requests(fake: Plant) -> None:
    team = Team(fake)
    with an_operator(fake, f"--namespace={team.namespace}", "--no-leader-elect") as operator:
        process = psutil.Process(operator.program.process.pid)
        before = process.cpu_times()
        documents = [a_job(f"digits-{number}", nodes=NODES) for number in range(JOBS)]
        team.kubectl("create", "-f", "-", input="\n---\n".join(json.dumps(document) for document in documents))
        team.kubectl("wait", "--for=condition=Succeeded", "ddpjobs", "--all", "--timeout=300s")
        pods = fake.get(f"/api/v1/namespaces/{team.namespace}/pods")["items"]
        places = Counter(
            (pod["metadata"]["labels"][Label.JOB_NAME], pod["metadata"]["labels"][Label.RANK]) for pod in pods
        )
        assert places == {(f"digits-{job}", str(rank)): 1 for job in range(JOBS) for rank in range(NODES)}
        fake.wait(
            "all events",
            lambda: (
                operator.metric('ddpjob_api_requests_total{code="201",method="POST",resource="events"}') >= JOBS * 3
            ),
        )
        after = process.cpu_times()
        _print_figures(costs(fake, team.namespace), after.user + after.system - before.user - before.system)
        print(f"memory {process.memory_info().rss / 2**20:.0f} MiB")
        for name, cost in costs(fake, team.namespace).items():
            events = cost.writes.pop("events")
            assert events <= 3, (name, events)
            assert cost.last is not None
            assert cost.submitted is not None
            tens = (cost.last - cost.submitted).total_seconds() // 10
            assert sum(cost.writes.values()) <= WRITES_PER_JOB + tens, (name, cost.writes)


def _print_figures(found: dict[str, Cost], cpu: float) -> None:
    assert len(found) == JOBS
    created = [(max(cost.created) - cost.submitted).total_seconds() for cost in found.values() if cost.submitted]
    total = sum((cost.writes for cost in found.values()), Counter())
    print(f"{JOBS} jobs of {NODES} pods: all pods created {seconds(created)} after submit")
    print(f"writes per job: {', '.join(f'{kind} {count / JOBS:.2f}' for kind, count in sorted(total.items()))}")
    print(f"operator CPU per job {cpu / JOBS * 1000:.1f} ms")
