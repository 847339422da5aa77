"""What is in a checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def tensors(value: Any, path: str = "") -> dict[str, torch.Tensor]:
    """All tensors of a nested value by their paths."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    return {name: tensor for key, item in items for name, tensor in tensors(item, f"{path}/{key}").items()}


def state(directory: Path, step: int | None = None) -> Any:
    """The state in the last checkpoint, or that of a step: the objects' by their names, beside the ranks'."""
    path = max(directory.glob("step-*")) if step is None else directory / f"step-{step:08}"
    saved = torch.load(path / "state.pt", weights_only=True)
    return saved.pop("shared") | saved
