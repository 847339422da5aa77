"""Takes apart an Accelerator of Hugging Face Accelerate, which knows all objects that it has prepared."""

import sys
from collections.abc import Iterator
from typing import Any

from ddpjob_rank.errors import ConfigError

DIVIDES_STATE_ITSELF = {"DEEPSPEED", "MEGATRON_LM"}
"""The kinds of training in which `state_dict` of an optimizer is not the whole state."""


def is_accelerator(value: object) -> bool:
    """Whether an object is an Accelerator."""
    return isinstance(value, getattr(sys.modules.get("accelerate"), "Accelerator", ()))


def parts_of(accelerator: Any) -> Iterator[tuple[str, Any]]:
    """What `accelerator.prepare` and `accelerator.register_for_checkpointing` were given, by name.

    A single model has the name `model`, and further ones are numbered, so that a checkpoint is the same as if the
    program passed each object itself.

    Raises:
        ConfigError: There is no model yet, or the state cannot be saved.
    """
    kind = accelerator.distributed_type.value
    if kind in DIVIDES_STATE_ITSELF:
        raise ConfigError(f"{kind} divides the state in its own way: save with accelerator.save_state() instead")
    if not accelerator._models:  # noqa: SLF001  (as below: there is no public way to them)
        raise ConfigError("the Accelerator has no model yet: call accelerator.prepare(…) first")
    for name in ("model", "optimizer", "scheduler", "custom_object"):
        for number, part in enumerate(getattr(accelerator, f"_{name}s")):
            yield f"{name}.{number}" if number else name, part
    if accelerator.scaler is not None:
        yield "scaler", accelerator.scaler
