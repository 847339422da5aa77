"""The parts of the kind cluster that can be looked at without one."""

import json
from pathlib import Path

from tests.plant.kind import network, runtime


def node(name: str, pods: str | None, address: str) -> dict[str, object]:
    """A node as the API server knows it."""
    spec = {"podCIDR": pods} if pods else {}
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


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
