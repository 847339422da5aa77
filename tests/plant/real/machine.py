"""What the size *real* needs on the machine itself, and its installation if the machine runs Debian."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.plant import cgroups
from tests.plant.errors import PlantError

PACKAGES = {
    "ip": "iproute2",
    "nft": "nftables",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "/usr/include/seccomp.h": "libseccomp-dev",
    "/usr/include/stdlib.h": "libc6-dev",
}
"""Commands and files, with the packages that contain them."""


CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}
"""The cgroup controllers that a kubelet and runc need."""


def what_is_lacking() -> str | None:
    """Why no node can run here, in a few words; None if a node can run here."""
    if os.geteuid() != 0:
        return "not root"
    if not {name for option in cgroups.hierarchies() for name in option.split(",")} >= CONTROLLERS:
        return "no cgroup v1 controllers below /sys/fs/cgroup"
    if missing() and not can_install():
        return f"no {', '.join(missing())}, and no apt-get to install them"
    return None


def missing(packages: Mapping[str, str] = PACKAGES) -> dict[str, str]:
    """The commands and files that are missing, with their packages."""
    return {name: package for name, package in packages.items() if not _is_there(name)}


def install_missing(wanted: Mapping[str, str] = PACKAGES) -> None:
    """Installs missing packages, and prints their names.

    Raises:
        PlantError: They cannot be installed.
    """
    if not (packages := sorted(missing(wanted).values())):
        return
    if not can_install():
        raise PlantError(f"these packages are needed: {', '.join(packages)}: install them")
    print(f"installing {', '.join(packages)} by apt-get", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "--quiet", *command], env=os.environ | quiet, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PlantError(f"apt-get {' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def can_install() -> bool:
    """Whether packages can be installed here: by root, with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _is_there(name: str) -> bool:
    return Path(name).exists() if name.startswith("/") else shutil.which(name) is not None
