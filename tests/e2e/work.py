"""What the pods of these tests run, and what they have said."""

import json
from pathlib import Path
from typing import Any

from ddpjob_operator.api.contract import API_VERSION, KIND

from tests.cluster.jobs import Team
from tests.plant.images import PYTHON, TRAINER

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "digits.yaml"
LONG = 600
"""Seconds that a training may take here: all of it shares the cores with everything else."""

PLAIN_SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == world * (world - 1) / 2, total
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.ones(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} of {world} is done\\n", end="", flush=True)  # In one piece: ranks share a log.
dist.destroy_process_group()
"""
"""What a user has today: nothing of ours in it."""


def a_training(name: str, container: dict[str, Any], nodes: int = 2, **spec: Any) -> dict[str, Any]:
    """A job of the trainer's image; `container` says what it runs."""
    trainer = {"name": "trainer", "image": TRAINER, **container}
    template = {"spec": {"containers": [trainer], **spec.pop("pod", {})}}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"nodes": nodes, "template": template, **spec},
    }


def a_script(name: str, command: list[str], nodes: int = 1, **spec: Any) -> dict[str, Any]:
    """A job that trains nothing, in a small image of plain Python that runs as root."""
    return a_training(name, {"image": PYTHON, "command": command}, nodes, waitForMaster=False, **spec)


def with_script(team: Team, script: str) -> dict[str, Any]:
    """Puts a script into the namespace; returns what a pod needs to find it as /code/train.py."""
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"train.py": script}}
    team.kubectl("apply", "-f", "-", input=json.dumps(data))
    return {"volumes": [{"name": "code", "configMap": {"name": "code"}}]}


CODE_MOUNT = {"volumeMounts": [{"name": "code", "mountPath": "/code"}]}


def logs(team: Team, name: str) -> str:
    """What the pods of a job have said, but for those that are on their way out, be it with their node."""
    stay = [pod["metadata"]["name"] for pod in team.pods(name) if "deletionTimestamp" not in pod["metadata"]]
    return "".join(team.kubectl("logs", pod, "--container=trainer") for pod in stay)
