"""Reads parts of an unchecked document, in which any value may have any type."""

from collections.abc import Iterator
from typing import Any

from ddpjob_operator.api.problems import Path

TEMPLATE: Path = ("spec", "template")
POD: Path = (*TEMPLATE, "spec")


def all_containers(job: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields the containers and init containers of the template, with their paths."""
    for kind in ("containers", "initContainers"):
        yield from mappings(job, (*POD, kind))


def mapping(value: Any, path: Path) -> dict[Any, Any]:
    """Returns the mapping at a path; an empty mapping if there is none."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings(value: Any, path: Path, base: Path = ()) -> Iterator[tuple[Path, dict[Any, Any]]]:
    """Yields the mappings in the list at a path, each with its own path. `base` is the path of `value` itself."""
    for index, item in enumerate(listed(value, path)):
        if isinstance(item, dict):
            yield (*base, *path, index), item


def listed(value: Any, path: Path) -> list[Any]:
    """Returns the list at a path; an empty list if there is none."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            return []
    return value if isinstance(value, list) else []
