"""The pods' network on a node of kind. It replaces kind's own kindnetd, which is not available here.

This program runs on the node, and uses only Python. It gives the node's pods their addresses, and sets the routes to
the pods of all other nodes. Packets from pods to anything but pods get the node's address, so that answers arrive.
Until the node has joined the cluster, this program ends immediately, and systemd starts it again.
"""

import json
import re
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

AUTHORITY = "/etc/kubernetes/pki/ca.crt"
IDENTITY = "/var/lib/kubelet/pki/kubelet-client-current.pem"
KUBECONFIG = Path("/etc/kubernetes/kubelet.conf")
CONFIG = Path("/etc/cni/net.d/10-plant.conflist")
POLL_SECONDS = 1.0
PODS = "10.244.0.0/16"
"""The addresses of the pods of all nodes, which are kind's default."""
MASQUERADE = f"""\
table ip outside
delete table ip outside
table ip outside {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {PODS} ip daddr != {PODS} masquerade
  }}
}}
"""


def cni(pods: str) -> dict[str, Any]:
    """The configuration with which containerd connects a pod: a virtual cable to its node, which routes packets."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    }
    plugins = [{"type": "ptp", "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": "1.0.0", "name": "plant", "plugins": plugins}


def routes(nodes: list[Any], here: str) -> list[str]:
    """Commands for `ip` that set the routes to the pods of all nodes except this node, `here`."""
    return [
        f"route replace {node['spec']['podCIDR']} via {_address(node)}"
        for node in nodes
        if node["metadata"]["name"] != here and "podCIDR" in node["spec"] and _address(node)
    ]


def _address(node: Any) -> str:
    addresses = node["status"].get("addresses", ())
    return next((str(one["address"]) for one in addresses if one["type"] == "InternalIP"), "")


def main() -> None:
    """Keeps routes and pod addresses as the API server has them."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    context.load_cert_chain(IDENTITY)
    (server,) = re.findall(r"server: (\S+)", KUBECONFIG.read_text())
    here, known = socket.gethostname(), list[str]()
    subprocess.run(["nft", "-f", "-"], input=MASQUERADE, text=True, check=True)
    while True:
        with urllib.request.urlopen(f"{server}/api/v1/nodes", context=context, timeout=10) as answer:
            nodes = json.load(answer)["items"]
        own = next((node["spec"].get("podCIDR") for node in nodes if node["metadata"]["name"] == here), None)
        if (wanted := routes(nodes, here)) != known:
            subprocess.run(["ip", "-batch", "-"], input="\n".join(wanted), text=True, check=True)
            known = wanted
        if own and not CONFIG.exists():
            CONFIG.parent.mkdir(parents=True, exist_ok=True)
            CONFIG.write_text(json.dumps(cni(own)))
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
