"""Builds the images into the store: a base, as no registry is asked for one, and the project's own on top of it."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.plant.build import CACHE
from tests.plant.errors import PlantError

from .store import STORE, names

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
STRIPPED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
COMMAND = ("sleep", "infinity")
"""It is also the image of the containers that hold a pod's namespaces."""

PYTHON = (
    f"localhost/plant-python:{hashlib.sha256(repr((SUITE, PACKAGES, STRIPPED, COMMAND)).encode()).hexdigest()[:12]}"
)
"""A small image with Python and nothing of ours."""
OPERATOR = "localhost/ddpjob-operator:plant"
TRAINER = "localhost/ddpjob-trainer:plant"

ROOT = Path(__file__).parents[3]
NEEDED_GB = 16
"""Free disk while the trainer's image is built, as torch stands there twice meanwhile; half of it stays."""


def build_images() -> None:
    """Builds all images; what has not changed is taken from the store.

    Raises:
        PlantError: no room on the disk, or a build that failed.
    """
    STORE.mkdir(parents=True, exist_ok=True)
    if TRAINER not in names():
        _check_disk()
    if PYTHON not in names():
        print(f"building {PYTHON}: Debian {SUITE} with {', '.join(PACKAGES)}", flush=True)
        _build_base()
    for name, tag in (("operator", OPERATOR), ("trainer", TRAINER)):
        print(f"building {tag}", flush=True)
        _run(ROOT / "deploy/images/build", name, tag, "--build-arg", f"BASE={PYTHON}")


def _build_base() -> None:
    container = _run("buildah", "from", "scratch").strip()
    try:
        folder = Path(_run("buildah", "mount", container).strip())
        _run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, folder)
        for place in STRIPPED:
            shutil.rmtree(folder / place)
            (folder / place).mkdir()
        _run("buildah", "umount", container)
        _run("buildah", "config", "--cmd", json.dumps(COMMAND), container)
        _run("buildah", "commit", "--quiet", container, PYTHON)
    finally:
        _run("buildah", "rm", container)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, env=os.environ | _environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"[-4000:]
        raise PlantError(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{said}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Makes buildah use our store and, as no container runtime is at hand, chroot."""
    config = CACHE / "storage.conf"
    config.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{STORE}"\nrunroot = "{CACHE}/images-run"\n')
    return {"CONTAINERS_STORAGE_CONF": str(config), "BUILDAH_ISOLATION": "chroot"}


def _check_disk() -> None:
    free = shutil.disk_usage(CACHE).free / 1e9
    if free < NEEDED_GB:
        raise PlantError(
            f"the images take {NEEDED_GB} GB in {CACHE} while they are built, and {free:.1f} GB are free: "
            "make room, or set XDG_CACHE_HOME to a folder on another disk"
        )
