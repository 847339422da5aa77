"""Builds the images into the store: a base image, and the project's images on top of it.

The base image is built here because no registry is used.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from tests.plant.build import CACHE, locked, uv
from tests.plant.errors import PlantError

from .store import STORE, names

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
STRIPPED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
SEARCHED = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMAND = ("sleep", "infinity")
"""The command of the base image. It also serves for the containers that hold a pod's namespaces."""

FILL = """
folder=$(buildah mount "$0")
debootstrap --variant=minbase --include="$1" "$2" "$folder"
shift 2
for place; do rm -rf "$folder/$place"; mkdir "$folder/$place"; done
buildah umount "$0"
"""

RECIPE = repr((SUITE, PACKAGES, STRIPPED, SEARCHED, COMMAND))
PYTHON = f"localhost/plant-python:{hashlib.sha256(RECIPE.encode()).hexdigest()[:12]}"
"""A small image with Python and no code of this project."""
OPERATOR = f"docker.io/library/ddpjob-operator:{version('ddpjob')}"
TRAINER = f"docker.io/library/ddpjob-trainer:{version('ddpjob')}"
"""The project's own image, under the full name that a kubelet derives from the chart and from deploy/examples."""

ROOT = Path(__file__).parents[3]
SOURCES = ("operator", "trainer", "requirements", "pyproject.toml", "deploy/images")
"""The files from which the project's images are built."""
MADE_OF = STORE.parent / "images-made-of"
"""A digest of the sources of the images in the store."""
NEEDED_GB = 16
"""The free disk space, in GB, for building the trainer's image, which takes two copies of torch. Half stays in
use."""


def build_images() -> None:
    """Builds all images. Images that have not changed are taken from the store.

    Raises:
        PlantError: There is no space on the disk, or a build failed.
    """
    STORE.mkdir(parents=True, exist_ok=True)
    with locked(STORE.parent / "images.lock"):
        sources = _digest_of_sources()
        _build_all()
        MADE_OF.write_text(sources)


def check_images() -> None:
    """Checks that the project's images were built from this clone as it is now.

    Raises:
        PlantError: They were built from other files. If the operator does not know a new flag of the chart, it never
            becomes ready, and nothing else would say why.
    """
    if not MADE_OF.exists() or MADE_OF.read_text() != _digest_of_sources():
        raise PlantError(f"the images were not built from {ROOT} as it is now: run make plant")


def _digest_of_sources() -> str:
    made_of = hashlib.sha256()
    for file in sorted(
        file for name in SOURCES for file in (ROOT / name, *(ROOT / name).rglob("*")) if file.is_file()
    ):
        if file.suffix != ".pyc":
            made_of.update(f"{file.relative_to(ROOT)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return made_of.hexdigest()


def _build_all() -> None:
    _run("buildah", "rm", "--all")  # A build that failed or was killed leaves its files, including torch.
    if _free_gb() < NEEDED_GB:
        _run("buildah", "rmi", "--prune")
    if TRAINER not in names():
        _check_disk()
    if PYTHON not in names():
        with _timed(f"{PYTHON}: Debian {SUITE} with {', '.join(PACKAGES)}"):
            _build_base()
    options = ("--build-arg", f"BASE={PYTHON}", *_uv_cache())
    for name, tag in (("operator", OPERATOR), ("trainer", TRAINER)):
        with _timed(tag):
            _run(ROOT / "deploy/images/build", name, tag, *options)


def _uv_cache() -> list[str]:
    """uv's cache of unpacked wheels. The image needs the same wheels as the tests, so they can be copied."""
    found = uv()
    return ["--build-context", f"uv-cache={_run(found, 'cache', 'dir').strip()}"] if found else []


@contextmanager
def _timed(what: str) -> Iterator[None]:
    print(f"building {what}", flush=True)
    begun = time.monotonic()
    yield
    print(f"built {what} in {time.monotonic() - begun:.0f} s", flush=True)


def _build_base() -> None:
    container = _run("buildah", "from", "scratch").strip()
    try:
        _run("sh", "-euc", FILL, container, ",".join(PACKAGES), SUITE, *STRIPPED)
        _run("buildah", "config", "--env", SEARCHED, "--cmd", json.dumps(COMMAND), container)
        _run("buildah", "commit", "--quiet", container, PYTHON)
    finally:
        _run("buildah", "rm", container)


def _run(*command: str | Path) -> str:
    """Runs a command in its own mount namespace, because buildah leaves mounts behind, and may be killed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["unshare", "--mount", *command],
            env=os.environ | _environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"[-4000:]
        raise PlantError(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{said}")
    return done.stdout


def _environment(folder: str) -> dict[str, str]:
    """Makes buildah use our store, a folder for its mounts and, because there is no container runtime, chroot."""
    config = Path(folder) / "storage.conf"
    config.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{STORE}"\nrunroot = "{folder}/run"\n')
    return {"CONTAINERS_STORAGE_CONF": str(config), "BUILDAH_ISOLATION": "chroot"}


def _check_disk() -> None:
    if (free := _free_gb()) < NEEDED_GB:
        raise PlantError(
            f"the images take {NEEDED_GB} GB in {CACHE} while they are built, and {free:.1f} GB are free: "
            "make room, or set XDG_CACHE_HOME to a folder on another disk"
        )


def _free_gb() -> float:
    return shutil.disk_usage(CACHE).free / 1e9
