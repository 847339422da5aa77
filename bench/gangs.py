"""Measures how soon many gangs, which together need far more nodes than exist, have all run.

Compares several ways to share the nodes. The figures are printed and written into docs/how-to/share-a-cluster.md.
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ddpjob_operator.api.contract import QUEUE_LABEL, Label

from bench.table import SHARING, circumstances
from tests import pages
from tests.plant import Plant, start_fake
from tests.plant.kueue import start_kueue
from tests.support.crd import install_crd
from tests.support.jobs import FOR_LONG, WHOLE_NODES, Team, a_job, on_whole_nodes
from tests.support.kueue import CLUSTER_QUEUE, GPU, QUEUE, create_cluster_queue, of_kueue
from tests.support.operators import an_operator

NODES = 7
"""How many nodes there are. Each has room for one pod."""
GANGS = 20
SIZES = range(2, 7)
RUN_SECONDS = 5.0
"""How long each gang runs after all of its pods are running."""
LONGEST_SECONDS = 1200.0
"""The limit for a whole run. Gangs that have not run by then are reported."""
LOOK_SECONDS = 0.2
WITHOUT_GIVING_WAY = """\
from ddpjob_operator.cluster.entry import main
from ddpjob_operator.cluster.line import WaitingLines

WaitingLines.ahead = lambda *_: None
main()
"""
COLUMNS = ("", "All had run after", "Nodes held in vain", "Pods created", "Attempts given up")


@contextmanager
def giving_way(plant: Plant) -> Iterator[None]:
    """Runs the operator unchanged."""
    with an_operator(plant, "--no-leader-elect"):
        yield


@contextmanager
def holding_on(plant: Plant) -> Iterator[None]:
    """Runs the operator with a patch, so that jobs do not give way to jobs that came before them."""
    environment = ("env", f"KUBECONFIG={plant.kubeconfig}", sys.executable, "-c", WITHOUT_GIVING_WAY)
    program = plant.programs.start(
        "operator", *environment, *["--port=0", "--probe-port=0", "--log-format=text", "--no-leader-elect"]
    )
    try:
        yield
    finally:
        plant.programs.running.pop(program.name)
        program.kill()


@contextmanager
def with_kueue(plant: Plant) -> Iterator[None]:
    """Runs the operator and Kueue, which has a queue whose quota covers all nodes."""
    start_kueue(plant)
    create_cluster_queue(plant, quota=NODES * WHOLE_NODES["limits"][GPU])
    with an_operator(plant, "--no-leader-elect"):
        yield


@dataclass(frozen=True)
class Way:
    """A way in which gangs share the nodes."""

    title: str
    runs: Callable[[Plant], AbstractContextManager[None]] = giving_way
    """Runs the controllers of the plant's jobs."""
    pod_groups: bool = False
    """Whether the scheduler places gangs as a whole."""
    queued: bool = False
    """Whether the jobs are in Kueue's queue."""
    once: bool = False
    """Whether only one seed is measured, because a run takes long."""


WAYS = {
    "timeout": Way("They hold what they found for `scheduleTimeoutSeconds` (600)", holding_on, once=True),
    "giving-way": Way("They give way to each other"),
    "pod-groups": Way("The scheduler places whole gangs", pod_groups=True),
    "kueue": Way("Kueue admits whole gangs", with_kueue, queued=True),
}


@dataclass
class Outcome:
    """The result of a run."""

    sizes: dict[str, int]
    """How many pods each gang has, by the gang's name."""
    ran: dict[str, float] = field(default_factory=dict)
    """The seconds until all pods of a gang ran, by the gang's name."""
    done: set[str] = field(default_factory=set)
    """The names of the gangs that have run for RUN_SECONDS."""
    pods: set[str] = field(default_factory=set)
    """The uids of all pods that were created."""
    seconds: float = 0.0
    """The seconds since the gangs were submitted."""
    held: float = 0.0
    """For how many node-seconds nodes were held by gangs that were not complete."""
    attempts: int = 0

    @property
    def cells(self) -> tuple[str, ...]:
        """The last three cells of a row of the table."""
        given_up = str(self.attempts - len(self.sizes))
        return f"{self.held:.0f} node-seconds", str(len(self.pods)), given_up

    @property
    def took(self) -> str:
        """The time until all gangs had run, as text. If some have not, how many had run at the end."""
        after = f"{self.seconds:.0f} s"
        done, gangs = len(self.done), len(self.sizes)
        return after if done == gangs else f"{done} of {gangs} had run after {after}"


