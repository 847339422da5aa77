"""Small sets of images on disk, as files and in shards, made anew by each test."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("beetle", "cat", "dog")


def jpeg(label: int, number: int, size: tuple[int, int] = (96, 80)) -> bytes:
    """A noisy picture whose colour tells its class."""
    pixels = np.random.default_rng(number).integers(0, 128, (size[1], size[0], 3), dtype=np.uint8)
    pixels[..., label % 3] += 127
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def pictures(count: int, size: tuple[int, int] = (96, 80)) -> Iterator[tuple[str, int, bytes]]:
    """Names, classes and contents of as many for each class."""
    for number in range(count * len(CLASSES)):
        label = number % len(CLASSES)
        yield f"{number:05}", label, jpeg(label, number, size)


def as_files(directory: Path, train: int = 16, val: int = 4, size: tuple[int, int] = (96, 80)) -> Path:
    """train/CLASS/*.jpg and val/CLASS/*.jpg."""
    for part, count in (("train", train), ("val", val)):
        for name, label, content in pictures(count, size):
            file = directory / part / CLASSES[label] / f"{name}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return directory


def as_shards(directory: Path, train: int = 16, val: int = 4, in_a_shard: int = 10) -> Path:
    """train/*.tar and val/*.tar."""
    for part, count in (("train", train), ("val", val)):
        samples = list(pictures(count))
        for first in range(0, len(samples), in_a_shard):
            shard = directory / part / f"{part}-{first // in_a_shard:04}.tar"
            shard.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(shard, "w") as tar:
                for name, label, content in samples[first : first + in_a_shard]:
                    add(tar, f"{name}.jpg", content)
                    add(tar, f"{name}.cls", str(label).encode())
    return directory


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
