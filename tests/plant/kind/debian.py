"""Software from Debian, kept in the plant's cache: the docker engine, and the system of kind's nodes."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.plant import build
from tests.plant.errors import PlantError
from tests.plant.images.build import STRIPPED, SUITE
from tests.plant.packages import unpack

KEPT = build.CACHE / "kind"
DOCKER = KEPT / "docker"
"""The docker engine, which is only unpacked: installing it would start it, and change the machine's packet filter."""

PACKAGES = (
    *("systemd", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "kmod", "libseccomp2", "e2fsprogs"),
    *("ca-certificates", "curl", "jq", "procps", "containernetworking-plugins", "busybox-static"),
    *("python3-minimal", "libpython3-stdlib"),
)
"""The packages in kind's own images that are needed here, and those that our replacement for kindnetd needs."""
SYSTEM = KEPT / f"debian-{hashlib.sha256(repr((SUITE, PACKAGES, STRIPPED)).encode()).hexdigest()[:12]}"
"""The system of kind's nodes, as a tree of files."""


def fetch() -> None:
    """Downloads what is missing.

    Raises:
        PlantError: Something cannot be downloaded.
    """
    with build.locked(KEPT / "debian.lock"):
        for place, make in {DOCKER: _unpack_docker, SYSTEM: _make_system}.items():
            if not place.exists():
                _make(place, make)


def _make(place: Path, make: Callable[[Path], None]) -> None:
    for old in (*KEPT.glob(f"{place.name.partition('-')[0]}-*"), *KEPT.glob("making-*")):
        shutil.rmtree(old)
    with tempfile.TemporaryDirectory(prefix="making-", dir=KEPT) as folder:
        made = Path(folder, place.name)
        made.mkdir()
        make(made)
        made.rename(place)


def _unpack_docker(folder: Path) -> None:
    unpack(folder, "docker.io")


def _make_system(folder: Path) -> None:
    _run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, folder)
    for name in STRIPPED:
        shutil.rmtree(folder / name)
        (folder / name).mkdir()


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"[-4000:]
        raise PlantError(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{said}")
