"""Jobs in a queue whose operator is killed all the time: whatever was written last, the next one goes on from it."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ddpjob_operator.api.contract import PRIORITY_LABEL, QUEUE_LABEL
from ddpjob_operator.engine import KUEUE_API

from tests.plant import start_fake
from tests.plant.kueue import start_kueue
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import SAVING, Team, a_job, condition
from tests.support.kueue import CLUSTER_QUEUE, GPU, QUEUE, QUOTA, create_cluster_queue, of_kueue, workload
from tests.support.operators import an_operator

pytestmark = pytest.mark.full("tests/faults has each place of a life, and unit/engine/test_queue.py the queue")

SHORTEST, LONGEST = 0.05, 0.8
"""Seconds that an operator lives after it is ready: some make one write, some a few."""


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    """A namespace with a queue, and no operator."""
    demand("fake")
    with start_fake() as plant:
        install_crd(plant)
        start_kueue(plant)
        create_cluster_queue(plant)
        team = Team(plant)
        team.apply(of_kueue("LocalQueue", QUEUE, {"clusterQueue": CLUSTER_QUEUE}))
        yield team


@contextmanager
def dying_operators(team: Team, chance: random.Random) -> Iterator[list[float]]:
    """One operator after the other, each killed after a while that differs; at last one that lives.

    What it yields says how long each lived.
    """
    over, lived = threading.Event(), list[float]()

    def run() -> None:
        while not over.is_set():
            lives = chance.uniform(SHORTEST, LONGEST)
            with an_operator(team.plant, "--no-leader-elect", forked=True) as operator:
                over.wait(lives)
                operator.kill()
            lived.append(lives)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lived
    finally:
        over.set()
        thread.join()


def a_job_of(priority: str) -> dict[str, object]:
    job = a_job(priority, nodes=QUOTA, annotations=SAVING)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: 1}}
    job["metadata"]["labels"] = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: priority}
    return job


@pytest.mark.parametrize("seed", range(3))
def test_a_job_is_preempted_and_comes_back_though_its_operator_is_killed_again_and_again(
    team: Team, seed: int
) -> None:
    whole = f"{{.status.display.ready}}={QUOTA}/{QUOTA}"
    with dying_operators(team, random.Random(seed)) as lived:
        team.apply(a_job_of("low"))
        team.until(whole, "low", seconds=120)
        team.apply(a_job_of("high"))
        team.until(whole, "high", seconds=120)
        assert not [pod for pod in team.pods("low") if pod["status"]["phase"] == "Running"]
        team.tell(*(pod["metadata"]["name"] for pod in team.pods("high")), runs_for="0s")
        team.wait("Succeeded", "high", seconds=120)
        team.until(whole, "low", seconds=120)
        team.tell(*(pod["metadata"]["name"] for pod in team.pods("low")), runs_for="0s")
        team.wait("Succeeded", "low", seconds=120)
    with an_operator(team.plant, "--no-leader-elect", forked=True):
        for name in ("low", "high"):
            told = lambda name=name: _finished(team, name)  # noqa: E731
            team.plant.wait(f"the queue to be told of the end of {name}", told)
        low, high = team.status("low"), team.status("high")
        assert (low["attempt"], high["attempt"]) == (2, 1), (seed, lived)
        assert [status[field] for status in (low, high) for field in ("restarts", "disruptions")] == [0] * 4
        free = lambda: _used(team) == 0  # noqa: E731
        team.plant.wait("the quota to be free", free)
        assert len(lived) >= 3, "operators that were killed"
        team.delete_all("ddpjobs")


def _finished(team: Team, name: str) -> bool:
    said = workload(team, name).get("status", {})
    return any(one["type"] == "Finished" for one in said["conditions"]) and (
        condition(said, "Finished")["reason"] == "Succeeded"
    )


def _used(team: Team) -> int:
    status = team.plant.get(f"/apis/{KUEUE_API}/clusterqueues/{CLUSTER_QUEUE}").get("status")
    return int(status["flavorsReservation"][0]["resources"][0]["total"]) if status else 0
