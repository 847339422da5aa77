"""Enforces NetworkPolicies on a node, ingress only, because no network plugin that does so is available here.

Each node runs this program. It queries the API server twice a second, and configures the kernel's packet filter.
"""

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

POLL_SECONDS = 0.5
TABLE = "ip network-policies"
POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"
PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"


def ruleset(policies: list[Any], pods: list[Any], namespaces: list[Any], node: str) -> str:
    """The rules for nft: who may reach each isolated pod of the node. All other packets to such a pod are dropped."""
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
    known = [pod for pod in pods if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")]
    jumps, chains = [], []
    for pod in known:
        if pod["spec"].get("nodeName") != node or not (isolating := [one for one in policies if _isolates(one, pod)]):
            continue
        address = pod["status"]["podIP"]
        rules = [rule for policy in isolating for rule in _rules(policy, known, labels)]
        jumps.append(f"ip daddr {address} jump pod-{address}")
        chains.append(_chain(f"pod-{address}", [*rules, "drop"]))
    hook = "type filter hook forward priority 0; policy accept;"
    forward = _chain("forward", [hook, "ct state established,related accept", *jumps])
    return "\n".join([f"table {TABLE}", f"delete table {TABLE}", f"table {TABLE} {{", *chains, forward, "}"])


def _isolates(policy: Any, pod: Any) -> bool:
    same_namespace: bool = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    spec = policy["spec"]
    return same_namespace and "Ingress" in spec["policyTypes"] and _selects(spec["podSelector"], _labels(pod))


def _rules(policy: Any, pods: list[Any], namespaces: dict[str, Any]) -> Iterator[str]:
    for rule in policy["spec"].get("ingress", ()):
        sources = ""
        if peers := rule.get("from"):
            addresses = {one for peer in peers for one in _addresses(peer, policy, pods, namespaces)}
            if not addresses:
                continue
            sources = f"ip saddr {{ {', '.join(sorted(addresses))} }} "
        for port in rule.get("ports") or [None]:
            yield f"{sources}{_port(port)}accept"


def _addresses(peer: Any, policy: Any, pods: list[Any], namespaces: dict[str, Any]) -> Iterator[str]:
    if block := peer.get("ipBlock"):
        yield block["cidr"]
        return
    here = policy["metadata"]["namespace"]
    among = peer.get("namespaceSelector")
    for pod in pods:
        namespace = pod["metadata"]["namespace"]
        in_scope = namespace == here if among is None else _selects(among, namespaces.get(namespace, {}))
        if in_scope and _selects(peer.get("podSelector", {}), _labels(pod)):
            yield pod["status"]["podIP"]


def _port(port: Any) -> str:
    if port is None:
        return ""
    protocol = port.get("protocol", "TCP").lower()
    if "port" not in port:
        return f"meta l4proto {protocol} "
    last = f"-{port['endPort']}" if "endPort" in port else ""
    return f"{protocol} dport {port['port']}{last} "


def _selects(selector: Any, labels: dict[str, str]) -> bool:
    """Whether a selector matches labels. A selector with expressions is not supported, and ends this program."""
    if selector.get("matchExpressions"):
        raise NotImplementedError(f"only matchLabels are understood: {selector}")
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return labels.items() >= wanted.items()


def _labels(pod: Any) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return labels


def _chain(name: str, rules: list[str]) -> str:
    return "\n".join([f"chain {name} {{", *rules, "}"])


def main(server: str, node: str, authority: Path, identity: Path) -> None:
    """Makes the node's packet filter follow the policies, until the node ends."""
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(identity)
    # One connection serves all requests, because a handshake for each would cost both sides more than the request.
    connection = HTTPSConnection(urlsplit(server).netloc, context=context, timeout=10)

    def items(path: str) -> list[Any]:
        connection.request("GET", f"{path}?resourceVersion=0")
        with connection.getresponse() as answer:
            said = answer.read()
            if answer.status != HTTPStatus.OK:
                raise HTTPException(f"{answer.status} {answer.reason}")
        return list(json.loads(said)["items"])

    applied = ""
    while True:
        try:
            policies = items(POLICIES)
            wanted = ruleset(policies, items(PODS), items(NAMESPACES), node) if policies or applied else ""
        except (OSError, HTTPException) as error:
            print(f"no answer from the API server: {error}", flush=True)
            connection.close()
        else:
            if wanted != applied:
                subprocess.run(["nft", "-f", "-"], input=wanted, text=True, check=True)
                applied = wanted
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
