"""Seeds, saves and restores the random generators of a process together: Python's, NumPy's and torch's.

A state consists of tensors, numbers and strings only, so that a checkpoint can be read without running pickled code.
"""

import hashlib
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

SEED_RANGE = 2**32


def seed_all(*parts: int) -> None:
    """Seeds all generators from a few numbers; different numbers give independent streams."""
    seed = int(np.random.SeedSequence(parts).generate_state(1)[0]) % SEED_RANGE
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (the legacy generator is global, and training code uses it)
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # torch.manual_seed would also queue a call, with a whole stack trace, for each kind of device.
        torch.default_generator.manual_seed(seed)


def derive_seed(*parts: int) -> int:
    """Derives a seed from a few numbers, at low cost. Unlike a sum, it is unrelated to the seeds of other numbers."""
    numbers = struct.pack(f"<{len(parts)}Q", *(part % 2**64 for part in parts))
    return int.from_bytes(hashlib.blake2b(numbers, digest_size=8).digest())


def seed_sample(*parts: int) -> None:
    """Seeds the CPU's generators before a sample is fetched. Called for each sample, so it must be cheap."""
    seed = derive_seed(*parts)
    random.seed(seed)
    np.random.seed(seed % SEED_RANGE)  # noqa: NPY002  (as above)
    torch.default_generator.manual_seed(seed)


def capture() -> dict[str, Any]:
    """The state of all generators of this process."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  (as above)
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(gpu) for gpu in _gpus()] if _on_gpu() else None,
    }


def restore(state: dict[str, Any]) -> None:
    """Restores all generators."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002  (as above)
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and _on_gpu():
        for gpu, generator in zip(_gpus(), state["cuda"], strict=False):  # The number of GPUs may have changed.
            torch.cuda.set_rng_state(generator, gpu)


@contextmanager
def rng_preserved() -> Iterator[None]:
    """Restores all generators at the end of the block, as if nothing had been drawn in it."""
    state = capture()
    try:
        yield
    finally:
        restore(state)


def _gpus() -> list[int]:
    """All GPUs that this process sees, the current one first. DataParallel draws random numbers on each of them."""
    own, count = torch.cuda.current_device(), torch.cuda.device_count()
    return [(own + further) % count for further in range(count)]


def _on_gpu() -> bool:
    """Whether this process uses its GPU. If it does not, reading the GPU's generator would initialize CUDA."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
