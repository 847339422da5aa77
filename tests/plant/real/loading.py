"""Puts images onto a node: the layers as hard links, the rest through containerd."""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

from tests.plant import build
from tests.plant.errors import PlantError
from tests.plant.images import Image

STATE = "/var/lib"


def load(socket: Path, lib: Path, image: Image) -> None:
    """Puts an image onto the node whose containerd listens on `socket` and whose /var/lib is `lib`.

    Raises:
        PlantError: containerd refused. The message is its output.
    """
    chain = ""
    for folder, diff_id in zip(image.layers, image.diff_ids, strict=True):
        below, chain = chain, _chain(chain, diff_id)
        if not _has(socket, chain):
            _link(socket, lib, folder, chain, below)
    _ctr(socket, "images", "import", "--local", "-", input=_archive(image))


def tag(socket: Path, image: str, name: str) -> None:
    """Gives a second name to an image on the node whose containerd listens on `socket`."""
    _ctr(socket, "images", "tag", "--force", image, name)


def _link(socket: Path, lib: Path, folder: Path, chain: str, below: str) -> None:
    mounts = json.loads(_ctr(socket, "snapshots", "prepare", "--mounts", f"new {chain}", *filter(None, [below])))
    snapshot = lib / _place(mounts[0]).relative_to(STATE)
    snapshot.rmdir()
    subprocess.run(["cp", "--archive", "--link", folder, snapshot], check=True)
    _ctr(socket, "snapshots", "commit", chain, f"new {chain}")


def _place(mount: dict[str, object]) -> Path:
    """The folder for a snapshot's files: a bind mount's source, or an overlay's upper folder."""
    options = dict(option.partition("=")[::2] for option in mount["Options"])  # type: ignore[attr-defined]
    return Path(options.get("upperdir") or str(mount["Source"]))


def _chain(below: str, diff_id: str) -> str:
    """A snapshot's name: the digest of all diffs up to this one, as the image specification says."""
    return f"sha256:{hashlib.sha256(f'{below} {diff_id}'.encode()).hexdigest()}" if below else diff_id


def _archive(image: Image) -> bytes:
    """An archive without layers. containerd does not need the layers, because it already has their snapshots."""
    manifest = {
        "mediaType": json.loads(image.manifest).get("mediaType", "application/vnd.oci.image.manifest.v1+json"),
        "digest": f"sha256:{_digest(image.manifest)}",
        "size": len(image.manifest),
        "annotations": {"io.containerd.image.name": image.name},
    }
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode(),
        f"blobs/sha256/{_digest(image.manifest)}": image.manifest,
        f"blobs/sha256/{_digest(image.config)}": image.config,
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _has(socket: Path, chain: str) -> bool:
    try:
        _ctr(socket, "snapshots", "info", chain)
    except PlantError:
        return False
    return True


def _ctr(socket: Path, *arguments: str, input: bytes = b"") -> str:  # noqa: A002 - as subprocess.run calls it.
    command = [str(build.path("ctr")), "--address", str(socket), "--namespace", "k8s.io", *arguments]
    done = subprocess.run(command, input=input, capture_output=True, check=False)
    if done.returncode:
        raise PlantError(f"ctr {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout.decode()
