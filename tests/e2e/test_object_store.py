"""A script with `ddpjob.Training` on nodes that share no volume: its checkpoints are in an object store."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from ddpjob_operator.api.contract import CHECKPOINT_REQUEST

from tests.plant.machines import Machines
from tests.support import s3_server
from tests.support.api_client import ApiError
from tests.support.jobs import Team
from tests.support.s3_server import Proxy, Trouble

from .faults import TOLERANT, all_nodes_again, pod_of
from .figures import note
from .noting import SOON
from .work import CODE_MOUNT, LONG, a_training, ddpjob, logs_of_pods, with_script

pytestmark = pytest.mark.full("tests/training/ has it with processes; here are pods and nodes that share nothing")

BUCKET = "checkpoints"
AWAY_SECONDS = 60
REQUESTS, COMMANDS = 10, 3
NEVER = 1_000_000_000

SCRIPT = """
import os, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ddpjob

SAMPLES = 240


class Seen(list):
    def state_dict(self):
        return {"ids": [*self]}

    def load_state_dict(self, state):
        self[:] = state["ids"]


dist.init_process_group("gloo")
data = TensorDataset(torch.arange(SAMPLES))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.AdamW(model.parameters())
seen = Seen()
training = ddpjob.Training(
    model=model, optimizer=optimizer, seen=seen, loader=loader, directory=os.environ["STORE"],
    **{os.environ["EVERY"]: int(os.environ["NUMBER"])},
)
print("attempt", os.environ["DDPJOB_ATTEMPT"], "resumed", training.global_step, flush=True)
steps = {int(state["step"]) for state in optimizer.state.values()} or {0}
assert steps == {training.global_step}, f"a mixed state: {steps}, {training.global_step}"
for epoch in training.epochs(1_000_000):
    for (ids,) in training.batches():
        loss = model(ids[:, None] / SAMPLES).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        of_all = [torch.empty_like(ids) for _ in range(dist.get_world_size())]
        dist.all_gather(of_all, ids)
        seen += torch.cat(of_all).tolist()
        training.step(loss)
        time.sleep(0.02)
    assert sorted(seen) == [*range(SAMPLES)], f"a sample was lost, or seen twice: {seen}"
    seen.clear()
    print("whole epoch", epoch, flush=True)
"""
"""Saves with its state which samples all ranks have seen in the epoch."""


@dataclass
class Stored:
    """The job `digits` of a team, which saves to an object store."""

    team: Team
    proxy: Proxy

    def start(self, host: str, **every: int) -> None:
        [(how, number)] = every.items()
        variables = {
            **s3_server.environment(self.proxy.port, host),
            "STORE": f"s3://{BUCKET}/{self.team.namespace}",
            "EVERY": how,
            "NUMBER": str(number),
            "OMP_NUM_THREADS": "1",
        }
        env = [{"name": name, "value": value} for name, value in variables.items()]
        container = {"command": ["ddpjob-supervise", "/code/train.py"], "env": env, **CODE_MOUNT}
        pod = {**with_script(self.team, SCRIPT), "tolerations": TOLERANT}
        self.team.apply(a_training("digits", container, pod=pod, restart={"backoffSeconds": 0}))
        self.team.wait("Running", seconds=LONG)

    def saved(self) -> int:
        """The step of the last checkpoint, as the job's status has it."""
        return int(self.team.status().get("checkpoint", {}).get("step", 0))

    def saves_again(self, times: int = 2) -> None:
        """Waits until newer checkpoints are told."""
        for _ in range(times):
            before = self.saved()
            self.wait("a newer checkpoint", lambda before=before: self.saved() > before)

    def goes_on(self, attempt: int, promised: int) -> None:
        """Waits until an attempt has resumed from what was promised or later, and has trained whole epochs."""
        self.team.until(f"{{.status.attempt}}={attempt}", seconds=SOON)
        self.team.wait("Running", seconds=SOON)
        self.wait("the attempt's resumption", lambda: self.resumed(attempt))
        assert self.resumed(attempt) >= promised, self.log()
        epochs = self.log().count("whole epoch")
        self.wait("two whole epochs", lambda: self.log().count("whole epoch") >= epochs + 2)
        assert self.team.status()["attempt"] == attempt, json.dumps(self.team.status()["incidents"])

    def resumed(self, attempt: int) -> int:
        """The step from which an attempt has resumed; 0 as long as it has not."""
        found = re.search(rf"^attempt {attempt} resumed (\d+)$", self.log(), re.MULTILINE)
        return int(found[1]) if found else 0

    def log(self) -> str:
        """What the present pods have said; nothing while one of them does not run."""
        with suppress(ApiError):
            return "".join(logs_of_pods(self.team, "digits"))
        return ""

    def wait(self, what: str, happens: Any) -> None:
        try:
            self.team.plant.wait(what, happens, SOON)
        except AssertionError as error:
            error.add_note(f"{json.dumps(self.team.status(), indent=1)}\n{self.log()}")
            raise


