"""The store in which buildah keeps images. Each layer is a folder, as overlayfs requires.

containerd's snapshots are the same folders under other names. So images move to nodes as hard links, without an
archive, and each layer is on the disk only once.
"""

import json
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.plant.build import CACHE
from tests.plant.errors import PlantError

STORE = CACHE / "images"


@dataclass(frozen=True)
class Image:
    """An image in the store.

    manifest  the manifest's bytes, whose digest is the image's
    config    the configuration's bytes
    layers    the folders of the layers, the lowest first
    """

    name: str
    manifest: bytes
    config: bytes
    layers: list[Path]

    @property
    def diff_ids(self) -> list[str]:
        """The digests of the layers, the lowest first."""
        return list(json.loads(self.config)["rootfs"]["diff_ids"])


def read_image(name: str) -> Image:
    """Reads an image by its full name, such as localhost/plant-python:latest.

    Raises:
        PlantError: There is no image with this name.
    """
    for image in _read("overlay-images/images.json"):
        if name in image.get("names", ()):
            return _image(name, image)
    raise PlantError(f"no image {name} in {STORE}; there are {', '.join(sorted(names())) or 'none'}: run make plant")


def names() -> set[str]:
    """The full names of all images in the store."""
    return {name for image in _read("overlay-images/images.json") for name in image.get("names", ())}


def _image(name: str, image: dict[str, Any]) -> Image:
    folder = STORE / "overlay-images" / image["id"]
    digest = f"sha256:{image['id']}"
    config = folder / f"={b64encode(digest.encode()).decode()}"
    by_id = {layer["id"]: layer for layer in _read("overlay-layers/layers.json")}
    layers: list[Path] = []
    layer = by_id.get(image["layer"])
    while layer:
        layers.insert(0, STORE / "overlay" / layer["id"] / "diff")
        layer = by_id.get(layer.get("parent", ""))
    return Image(name, (folder / "manifest").read_bytes(), config.read_bytes(), layers)


def _read(name: str) -> Any:
    file = STORE / name
    return json.loads(file.read_text()) if file.exists() else []
