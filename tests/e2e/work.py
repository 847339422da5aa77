"""What the pods of these tests run, and what they have said."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ddpjob_operator.api.contract import API_VERSION, KIND

from tests.plant import Plant, build
from tests.plant.images import PYTHON, TRAINER
from tests.support.jobs import Team

from .external import External

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "digits.yaml"
LONG = 600
"""Seconds that a training may take here: all of it shares the cores with everything else."""

BATCH = 12
STEPS = 1437 // BATCH
"""Of an epoch: enough that hardly any moment is the end of one."""

DEAF = ["python3", "-c", "import time; time.sleep(3600)"]
"""Nobody told it about SIGTERM: it runs until its grace is over."""

ONE_THREAD = {"name": "OMP_NUM_THREADS", "value": "1"}
"""For ranks: each would start as many threads as there are cores, and all nodes have the same ones."""

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
    trainer = {"name": "trainer", "image": TRAINER, "env": [ONE_THREAD], **container}
    template = {"spec": {"containers": [trainer], **spec.pop("pod", {})}}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"nodes": nodes, "template": template, **spec},
    }


def a_script(name: str, command: list[str], nodes: int = 1, **spec: Any) -> dict[str, Any]:
    """A job that trains nothing, in a small image of plain Python that runs as root."""
    network = {"waitForMaster": False, **spec.pop("network", {})}
    return a_training(name, {"image": PYTHON, "command": command}, nodes, network=network, **spec)


def an_endless_training(shared: Path, **spec: Any) -> dict[str, Any]:
    """A job that saves into a folder of this machine, and only when it is told to stop. Its root is read-only."""
    arguments = ["--workload", "mlp", "--epochs", "10000", f"--global-batch-size={BATCH}"]
    volume = {"hostPath": {"path": str(shared)}}
    checkpoint = {"path": "/checkpoints", "everySteps": 1_000_000_000, "keep": 1000, "volume": volume}
    container = {"args": arguments, "securityContext": {"readOnlyRootFilesystem": True}}
    return a_training("digits", container, checkpoint=checkpoint, **spec)


def claimed(team: Team, claim: str, shared: Path) -> None:
    """Makes a claim in the team's namespace that is bound to a folder of this machine."""
    volume = f"{team.namespace}-{claim}"
    size = {"storage": "1Gi"}
    spec = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    objects = (
        ("PersistentVolume", volume, {"capacity": size, "hostPath": {"path": str(shared)}}),
        ("PersistentVolumeClaim", claim, {"volumeName": volume, "resources": {"requests": size}}),
    )
    for kind, name, more in objects:
        team.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec | more})


def saves(shared: Path) -> list[dict[str, Any]]:
    """What was saved into a folder, the first first: at which step, by how many, in which attempt."""
    return [json.loads(file.read_text()) for file in sorted(shared.glob("step-*/manifest.json"))]


def wait_for_steps(team: Team, attempt: int) -> str:
    """Until the ranks of this attempt have trained together; returns what they have said since it began."""
    team.until(f"{{.status.attempt}}={attempt}", seconds=LONG)
    team.wait("Running", seconds=LONG)
    team.plant.wait("steps", lambda: all("progress epoch=" in said for said in _said_in_the_last_attempt(team)), LONG)
    return "".join(_said_in_the_last_attempt(team))


def _said_in_the_last_attempt(team: Team) -> list[str]:
    """What each pod has said since its ranks were started, the last time."""
    return [said.rpartition(": backend gloo")[2] for said in logs_of_pods(team, "digits")]


def with_script(team: Team, script: str) -> dict[str, Any]:
    """Puts a script into the namespace; returns what a pod needs to find it as /code/train.py."""
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"train.py": script}}
    team.kubectl("apply", "-f", "-", input=json.dumps(data))
    return {"volumes": [{"name": "code", "configMap": {"name": "code"}}]}


CODE_MOUNT = {"volumeMounts": [{"name": "code", "mountPath": "/code"}]}


def logs(team: Team, name: str) -> str:
    """What the pods of a job have said, but for those that are on their way out, be it with their node."""
    return "".join(logs_of_pods(team, name))


def logs_of_pods(team: Team, name: str) -> list[str]:
    """The same for each of them."""
    stay = [pod["metadata"]["name"] for pod in team.pods(name) if "deletionTimestamp" not in pod["metadata"]]
    pods = f"/api/v1/namespaces/{team.namespace}/pods"
    return [team.plant.text(f"{pods}/{pod}/log?container=trainer") for pod in stay]


def change(team: Team, name: str, **fields: Any) -> None:
    """Changes fields of a job's spec."""
    team.kubectl("patch", "ddpjob", name, "--type=merge", "--patch", json.dumps({"spec": fields}))


def ended(team: Team, name: str) -> dict[str, Any]:
    """The status of a job that has come to one of its two ends."""
    team.plant.wait("its end", lambda: team.status(name).get("state") in {"Succeeded", "Failed"}, LONG)
    return team.status(name)


def ddpjob(team: Team, *arguments: str) -> str:
    """What `ddpjob` prints for a user of the team's namespace."""
    path = f"{Path(sys.executable).parent}:{build.path('kubectl').parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["ddpjob", *arguments, "--namespace", team.namespace],
        env=os.environ | team.plant.environment() | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def an_engineer(plant: Plant, namespace: str) -> Path:
    """The kubeconfig of somebody with nothing but that role; on others' clusters, where we make no users, theirs."""
    if isinstance(plant, External):
        return plant.kubeconfig
    words = ["create", "rolebinding", "engineer", "--clusterrole=ddpjob-edit", "--user=engineer"]
    if not plant.kubectl("get", "rolebinding", "engineer", "--namespace", namespace, "--ignore-not-found"):
        plant.kubectl(*words, "--namespace", namespace)
    return plant.kubeconfig_for("engineer")


def submitted(team: Team, directory: Path, *words: str) -> str:
    """What `ddpjob submit` prints in a directory, for somebody who may only run jobs."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["ddpjob", "submit", "--namespace", team.namespace, *words],
        env=os.environ | team.plant.environment(an_engineer(team.plant, team.namespace)) | {"PATH": path},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