@pytest.fixture(scope="module")
def proxy(host: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A store that pods reach through a proxy."""
    directory = tmp_path_factory.mktemp("s3-server")
    s3_server.install(directory)
    with s3_server.serving(directory, directory / "log") as port, s3_server.proxied(port, host.address) as proxy:
        s3_server.make_bucket(port, BUCKET)
        yield proxy


@pytest.fixture(scope="module")
def running(host: Machines, proxy: Proxy) -> Iterator[Stored]:
    """One training for all faults."""
    job = Stored(Team(host), proxy)
    job.start(host.address, every_seconds=1)
    yield job
    job.team.delete("ddpjobs", "digits")


@pytest.fixture
def job(running: Stored) -> Stored:
    """It, while it runs and saves."""
    running.team.wait("Running", seconds=SOON)
    running.saves_again()
    return running


def cost(before: dict[str, Any], after: dict[str, Any]) -> tuple[int, int]:
    """Restarts and disruptions that were counted between."""
    return after["restarts"] - before["restarts"], after["disruptions"] - before["disruptions"]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_pod_is_lost(lost: int, job: Stored) -> None:
    before, other = job.team.status(), pod_of(job.team, 1 - lost)["metadata"]["uid"]
    promised = job.saved()
    job.team.kubectl("delete", "pod", pod_of(job.team, lost)["metadata"]["name"], "--grace-period=0", "--force")
    job.goes_on(before["attempt"] + 1, promised)
    assert cost(before, job.team.status()) == (0, 1)
    assert pod_of(job.team, 1 - lost)["metadata"]["uid"] == other, "it waits in place"


def test_a_node_is_lost(host: Machines, job: Stored) -> None:
    before, promised = job.team.status(), job.saved()
    with all_nodes_again(host):
        host.nodes[pod_of(job.team, 0)["spec"]["nodeName"]].kill()
        job.goes_on(before["attempt"] + 1, promised)
    assert cost(before, job.team.status()) == (0, 1)


def test_a_store_that_answers_503_for_a_minute_costs_checkpoints_and_no_training(job: Stored) -> None:
    before = job.team.status()
    job.proxy.trouble_next(10**9, Trouble.UNAVAILABLE)
    began, epochs = time.monotonic(), job.log().count("whole epoch")
    time.sleep(AWAY_SECONDS / 2)  # For so long nothing is to happen, which cannot be awaited.
    promised = job.saved()
    time.sleep(AWAY_SECONDS / 2)
    assert job.saved() == promised, "nothing could be saved"
    job.proxy.left = 0
    assert job.proxy.troubled > 0
    trained = job.log().count("whole epoch") - epochs
    assert trained >= 2, f"{trained} epochs in {time.monotonic() - began:.0f} s\n{job.log()}"
    assert "the server answers 503 SlowDown" in job.log()
    job.saves_again()
    now = job.team.status()
    assert (now["attempt"], cost(before, now)) == (before["attempt"], (0, 0))


def test_a_store_that_commits_and_loses_its_answer_costs_nothing(job: Stored) -> None:
    before, lost = job.team.status(), 5
    job.proxy.trouble_next(lost, Trouble.LOST, "PUT", "manifest.json")
    job.wait("the answers to be lost", lambda: job.proxy.troubled == lost)
    promised = job.saved()
    job.team.kubectl("delete", "pod", pod_of(job.team, 0)["metadata"]["name"], "--grace-period=0", "--force")
    job.goes_on(before["attempt"] + 1, promised)
    assert cost(before, job.team.status()) == (0, 1)
    assert "could not be saved" not in job.log()


def test_a_requested_checkpoint_is_durable_soon(host: Machines, proxy: Proxy) -> None:
    job = Stored(Team(host), proxy)
    job.start(host.address, every_steps=NEVER)
    job.wait("steps", lambda: "whole epoch" in job.log())
    for number in range(REQUESTS):
        words = {CHECKPOINT_REQUEST: f"request-{number}"}
        began = time.time()
        job.team.plant.api.patch(job.team.path("ddpjobs", "digits"), {"metadata": {"annotations": words}})
        job.wait("the outcome", lambda number=number: outcome(job.team, f"request-{number}") is not None)
        told = time.time()
        assert outcome(job.team, f"request-{number}") == "Saved"
        note("checkpoint requested, durable", durable(job.team)[-1] - began)
        note("checkpoint requested, told", told - began)
    assert len(durable(job.team)) == REQUESTS, "each is answered by one, and nothing else is saved"
    for _ in range(COMMANDS):
        began = time.time()
        assert "is complete" in ddpjob(job.team, "checkpoint", "digits")
        note("ddpjob checkpoint, durable", durable(job.team)[-1] - began)
        note("ddpjob checkpoint", time.time() - began)
    job.team.delete("ddpjobs", "digits")


def outcome(team: Team, request: str) -> str | None:
    """What came of a request, once it is known."""
    found = team.status().get("requestedCheckpoint", {})
    return found["state"] if found.get("request") == request and found["state"] != "Requested" else None


def durable(team: Team) -> list[float]:
    """When rank 0 has said that a checkpoint is durable, by the clock of its node, which is this machine's."""
    pod = pod_of(team, 0)["metadata"]["name"]
    path = f"/api/v1/namespaces/{team.namespace}/pods/{pod}/log?container=trainer&timestamps=true"
    lines = (line.split(" ", 1) for line in team.plant.text(path).splitlines())
    return [datetime.fromisoformat(at).timestamp() for at, said in lines if said.startswith("saved step=")]
