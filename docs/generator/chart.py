"""Generates the table of values in the chart's README, from values.yaml and its comments."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from .markdown import code, table

CHART = Path(__file__).resolve().parents[2] / "charts" / "ddpjob-operator"
KEY = re.compile(r"( *)([A-Za-z]+):(.*)")


def values() -> str:
    """Each value that has a comment, with its default and the comment."""
    return table(("Value", "Default", "Meaning"), _rows((CHART / "values.yaml").read_text(encoding="utf-8")))


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    defaults = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip(" #"))
            continue
        if key := KEY.fullmatch(line):
            path = [*path[: len(key[1]) // 2], key[2]]
            if comment:
                yield code(".".join(path)), code(_default(defaults, path)), " ".join(comment)
        comment = []


def _default(defaults: object, path: list[str]) -> str:
    for name in path:
        assert isinstance(defaults, dict)
        defaults = defaults[name]
    return yaml.safe_dump(defaults, default_flow_style=True, width=1000).removesuffix("...\n").strip()
