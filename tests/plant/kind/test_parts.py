"""The parts of the kind cluster that can be tested without a cluster."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kind import FOLDER
from tests.plant.kind import network, runtime

ROOT = Path(__file__).parents[3]


def node(name: str, pods: str | None, address: str) -> dict[str, object]:
    """A node as the API server describes it."""
    spec = {"podCIDR": pods} if pods else {}
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def nodes_of(file: str) -> list[Any]:
    """The nodes in a configuration file of kind."""
    return list(yaml.safe_load((ROOT / file).read_text())["nodes"])


def test_the_cluster_of_the_tests_is_the_one_of_the_tutorial_with_a_folder_that_its_workers_share() -> None:
    nodes = nodes_of("tests/e2e/kind.yaml")
    assert [one["role"] for one in nodes] == [one["role"] for one in nodes_of("deploy/kind/cluster.yaml")]
    here = {"hostPath": str(FOLDER), "containerPath": str(FOLDER)}
    assert [one["role"] for one in nodes if here in one["extraMounts"]] == ["worker", "worker"]


def test_a_node_knows_the_way_to_the_pods_of_all_others_that_have_some() -> None:
    nodes = [node("a", "10.244.0.0/24", "172.18.0.2"), node("b", "10.244.1.0/24", "172.18.0.3"), node("c", None, "")]
    assert network.routes(nodes, here="a") == ["route replace 10.244.1.0/24 via 172.18.0.3"]


def test_a_container_asks_for_nothing_that_takes_what_root_lacks_here(tmp_path: Path) -> None:
    process = {
        "args": ["init"],
        "rlimits": [{"type": "RLIMIT_NOFILE"}],
        "oomScoreAdj": -999,
        "capabilities": {"bounding": ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"]},
    }
    (tmp_path / "config.json").write_text(json.dumps({"process": process, "root": {}}))
    (tmp_path / "exec.json").write_text(json.dumps(process))
    tamed = {"args": ["init"], "capabilities": {"bounding": ["CAP_SYS_ADMIN"]}}
    runtime.tame_all(["--root", "/run", "create", "--bundle", str(tmp_path), "name"])
    runtime.tame_all(["exec", "--process", str(tmp_path / "exec.json"), "name"])
    assert json.loads((tmp_path / "config.json").read_text()) == {"process": tamed, "root": {}}
    assert json.loads((tmp_path / "exec.json").read_text()) == tamed
