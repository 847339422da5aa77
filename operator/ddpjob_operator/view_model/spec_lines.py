"""What a job was asked to be, line by line: what its author has chosen, and what is by default."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.model import Model

LONGEST_VALUE = 1000
"""A value is cut off after this many characters."""
TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class SpecLine:
    """A field of a job's spec."""

    path: str
    """Its place, without `spec.`: `restart.maxRestarts`."""
    value: str
    default: bool
    """Whether the value is the default, be it chosen or not: the API server fills in defaults."""


def spec_lines(job: DDPJob) -> tuple[SpecLine, ...]:
    """The fields of a job's spec that have a value, in the order of the reference; of its template, the containers.

    Values of environment variables are left out, because they may be secret.

    Example:
        A job of two nodes with everything else by default begins with `SpecLine("nodes", "2", default=False)` and
        `SpecLine("backend", "Auto", default=True)`.
    """
    return (*_fields(job.spec, ""), *_containers(job.spec.template))


def _fields(model: Model, prefix: str) -> Iterator[SpecLine]:
    for name, known in type(model).model_fields.items():
        value, path = getattr(model, name), f"{prefix}{known.alias or name}"
        if path == TEMPLATE or value is None:
            continue
        if isinstance(value, Model):
            yield from _fields(value, f"{path}.")
        else:
            default = not known.is_required() and value == known.get_default(call_default_factory=True)
            yield SpecLine(path, _text(_plain(value)), default)


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else _of_model(value)


def _of_model(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Model) else value


def _containers(template: Mapping[str, Any]) -> Iterator[SpecLine]:
    """What matters of the containers of a template."""
    pod = template["spec"]
    for kind in ("initContainers", "containers"):
        for container in pod.get(kind) or ():
            for name, value in _container(container):
                yield SpecLine(f"{container['name']}.{name}", _text(value), default=False)


def _container(container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "image", container.get("image", "")
    if words := [*(container.get("command") or ()), *(container.get("args") or ())]:
        yield "command", " ".join(map(str, words))
    for kind in ("requests", "limits"):
        if found := (container.get("resources") or {}).get(kind):
            yield kind, ", ".join(f"{name} {amount}" for name, amount in found.items())
    if variables := container.get("env"):
        yield "env", ", ".join(str(one["name"]) for one in variables)


def _text(value: Any) -> str:
    text = str(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