def play(way: Way, gangs: int, seed: int) -> Outcome:
    """Submits all gangs at the same time. Lets each run for RUN_SECONDS after all of its pods are running."""
    sizes = random.Random(seed).choices(SIZES, k=gangs)
    with start_fake(nodes=NODES, pod_groups=way.pod_groups) as plant:
        install_crd(plant)
        with way.runs(plant):
            team = Team(plant)
            if way.queued:
                team.apply(of_kueue("LocalQueue", QUEUE, {"clusterQueue": CLUSTER_QUEUE}))
            jobs = [_a_gang(number, size, queued=way.queued) for number, size in enumerate(sizes)]
            return _watch(team, jobs)


def _a_gang(number: int, size: int, *, queued: bool) -> dict[str, Any]:
    job = on_whole_nodes(a_job(f"gang-{number}", nodes=size, annotations=FOR_LONG))
    job["metadata"]["labels"] = {QUEUE_LABEL: QUEUE} if queued else {}
    return job


def _watch(team: Team, jobs: list[dict[str, Any]]) -> Outcome:
    outcome = Outcome({job["metadata"]["name"]: job["spec"]["nodes"] for job in jobs})
    began = time.monotonic()
    team.apply(*jobs)
    while len(outcome.done) < len(jobs) and outcome.seconds < LONGEST_SECONDS:
        time.sleep(LOOK_SECONDS)
        team.plant.programs.check()
        statuses = {job["metadata"]["name"]: job.get("status", {}) for job in team.all("ddpjobs")}
        pods = team.all("pods")
        now = time.monotonic() - began
        outcome.pods.update(pod["metadata"]["uid"] for pod in pods)
        outcome.held += _held(outcome, pods) * (now - outcome.seconds)
        outcome.seconds = now
        for name, status in statuses.items():
            if status.get("state") == "Running":
                _let_run(team, outcome, name)
    outcome.attempts = sum(status.get("attempt", 0) for status in statuses.values())
    return outcome


def _held(outcome: Outcome, pods: Sequence[dict[str, Any]]) -> int:
    """How many nodes are held by gangs that are not complete."""
    placed = Counter(pod["metadata"]["labels"][Label.JOB_NAME] for pod in pods if "nodeName" in pod["spec"])
    return sum(nodes for name, nodes in placed.items() if name not in outcome.ran and nodes < outcome.sizes[name])


def _let_run(team: Team, outcome: Outcome, name: str) -> None:
    since = outcome.ran.setdefault(name, outcome.seconds)
    if name not in outcome.done and outcome.seconds - since >= RUN_SECONDS:
        team.tell(*(pod["metadata"]["name"] for pod in team.pods(name)), runs_for="0s")
        outcome.done.add(name)


def measure(way: Way, gangs: int, seeds: Sequence[int]) -> str:
    """A row of the table: the time with each seed, and the other cells from the seed with the median time."""
    outcomes = sorted((play(way, gangs, seed) for seed in seeds), key=lambda outcome: outcome.seconds)
    took = ", ".join(outcome.took for outcome in outcomes)
    return f"| {' | '.join((way.title, took, *outcomes[len(outcomes) // 2].cells))} |"


def main() -> None:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2, 3], help="for the sizes of gangs (default 1 2 3)"
    )
    parser.add_argument("--only", nargs="+", choices=WAYS, default=[*WAYS], help="what to measure; nothing is kept")
    parser.add_argument("--quick", action="store_true", help="a few gangs, to see that it works; nothing is kept")
    flags = parser.parse_args()
    load, rows = os.getloadavg()[0], []
    for name in flags.only:
        way = WAYS[name]
        seeds = flags.seeds[:1] if flags.quick or way.once else flags.seeds
        rows.append(measure(way, 4 if flags.quick else GANGS, seeds))
        print(rows[-1], flush=True)
    if flags.quick or flags.only != [*WAYS]:
        return
    how = f"{len(flags.seeds)} times with other sizes each, the last columns at the middle one; the first row once"
    table = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}", *rows]
    pages.write(SHARING.path, *SHARING.parts, [circumstances(load, how), "", *table])


if __name__ == "__main__":
    main()
