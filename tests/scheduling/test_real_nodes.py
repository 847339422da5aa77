"""Trainings that share two real nodes: none holds half of them, and one that makes room loses only time.

And one whose ranks follow placement, as its pods learn of it from the kubelet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob_operator.api.contract import PRIORITY_LABEL, QUEUE_LABEL
from ddpjob_supervisor.gang.ring import order_of

from tests.e2e.release import STRICT, install, wait_for_admission
from tests.e2e.work import CODE_MOUNT, LONG, PLAIN_SCRIPT, a_training, logs, saves, with_script
from tests.plant.images import OPERATOR, TRAINER
from tests.plant.kueue import start_kueue
from tests.plant.needs import demand
from tests.plant.real import RealPlant, start_real
from tests.support.jobs import Team
from tests.support.kueue import CLUSTER_QUEUE, QUEUE, create_cluster_queue, of_kueue
from tests.training.states import state, tensors

pytestmark = [
    pytest.mark.full("test_gangs.py and test_kueue.py, whose nodes only say that they run pods"),
    pytest.mark.timeout(1500),
]

LET_GO = "let-go"
"""A file in a training's folder: until it is there, each step takes a second."""

TASK = f"""
import time
from pathlib import Path

from ddpjob_examples.convnet import ConvNetTask
from torch import nn


class Held(ConvNetTask):
    def model(self):
        return nn.Sequential(nn.Dropout(0.1), super().model())  # The random generators count as well.

    def loss(self, output, target):
        if not Path("/checkpoints/{LET_GO}").exists():
            time.sleep(1)
        return super().loss(output, target)
"""
EPOCHS = 5
STEPS = EPOCHS * 22
"""More seconds than it takes to preempt a training."""


@dataclass(frozen=True)
class Sharing:
    """Who decides which of two jobs runs, and how one sees it.

    labels         of a job
    high           labels and fields of the pods of a job that comes before others
    waits          a part of what a job says that has to wait
    state, pods    of a job that has never run: no node is taken by its pods, if it has any
    made_room      the state of one that has run before
    disruptions    what making room costs it
    """

    waits: str
    state: str
    pods: int
    made_room: str
    disruptions: int
    labels: dict[str, str]
    high: dict[str, dict[str, str]]


SCHEDULER = Sharing(
    waits="0 of 2 pods running; no room for the gang yet: Unschedulable: ",
    state="Starting",
    pods=2,
    made_room="Restarting",
    disruptions=1,
    labels={},
    high={"pod": {"priorityClassName": "high"}},
)
KUEUE = Sharing(
    waits="insufficient unused quota for cpu",
    state="Queued",
    pods=0,
    made_room="Queued",
    disruptions=0,
    labels={QUEUE_LABEL: QUEUE, PRIORITY_LABEL: "low"},
    high={"labels": {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: "high"}},
)
BOTH = pytest.mark.parametrize(
    "sharing", [pytest.param(SCHEDULER, id="the scheduler"), pytest.param(KUEUE, id="Kueue")]
)


@dataclass(frozen=True)
class Training:
    """A job that needs most of both nodes, is slow until it is let go, and saves when it is told to stop."""

    team: Team
    name: str
    shared: Path

    def start(self, labels: dict[str, str], pod: dict[str, Any] | None = None) -> None:
        """Applies it; all of these jobs are the same training."""
        self.shared.mkdir()
        self.shared.chmod(0o777)
        job = a_training(
            self.name,
            {
                "command": ["ddpjob-train"],
                "args": ["--workload=train:Held", f"--epochs={EPOCHS}", "--log-every=1"],
                "workingDir": "/code",
                "resources": {"requests": {"cpu": f"{most_of_a_node(self.team)}m"}},
                **CODE_MOUNT,
            },
            checkpoint={
                "path": "/checkpoints",
                "everySteps": 1_000_000_000,
                "keep": 1000,
                "volume": {"hostPath": {"path": str(self.shared)}},
            },
            pod={**with_script(self.team, TASK), **(pod or {})},
        )
        job["metadata"]["labels"] = labels
        self.team.apply(job)

    def status(self) -> dict[str, Any]:
        return self.team.status(self.name)

    def trains(self) -> bool:
        """Whether it has made a step that the operator knows of."""
        return bool(self.status().get("progress", {}).get("step"))

    def says(self, words: str) -> None:
        """Waits until these are in the message of its status."""
        self.team.plant.wait(f"{self.name} to say {words!r}", lambda: words in self.status().get("message", ""))

    def placed(self) -> int:
        """How many machines it holds."""
        return sum("nodeName" in pod["spec"] for pod in self.team.pods(self.name))

    def let_go(self) -> None:
        (self.shared / LET_GO).touch()

    def ends(self) -> dict[str, Any]:
        """Lets it go; its status when it has succeeded."""
        self.let_go()
        return self.team.wait("Succeeded", self.name, LONG)

    def saved(self) -> list[int]:
        """The steps of its checkpoints."""
        return [save["step"] for save in saves(self.shared)]

    def result(self) -> dict[str, torch.Tensor]:
        """Every tensor of the last one: weights, buffers, the optimizer's and the random generators' states."""
        return tensors(state(self.shared))


