"""The table of binaries that the plant is made of: all from pinned Go modules, those under modules/."""

from dataclasses import dataclass

KUBERNETES_VERSION = "v1.36.3"

_VERSION = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"


@dataclass(frozen=True)
class Binary:
    """A program and how it is built.

    module is the folder under modules/ whose go.mod pins it; ldflags are what its linker is told beside -s -w. The
    other sizes run without those that are only_real. Those that are only_bench are what others have built, to be
    compared with: `keeps` are files of their modules, such as their CRDs, that are kept beside them.
    """

    name: str
    module: str
    package: str
    cgo: bool = False
    tags: str = ""
    ldflags: str = ""
    only_real: bool = False
    only_bench: bool = False
    keeps: tuple[str, ...] = ()


def _of_kubernetes(name: str, *, only_real: bool = False) -> Binary:
    return Binary(name, "cluster", f"k8s.io/kubernetes/cmd/{name}", ldflags=_VERSION, only_real=only_real)


def _of_containerd(name: str) -> Binary:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Binary(name, "containerd", package, tags="no_btrfs,no_devmapper,no_zfs", only_real=True)


BINARIES = (
    Binary("etcd", "cluster", "go.etcd.io/etcd/server/v3"),
    _of_kubernetes("kube-apiserver"),
    _of_kubernetes("kubectl"),
    _of_kubernetes("kube-controller-manager"),
    _of_kubernetes("kube-scheduler"),
    Binary("kwok", "cluster", "sigs.k8s.io/kwok/cmd/kwok"),
    Binary("helm", "cluster", "helm.sh/helm/v4/cmd/helm"),
    _of_kubernetes("kubelet", only_real=True),
    _of_kubernetes("kube-proxy", only_real=True),
    Binary("runc", "runc", "github.com/opencontainers/runc", cgo=True, tags="seccomp", only_real=True),
    _of_containerd("containerd"),
    _of_containerd("containerd-shim-runc-v2"),
    _of_containerd("ctr"),
    Binary("coredns", "cluster", ".", only_real=True),
    Binary(
        "jobset",
        "jobset",
        "sigs.k8s.io/jobset",
        only_bench=True,
        keeps=("config/components/crd/bases", "config/components/webhook"),
    ),
    Binary(
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
        only_bench=True,
        keeps=("manifests/base/crds", "manifests/base/webhook"),
    ),
    Binary("training-operator-unlimited", "training-operator", ".", only_bench=True),
)
