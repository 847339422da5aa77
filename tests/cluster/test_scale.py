"""Fifty jobs at once, and what they cost; a small one beside a large one.

How fast they are is the bench's matter: the machine may be busy.
"""

import json
from collections import Counter

import psutil
from ddpjob_operator.api.contract import Label

from bench.operator.audit import job_name, lives
from bench.operator.contestants import SERVER
from bench.operator.stage import cpu_seconds
from tests.plant import Plant
from tests.plant.api import ADMINS
from tests.plant.audit import kind, position, requests
from tests.support.jobs import Team, a_job
from tests.support.waiting import wait_for

JOBS, NODES, EVENTS = 50, 4, 3
"""Of events the most: that its pods are there, that they run, if that takes longer, and that it is done."""
WRITES = NODES + 7
"""Pods, Service, Secret, NetworkPolicy, three statuses and the mark; not events and deletions."""
READS = 20
"""Whatever the number of jobs: it has watches."""
MOST = 0.4
"""Of the CPU time of the API server for the same jobs, the operator's: both mind alike how busy the machine is."""
USER = "operator-of-many"
LARGE = 400


def test_fifty_jobs_finish_with_few_requests(unattended: Plant) -> None:
    team = Team(unattended)
    config = unattended.kubeconfig_for(USER, ADMINS)
    with team.operator(kubeconfig=config) as operator:
        server = unattended.programs.running[SERVER]
        programs = [psutil.Process(one.process.pid) for one in (operator.program, server)]
        since, before = position(unattended), [cpu_seconds(program) for program in programs]
        documents = [a_job(job_name(number), nodes=NODES) for number in range(JOBS)]
        team.kubectl("create", "-f", "-", input="\n---\n".join(json.dumps(document) for document in documents))
        team.kubectl("wait", "--for=condition=Complete", "ddpjobs", "--all", "--timeout=300s")
        labels = [
            pod["metadata"]["labels"] for pod in unattended.get(f"/api/v1/namespaces/{team.namespace}/pods")["items"]
        ]
        places = Counter((label[Label.JOB_NAME], int(label[Label.NODE])) for label in labels)
        assert places == {(job_name(job), rank): 1 for job in range(JOBS) for rank in range(NODES)}
        events = f"/api/v1/namespaces/{team.namespace}/events?fieldSelector=reason=Complete"
        unattended.wait("the last event of each", lambda: len(unattended.get(events)["items"]) == JOBS)
        own, servers = (cpu_seconds(program) - used for program, used in zip(programs, before, strict=True))
    asked = (event for event in requests(unattended, since) if event["user"]["username"] == USER)
    reads = Counter(f"{event['verb']} {kind(event)}" for event in asked if event["verb"] in {"get", "list"})
    assert reads.total() <= READS, reads
    assert own <= MOST * servers, (own, servers)
    found = lives(unattended, since, team.namespace, "ddpjobs", frozenset({USER}))
    assert len(found) == JOBS
    for name, life in found.items():
        assert life.events <= EVENTS, (name, life.writes)
        counted = (
            life.said - life.submitted + 7
        ) // 10  # Statuses that only count pods: after 3 s, and each 10 s then.
        assert life.others <= WRITES + counted, (name, life.writes)


def test_a_small_job_is_made_while_a_large_one_is(team: Team) -> None:
    def pods(name: str) -> int:
        return len(team.all("pods", f"{Label.JOB_NAME}={name}"))

    def submit(name: str, nodes: int) -> None:
        job = a_job(name, nodes=nodes)
        job["spec"]["template"]["spec"]["schedulerName"] = "nobody"  # That the pods are there is all of it.
        team.create(job)

    submit("large", LARGE)
    wait_for("some pods of the large job", lambda: pods("large"))
    submit("small", NODES)
    wait_for("all pods of the small job", lambda: pods("small") == NODES)
    assert pods("large") < LARGE, "the small one waited for the large one"