def most_of_a_node(team: Team) -> int:
    """So many millicores that no node has room for two."""
    amounts = [str(node["status"]["allocatable"]["cpu"]) for node in team.plant.get("/api/v1/nodes")["items"]]
    return int(0.6 * min(int(one[:-1]) if one.endswith("m") else int(one) * 1000 for one in amounts))


@pytest.fixture(scope="module")
def real() -> Iterator[RealPlant]:
    """Two nodes, a scheduler that places gangs, Kueue with quota for one of them, and the operator from its chart."""
    demand("real")
    with start_real(STRICT, images=(OPERATOR, TRAINER), pod_groups=True) as plant:
        start_kueue(plant)
        install(plant)
        wait_for_admission(plant)
        create_cluster_queue(plant, "cpu", f"{2 * most_of_a_node(Team(plant))}m")
        plant.kubectl("create", "priorityclass", "high", "--value=1000")
        yield plant


@pytest.fixture
def team(real: RealPlant) -> Iterator[Team]:
    """A namespace with a queue, and all of both nodes."""
    team = Team(real)
    team.apply(of_kueue("LocalQueue", QUEUE, {"clusterQueue": CLUSTER_QUEUE}))
    yield team
    team.delete_all("ddpjobs")
    real.wait("the nodes to be free", lambda: not team.all("pods"))


@BOTH
def test_of_two_trainings_that_each_need_both_nodes_one_holds_nothing_until_the_other_has_finished(
    sharing: Sharing, team: Team, tmp_path: Path
) -> None:
    both = [Training(team, name, tmp_path / name) for name in ("one", "other")]
    for training in both:
        training.start(sharing.labels)
    team.plant.wait("one to train", lambda: any(training.trains() for training in both), LONG)
    first, other = sorted(both, key=Training.trains, reverse=True)
    other.says(sharing.waits)
    assert (other.status()["state"], other.placed(), len(team.pods(other.name))) == (sharing.state, 0, sharing.pods)
    first.ends()
    other.ends()
    assert [training.status()["attempt"] for training in both] == [1, 1], "neither gave anything back"
    assert [training.saved() for training in both] == [[STEPS], [STEPS]]


@BOTH
def test_a_preempted_training_saves_makes_room_waits_as_a_whole_and_ends_with_the_very_bits_of_an_undisturbed_one(
    sharing: Sharing, team: Team, tmp_path: Path
) -> None:
    low, high = (Training(team, name, tmp_path / name) for name in ("low", "high"))
    low.start(sharing.labels)
    team.plant.wait("it to train", low.trains, LONG)
    high.start(**{"labels": {}, **sharing.high})
    team.plant.wait("the other to train", high.trains, LONG)
    low.says(sharing.waits)
    assert (low.status()["state"], low.placed()) == (sharing.made_room, 0)
    [saved] = low.saved()
    assert 0 < saved < STEPS

    high.ends()
    status = low.ends()
    assert f"resumed step={saved} " in logs(team, low.name)
    assert (status["restarts"], status["disruptions"]) == (0, sharing.disruptions), status["incidents"]
    assert (low.saved(), high.saved()) == ([saved, STEPS], [STEPS])
    ours, undisturbed = low.result(), high.result()
    assert ours.keys() == undisturbed.keys()
    assert [name for name in ours if not torch.equal(ours[name], undisturbed[name])] == []


RACK = "example.com/rack"
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"ddpjob.dev/job-name": "close"}},
}
"""Of four pods two are on each node, and never the first two on one."""


def test_ranks_follow_placement_from_the_first_attempt_on(team: Team) -> None:
    for node in team.plant.get("/api/v1/nodes")["items"]:
        name = node["metadata"]["name"]
        team.plant.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {RACK: f"rack-of-{name}"}}})
    job = a_training(
        "close",
        {"command": ["ddpjob-supervise"], "args": ["/code/train.py"], **CODE_MOUNT},
        nodes=4,
        scheduling={"topology": {"preferred": RACK}},
        pod={**with_script(team, PLAIN_SCRIPT), "topologySpreadConstraints": [SPREAD]},
    )
    team.apply(job)
    status = team.wait("Succeeded", "close", LONG)
    assert status["attempt"] == 1, status
    pods = {int(pod["metadata"]["labels"]["ddpjob.dev/node"]): pod for pod in team.pods("close")}
    order = order_of({number: f"rack-of-{pod['spec']['nodeName']}" for number, pod in pods.items()})
    assert order is not None
    assert order != (0, 1, 2, 3), "or there is nothing to see"
    said = logs(team, "close")
    for rank, node in enumerate(order):
        assert f"attempt 1: node {node} has rank {rank}\n" in said
        own = team.plant.text(f"{team.path('pods', pods[node]['metadata']['name'])}/log?container=trainer")
        assert f"rank {rank} of 4 is done\n" in own, "ranks are where their supervisors say"
