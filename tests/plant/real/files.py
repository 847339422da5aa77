"""The configuration of a node's programs, as data for the files that they read."""

from typing import Any

from .network import Network

DNS_SERVICE = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
NODE_STATUS = "2s"
LEASE_SECONDS = 8
"""How long a kubelet's lease lasts. The kubelet renews it four times in this time."""
REGISTRIES = "registries"
"""A folder in a node's /var/lib, which contains a folder for each registry whose address is not the host in its name.
containerd reads it for each image."""


def containerd(sandbox_image: str) -> str:
    """The configuration of containerd.

    The sandbox image is on the node already, and registries do nothing but refuse.
    """
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE nobody can lower the score that pods get by default.
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  discard_unpacked_layers = true
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{sandbox_image}"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "/var/lib/{REGISTRIES}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/var/lib/cni"
"""


def cni(network: Network, number: int) -> dict[str, Any]:
    """Connects each pod by a virtual cable to its node, which routes the packets.

    (On a bridge, rules for Services would miss packets.)
    """
    ranges = [[{"subnet": str(network.pods(number))}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni"}
    return {"cniVersion": "1.0.0", "name": "plant", "plugins": [{"type": "ptp", "ipam": ipam}]}


def kubelet(network: Network, number: int) -> dict[str, Any]:
    """The configuration of the kubelet. Its cgroups are below the node's, and only a full disk evicts pods."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(network.node(number)),
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": "/var/lib/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": "/var/lib/resolv.conf",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": NODE_STATUS,
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
    }


def kube_proxy(network: Network) -> dict[str, Any]:
    """The configuration of kube-proxy, which must not change the limits of the machine's connection tracking."""
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(network.addresses),
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy.kubeconfig"},
        "conntrack": untouched,
    }
