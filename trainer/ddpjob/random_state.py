"""Seeds, saves and restores the random generators of a process together: Python's, NumPy's and torch's.

A state consists of tensors, numbers and strings only, so that a checkpoint can be read without running pickled code.
Without NumPy, its generator is left out. CUDA is not initialized for its generators: a process that has not used its
GPU has not drawn from them.
"""

import hashlib
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

try:
    import numpy as np
except ModuleNotFoundError:  # torch works without NumPy.
    np = None  # type: ignore[assignment]

SEED_RANGE = 2**32

State = dict[str, Any]
"""The states of generators, by the generators' names."""


def seed_all(*parts: int) -> None:
    """Seeds all generators from a few numbers; different numbers give independent streams."""
    if np:
        seed = int(np.random.SeedSequence(parts).generate_state(1)[0]) % SEED_RANGE
        np.random.seed(seed)
    else:
        seed = derive_seed(*parts) % SEED_RANGE
    random.seed(seed)
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
    if np:
        np.random.seed(seed % SEED_RANGE)
    torch.default_generator.manual_seed(seed)


def capture() -> State:
    """The states of all generators of this process."""
    return capture_cpu() | {"cuda": [torch.cuda.get_rng_state(gpu) for gpu in _gpus()] if _on_gpu() else None}


def capture_cpu() -> State:
    """The states of the CPU's generators only, from which samplers and data sets draw."""
    return {
        "python": _of_python(),
        "numpy": _of_numpy(),
        "torch": torch.default_generator.get_state(),
    }


def _of_python() -> tuple[int, torch.Tensor, float | None]:
    """The state of Python's generator. Its 625 numbers are a tensor, because each object in a state takes time."""
    version, keys, gauss = random.getstate()
    return version, torch.tensor(keys), gauss


def restore(state: State) -> None:
    """Restores the generators whose states are given."""
    if "python" in state:
        version, keys, gauss = state["python"]  # Older checkpoints have the keys as a tuple.
        random.setstate((version, tuple(keys.tolist() if isinstance(keys, torch.Tensor) else keys), gauss))
    if np and state.get("numpy"):
        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    if "torch" in state:
        torch.default_generator.set_state(state["torch"])
    if state.get("cuda") and _on_gpu():
        for gpu, generator in zip(_gpus(), state["cuda"], strict=False):  # The number of GPUs may have changed.
            torch.cuda.set_rng_state(generator, gpu)


def changed(before: State, after: State) -> State:
    """The states in `before` of the generators whose states differ in `after`."""
    return {name: state for name, state in before.items() if not _equal(state, after[name])}


@contextmanager
def rng_preserved() -> Iterator[None]:
    """Restores all generators at the end of the block, as if nothing had been drawn in it."""
    state = capture()
    try:
        yield
    finally:
        restore(state)


def _of_numpy() -> tuple[Any, ...] | None:
    if not np:
        return None
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    return kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, gauss


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, tuple):
        return all(map(_equal, left, right))
    return bool(left == right)


def _gpus() -> list[int]:
    """All GPUs that this process sees, the current one first. DataParallel draws random numbers on each of them."""
    own, count = torch.cuda.current_device(), torch.cuda.device_count()
    return [(own + further) % count for further in range(count)]


def _on_gpu() -> bool:
    """Whether this process uses its GPU. If it does not, reading the GPU's generator would initialize CUDA."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
