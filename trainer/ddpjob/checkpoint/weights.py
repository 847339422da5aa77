"""Writes the weights of a checkpoint into a safetensors file, which programs can read without DDPJob or PyTorch."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ddpjob_rank.console import complain, listed, record
from ddpjob_rank.errors import ConfigError, TrainerError
from torch import Tensor

from .content import sync
from .encoding import SHARED, TENSORS, StateDict
from .opening import read_newest
from .reading import Found
from .shard_fitting import fitted

NAMED_THINGS = 8
"""The largest number of names that a message lists."""


def export(address: str | os.PathLike[str], output: Path, thing: str = "model") -> None:
    """Writes the tensors of one thing in the newest checkpoint, by their names in its `state_dict()`.

    Args:
        address: The checkpoint directory or its URL, or one checkpoint in it. It may be read while training goes on.
        output: The file to write. If it exists, it is replaced.
        thing: The name under which the thing is saved, such as `model`; for a thing in a dict, the names joined by
            dots.

    Raises:
        ConfigError: There is no valid checkpoint, it has no tensors of this name, the file cannot be written, or
            the package safetensors is missing.
        CheckpointUnusableError: The newest checkpoint needs another version, or is not what its manifest says.
        StorageUnavailableError: A checkpoint cannot be read now.
    """
    try:
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import save_file  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError("the package safetensors is missing: install it beside torch") from error
    found = read_newest(address)
    tensors = {name: _own(tensor) for name, tensor in _named(_state(found, thing), "")}
    if not tensors:
        raise ConfigError(f"{thing} in {found.location} has no tensors")
    try:
        with TemporaryDirectory(prefix=".export-", dir=output.absolute().parent) as workspace:
            fresh = Path(workspace, output.name)
            (mode := Path(workspace, "mode")).touch()
            save_file(tensors, fresh, {"format": "pt"})
            # Use the mode that other new files get: safetensors lets only the owner read the file.
            fresh.chmod(mode.stat().st_mode)
            sync(fresh)
            fresh.replace(output)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{output} cannot be written: {getattr(error, 'strerror', error)}") from error
    record("exported", step=found.manifest.step, checkpoint=found.location, tensors=len(tensors), file=output)


def _state(found: Found[StateDict], thing: str) -> Any:
    """The state of a thing, with whole tensors."""
    saved = found.state if SHARED in found.state else {SHARED: found.state}
    if thing not in saved[SHARED]:
        known = [str(name) for name in saved[SHARED]]
        raise ConfigError(f"{found.location} has no {thing}: it has {listed(known, NAMED_THINGS)}")
    if TENSORS not in saved:
        return saved[SHARED][thing]
    return fitted(saved, Path(found.location), {thing: None})[thing]


def _named(value: Any, name: str) -> Iterable[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, f"{name}.{key}" if name else str(key))


def _own(tensor: Tensor) -> Tensor:
    """A copy with its own memory. Tensors in a safetensors file must not overlap, but tied weights do."""
    return tensor.detach().clone().contiguous()


def main() -> None:
    """Runs `ddpjob export`."""
    parser = argparse.ArgumentParser(prog="ddpjob export", allow_abbrev=False)
    parser.add_argument("address")
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--thing", default="model")
    flags = parser.parse_args()
    try:
        export(flags.address, flags.output, flags.thing)
    except TrainerError as error:
        complain(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
