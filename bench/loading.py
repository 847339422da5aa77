"""Measures how fast images are decoded: our loader beside that of torchvision's reference example, on the same files.

`python -m bench.loading ours|reference DIRECTORY SIZE` makes one run, and prints images per second.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ddpjob.data.order import Order
from ddpjob_examples.images.image import DEVIATION, MEAN, normalised
from ddpjob_examples.images.layout import image_classes
from ddpjob_trainer.data.loader import Loader
from PIL import Image
from torch.utils.data import DataLoader, RandomSampler

from bench import pairs
from bench.table import Row

ROOT = Path(__file__).parents[1]
LEAST, GOAL = 1.0, 1.3
BATCH, WORKERS, CLASSES = 32, 2, 10
IMAGES, DISTINCT = 2400, 60
"""The number of files, and of distinct images among them. The other files are hard links, to save disk space and
time."""
WIDTH, HEIGHT = 500, 375
"""About the mean size of ImageNet's images, both in pixels and in bytes."""


def rows(count: int, *, quick: bool) -> list[Row]:
    """Compares our loader with the reference, for crops of the usual size and for small crops."""
    with tempfile.TemporaryDirectory(prefix="bench-loading-") as name:
        make(Path(name) / "train", IMAGES // 20 if quick else IMAGES)
        return [_compared(count, name, size) for size in (224, 64)]


def _compared(count: int, directory: str, size: int) -> Row:
    found = pairs.in_turn(count, lambda: _run("ours", directory, size), lambda: _run("reference", directory, size))
    what = f"ImageFolder, {size} x {size} cut out of {WIDTH} x {HEIGHT}, {WORKERS} workers"
    return pairs.ratio(what, found, "images/s", least=LEAST, goal=GOAL)


def _run(kind: str, directory: str, size: int) -> float:
    command = [sys.executable, "-m", "bench.loading", kind, directory, str(size)]
    return round(float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout), 1)


def make(directory: Path, images: int) -> None:
    """Writes files in the layout of torchvision's ImageFolder."""
    random = np.random.default_rng(0)
    for number in range(images):
        file = directory / f"class-{number % CLASSES}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if number < DISTINCT:
            coarse = Image.fromarray(random.integers(0, 255, (HEIGHT // 4, WIDTH // 4, 3), dtype=np.uint8))
            content = io.BytesIO()
            coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
            file.write_bytes(content.getvalue())
        else:
            other = number % DISTINCT
            os.link(directory / f"class-{other % CLASSES}" / f"{other}.jpg", file)


def ours(directory: Path, size: int) -> Iterator[Any]:
    """The batches of an epoch, as `ddpjob-train --workload imagenet` loads them."""
    data = image_classes(directory, size).train
    loader = Loader(data, seed=0, device=torch.device("cpu"), workers=WORKERS, inputs=normalised)
    return loader.batches(1, Order(loader.samples, BATCH, 0, 1, seed=0).batches(1))


def reference(directory: Path, size: int) -> Iterator[Any]:
    """The batches of an epoch, as torchvision's references/classification loads them."""
    from torchvision.datasets import ImageFolder  # noqa: PLC0415  (its import takes seconds)
    from torchvision.transforms import v2  # noqa: PLC0415

    steps = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    steps += [v2.ToDtype(torch.float, scale=True), v2.Normalize(MEAN, DEVIATION), v2.ToPureTensor()]
    data = ImageFolder(str(directory / "train"), v2.Compose(steps))
    return iter(DataLoader(data, BATCH, sampler=RandomSampler(data), num_workers=WORKERS))


def main() -> None:
    """Measures one run, from the first batch to the last, and prints images per second."""
    kind, directory, size = sys.argv[1:]
    batches = {"ours": ours, "reference": reference}[kind](Path(directory), int(size))
    next(batches)
    began, images = time.monotonic(), 0
    for inputs, _ in batches:
        images += len(inputs)
    print(images / (time.monotonic() - began))


if __name__ == "__main__":
    main()
