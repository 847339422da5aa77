"""The size *fake*: a whole control plane, with nodes of kwok that only pretend to run pods."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from . import build
from .api import ADMINS, Plant, start_api
from .control import POD_GROUP_API, start_control

ALIVE = "plant.ddpjob.dev/alive"
"""kwok stops playing a node that does not have this label, so that the node falls silent."""

NODES = "/api/v1/nodes"
HERE = Path(__file__).parent


@contextmanager
def start_fake(
    *flags: str,
    nodes: int = 4,
    node_grace_seconds: int = 8,
    manager_flags: tuple[str, ...] = (),
    pod_groups: bool = False,
) -> Iterator[Plant]:
    """Starts a cluster with nodes node-0, node-1, …, waits until it is ready, and stops it when the block ends.

    flags               more flags of kube-apiserver
    node_grace_seconds  after how long a silent node counts as lost
    manager_flags       more flags of kube-controller-manager
    pod_groups          whether the scheduler places groups of pods, and the API server supports them

    Raises:
        PlantError: Something is missing or did not start. The message contains the relevant end of a log.
    """
    groups = POD_GROUP_API if pod_groups else ()
    with start_api(*flags, *groups, service_accounts=True) as plant:
        _start_kwok(plant, node_grace_seconds)
        for index in range(nodes):
            add_node(plant, index)
        start_control(
            plant,
            node_grace_seconds=node_grace_seconds,
            manager_flags=manager_flags,
            pod_groups=pod_groups,
        )
        plant.wait("the nodes", lambda: _all_ready(plant, nodes))
        yield plant


def add_node(plant: Plant, index: int) -> None:
    """Adds a node. Does not wait until the node is ready or pods are scheduled on it."""
    plant.api.create(NODES, _node(index))


def remove_node(plant: Plant, name: str) -> None:
    """Removes a node, if it exists."""
    if plant.get(f"{NODES}/{name}"):
        plant.api.delete(f"{NODES}/{name}")


def _start_kwok(plant: Plant, node_grace_seconds: int) -> None:
    stages = yaml.safe_load((HERE / "stages.yaml").read_text())
    config = plant.directory / "stages.yaml"
    head = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage"}
    documents = [head | {"metadata": {"name": name}, "spec": spec} for name, spec in stages.items()]
    config.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    plant.programs.start(
        "kwok",
        build.path("kwok"),
        f"--kubeconfig={plant.kubeconfig_for('kwok', ADMINS)}",
        f"--config={config}",
        f"--manage-nodes-with-label-selector={ALIVE}",
        f"--node-lease-duration-seconds={node_grace_seconds}",
        "--cidr=10.128.0.0/14",
    )


def _node(index: int) -> dict[str, Any]:
    name = f"node-{index}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        ALIVE: "true",
    }
    return {"metadata": {"name": name, "labels": labels}}


def _all_ready(plant: Plant, nodes: int) -> bool:
    items = plant.get(NODES)["items"]
    return len(items) == nodes and all(_ready(node) and not node["spec"].get("taints") for node in items)


def _ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
