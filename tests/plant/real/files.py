"""What the programs of a node are told: as data, in the files that they read."""

from typing import Any

from .network import Network

DNS_SERVICE = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
NODE_STATUS = "2s"
LEASE_SECONDS = 8
"""A kubelet renews its lease four times as often."""
REGISTRIES = "registries"
"""In a node's /var/lib: a folder for each registry that is not where its name says, read anew for each image."""


def containerd(sandbox_image: str) -> str:
    """The sandbox image is there already; nothing is ever pulled, and registries are there only to refuse."""
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
    """A cable from each pod to its node, which routes: no bridge whose traffic the rules for Services do not see."""
    ranges = [[{"subnet": str(network.pods(number))}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni"}
    return {"cniVersion": "1.0.0", "name": "plant", "plugins": [{"type": "ptp", "ipam": ipam}]}


def kubelet(network: Network, number: int) -> dict[str, Any]:
    """Its cgroups begin at the node's own; it evicts nobody until the disk is really full."""
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
    """It changes no limits of the machine's connection tracking: they are not the node's."""
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(network.addresses),
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy.kubeconfig"},
        "conntrack": untouched,
    }
