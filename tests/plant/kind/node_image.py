"""The image of kind's nodes, made without a registry: Debian, what kind adds to it, and Kubernetes built here.

The image is kept as the folder of a docker engine that has loaded it. An engine that starts with a copy of this
folder, made of hard links, has the image, too.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.plant import build
from tests.plant.binaries import KUBERNETES_VERSION
from tests.plant.directory import plant_directory
from tests.plant.errors import PlantError
from tests.plant.images import Image
from tests.plant.processes import Programs
from tests.plant.real import files, policies
from tests.plant.real.loading import load
from tests.plant.real.plant import NODES
from tests.support.waiting import wait_for

from .debian import KEPT, SYSTEM
from .engine import HERE, docker, start_engine

NODE_IMAGE = f"kindest/node:{KUBERNETES_VERSION}"
ON_PATH = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "kubectl", "kubeadm", "crictl")
SEARCHED = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

CHANGES = (
    "ENV container=docker",
    # By default systemd also creates cgroups in the tree of v2, where docker does not give containers their own
    # cgroup.
    "ENV SYSTEMD_PROC_CMDLINE=systemd.legacy_systemd_cgroup_controller=1",
    'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
)
"""Instructions for docker that complete the image."""

PROGRAMS = {
    "kube-apiserver": ("kube-apiserver",),
    "kube-controller-manager": ("kube-controller-manager",),
    "kube-scheduler": ("kube-scheduler",),
    "kube-proxy": ("kube-proxy",),
    "etcd": ("etcd",),
    "coredns": ("coredns-of-kubeadm",),
    "local-path-provisioner": ("local-path-provisioner",),
    "local-path-helper": ("busybox",),
    "pause": ("busybox", "sleep", "infinity"),
}
"""The images that kubeadm and kind need on a node, by the last part of their names, each with its program and
command."""
BUILT = [words[0] for words in PROGRAMS.values() if words[0] != "busybox"]
FILTERS = ("xtables-nft-multi", "nft", "conntrack")
"""The programs with which kube-proxy writes its rules."""
RECIPE = (Path(__file__), HERE / "node.sh", HERE / "network.py", Path(policies.__file__))
AS_IPTABLES = tuple(f"{name}{does}" for name in ("iptables", "ip6tables") for does in ("", "-save", "-restore"))
WITH_LIBRARIES = """
cd "$0"; to=$1; shift
libraries=$(for name; do chroot . ldd "/usr/sbin/$name"; done | grep -o '/[^ ]*' | sort -u)
for extension in usr/lib/*/xtables; do libraries="$libraries /$extension /usr/lib/*/libm.so.6"; done
for name in $libraries; do cp --recursive --dereference --parents .$name "$to"; done
for name; do cp --parents "usr/sbin/$name" "$to"; done
"""
"""A script that copies programs from a tree, with all libraries that they load."""


def build_node_image() -> None:
    """Builds the image if anything that it is built from has changed.

    Raises:
        PlantError: The build failed. The message gives the reason.
    """
    with build.locked(KEPT / "lock"):
        if (place := _place()).exists():
            return
        print(f"building {NODE_IMAGE}: Debian, what kind adds to it, and Kubernetes", flush=True)
        begun = time.monotonic()
        with plant_directory(NODES) as directory:
            _build(directory)
            for old in KEPT.glob("node-*"):
                shutil.rmtree(old)
            (directory / "docker").rename(place)
        print(f"built {NODE_IMAGE} in {time.monotonic() - begun:.0f} s", flush=True)


def give_node_image(directory: Path) -> None:
    """Prepares the folder of an engine that has not started yet, so that it has the image. Layers are hard links.

    Raises:
        PlantError: The image has not been built.
    """
    if not (built := _place()).exists():
        raise PlantError(f"{NODE_IMAGE} is not built")
    for entry in built.iterdir():
        links = ["--link"] if entry.name == "overlay2" else []
        (directory / "docker").mkdir(exist_ok=True)
        subprocess.run(["cp", "--archive", *links, entry, directory / "docker"], check=True)


def _build(directory: Path) -> None:
    tree = directory / "tree"
    _make_tree(tree)
    _put_images(tree, directory)
    options = [word for change in CHANGES for word in ("--change", change)]
    archived = ("tar", "--create", "--directory", tree, ".")
    with start_engine(directory) as engine, subprocess.Popen(archived, stdout=subprocess.PIPE) as archive:
        docker("import", *options, "-", NODE_IMAGE, environment=engine.environment, stdin=archive.stdout)


def _place() -> Path:
    made_of = hashlib.sha256(repr((SYSTEM.name, [build.path(name) for name in (*ON_PATH, *BUILT)])).encode())
    for file in (*RECIPE, *sorted((HERE / "node").rglob("*.*"))):
        made_of.update(file.read_bytes())
    return KEPT / f"node-{made_of.hexdigest()[:12]}"


def _make_tree(tree: Path) -> None:
    own = build.path("kind").parent
    environment = {
        "TREE": tree,
        "SYSTEM": SYSTEM,
        "KIND": own,
        "HERE": HERE,
        "POLICIES": policies.__file__,
        "BINARIES": " ".join(str(build.path(name)) for name in ON_PATH),
        "VERSION": KUBERNETES_VERSION,
        "PAUSE": next(name for name in _images() if "/pause:" in name),
    }
    _run("bash", HERE / "node.sh", environment=environment)
    (tree / "kind/manifests/default-storage.yaml").write_text(_storage()[0])


def _storage() -> tuple[str, list[str]]:
    """kind's manifest of its storage class, and the images in it, both from kind's source."""
    source = (build.path("kind").parent / "pkg/build/nodeimage/const_storage.go").read_text()
    images = dict(re.findall(r'^const (\w+Image) = "(.*)"', source, re.MULTILINE))
    (manifest,) = re.findall(r"const defaultStorageManifest = `(.*)`", source, re.DOTALL)
    return re.sub(r"` \+ (\w+) \+ `", lambda name: images[name[1]], manifest), list(images.values())


def _images() -> list[str]:
    words = ("config", "images", "list", "--kubernetes-version", KUBERNETES_VERSION)
    return [*_run(build.path("kubeadm"), *words).split(), *_storage()[1]]


def _put_images(tree: Path, folder: Path) -> None:
    """Puts images into the store of the node's containerd, which is started here for this, before any node runs."""
    lib, socket, config = tree / "var/lib", folder / "run/containerd.sock", folder / "seed.toml"
    config.write_text(files.containerd("").replace("/run/containerd", str(socket.parent)))
    programs = Programs(folder / "logs")
    script = 'mount --bind "$1" /var/lib && exec "$2" --config "$3"'
    words = ("sh", "-euc", script, "sh", lib, build.path("containerd"), config)
    containerd = programs.start("seed", "unshare", "--mount", *words)
    try:
        wait_for("containerd", lambda: containerd.check() or socket.exists(), story=containerd.last_words)
        for name in _images():
            short, _, _ = name.rpartition("/")[2].partition(":")
            load(socket, lib, _image(name, _layer(tree, folder / short, PROGRAMS[short][0]), PROGRAMS[short]))
    finally:
        programs.kill()


