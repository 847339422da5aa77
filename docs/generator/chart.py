"""Generates the table of values in each chart's README, from its values.yaml and the comments there."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from .markdown import code, table

CHARTS = Path(__file__).resolve().parents[2] / "charts"
CHART = CHARTS / "ddpjob-operator"
CLUSTER_CHART = CHARTS / "ddpjob-cluster"
KEY = re.compile(r"( *)([A-Za-z]+):(.*)")


def values() -> str:
    """Each value of the operator's chart that has a comment, with its default and the comment."""
    return _values(CHART)


def cluster_values() -> str:
    """The same of the cluster's chart."""
    return _values(CLUSTER_CHART)


def _values(chart: Path) -> str:
    return table(("Value", "Default", "Meaning"), _rows((chart / "values.yaml").read_text(encoding="utf-8")))


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
