"""The table of the plant's binaries. All are built from the pinned Go modules under modules/."""

from dataclasses import dataclass
from enum import StrEnum, auto

KUBERNETES_VERSION = "v1.37.2"

_VERSION = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"


class For(StrEnum):
    """The only use of a binary, if it has only one: the size real, a kind cluster, a bench, or tests of Volcano or of
    alerts."""

    REAL = auto()
    KIND = auto()
    BENCH = auto()
    VOLCANO = auto()
    ALERTS = auto()


@dataclass(frozen=True)
class Binary:
    """A program, and how it is built.

    module  the folder under modules/ whose go.mod pins it
    ldflags flags for its linker besides -s -w
    only    the only use that needs it; None if the sizes api and fake need it
    keeps   files of its own module, such as CRDs, that are kept beside it
    lacks   a file that it embeds, but that its module does not have: an empty one takes its place
    """

    name: str
    module: str
    package: str
    cgo: bool = False
    tags: str = ""
    ldflags: str = ""
    only: For | None = None
    keeps: tuple[str, ...] = ()
    lacks: str = ""


def _of_kubernetes(name: str, only: For | None = None, module: str = "cluster") -> Binary:
    return Binary(name, module, f"k8s.io/kubernetes/cmd/{name}", ldflags=_VERSION, only=only)


def _of_containerd(name: str) -> Binary:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Binary(name, "containerd", package, tags="no_btrfs,no_devmapper,no_zfs", only=For.REAL)


BINARIES = (
    Binary("etcd", "cluster", "go.etcd.io/etcd/server/v3"),
    _of_kubernetes("kube-apiserver"),
    _of_kubernetes("kubectl"),
    _of_kubernetes("kube-controller-manager"),
    _of_kubernetes("kube-scheduler"),
    Binary("kwok", "cluster", "sigs.k8s.io/kwok/cmd/kwok"),
    Binary("helm", "cluster", "helm.sh/helm/v4/cmd/helm"),
    Binary(
        "kueue",
        "kueue",
        "sigs.k8s.io/kueue/cmd/kueue",
        keeps=("config/components/crd/bases", "config/components/webhook"),
    ),
    _of_kubernetes("kubelet", For.REAL),
    _of_kubernetes("kube-proxy", For.REAL),
    Binary("runc", "runc", "github.com/opencontainers/runc", cgo=True, tags="seccomp", only=For.REAL),
    _of_containerd("containerd"),
    _of_containerd("containerd-shim-runc-v2"),
    _of_containerd("ctr"),
    Binary("coredns", "cluster", ".", only=For.REAL),
    Binary(
        "jobset",
        "jobset",
        "sigs.k8s.io/jobset",
        only=For.BENCH,
        keeps=("config/components/crd/bases", "config/components/webhook"),
    ),
    Binary(
        "trainer-controller-manager",
        "trainer",
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        only=For.BENCH,
        keeps=("manifests/base/crds", "manifests/base/webhook"),
    ),
    Binary(
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
        only=For.BENCH,
        keeps=("manifests/base/crds", "manifests/base/webhook"),
    ),
    Binary("training-operator-unlimited", "training-operator", ".", only=For.BENCH),
    Binary(
        "vc-scheduler",
        "volcano",
        "volcano.sh/volcano/cmd/scheduler",
        only=For.VOLCANO,
        keeps=("config/crd/volcano/bases", "installer/helm/chart/volcano/config"),
    ),
    # Without its pages, and without the libraries of all clouds by which it could find what to read.
    *(
        Binary(
            name,
            "prometheus",
            f"github.com/prometheus/prometheus/cmd/{name}",
            tags="remove_all_sd",
            only=For.ALERTS,
        )
        for name in ("prometheus", "promtool")
    ),
    Binary(
        "alertmanager",
        "alertmanager",
        "github.com/prometheus/alertmanager/cmd/alertmanager",
        only=For.ALERTS,
        lacks="ui/app/dist/index.html",
    ),
    _of_kubernetes("kubeadm", For.KIND, module="kind"),
    Binary("coredns-of-kubeadm", "kind", ".", only=For.KIND),
    Binary("crictl", "kind", "sigs.k8s.io/cri-tools/cmd/crictl", only=For.KIND),
    # This program spells the import path of `logrus` with other capitals, so one call of Go cannot build it together
    # with the others. The tag has no other effect than a separate call.
    Binary(
        "local-path-provisioner", "kind", "github.com/rancher/local-path-provisioner", tags="netgo", only=For.KIND
    ),
    Binary("kind", "kind", "sigs.k8s.io/kind", only=For.KIND, keeps=("images/base/files", "pkg/build/nodeimage")),
)