def _layer(tree: Path, folder: Path, program: str) -> Path:
    """The files of an image: one program and, if necessary, the programs that it calls."""
    path = folder / "usr/local/bin"
    path.mkdir(parents=True)
    if program == "busybox":
        shutil.copy(tree / "bin/busybox", path)
        for name in ("sh", "mkdir", "rm", "sleep"):
            (path / name).symlink_to(program)
        # The script of the local-path helper names its shell as /bin/sh.
        (folder / "bin").symlink_to("usr/local/bin")
        return folder
    shutil.copy(build.path(program), path)
    if program == "kube-proxy":
        _run("sh", "-euc", WITH_LIBRARIES, tree, folder, *FILTERS)
        for name in AS_IPTABLES:
            (folder / "usr/sbin" / name).symlink_to(FILTERS[0])
    return folder


def _image(name: str, layer: Path, words: tuple[str, ...]) -> Image:
    """An image with one layer. Nobody looks up the layer by its content, so any unique digest will do."""
    diff_id = f"sha256:{_digest(str(layer).encode())}"
    started = {"Env": [SEARCHED], "Entrypoint": list(words)}
    about = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    config = json.dumps({**about, "config": started, "rootfs": {"type": "layers", "diff_ids": [diff_id]}}).encode()
    kind = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": {"mediaType": f"{kind}.config.v1+json", "digest": f"sha256:{_digest(config)}", "size": len(config)},
        "layers": [{"mediaType": f"{kind}.layer.v1.tar", "digest": diff_id, "size": 0}],
    }
    return Image(name, json.dumps(manifest).encode(), config, [layer])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _run(*command: str | Path, environment: Mapping[str, object] | None = None) -> str:
    own = os.environ | {name: str(value) for name, value in (environment or {}).items()}
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlantError(f"{command[0]} exited with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout
