"""The alerts that the chart has, for tests of them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "charts" / "ddpjob-operator" / "files" / "alerts.yaml"


def rules() -> Any:
    """The document of the file of rules."""
    return yaml.safe_load(RULES.read_text(encoding="utf-8"))


ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}
"""The alerts by name, in the order of the file."""

DURATION = re.compile(r"\b\d+[smhd]\b")


def hastened(limits: Mapping[str, str], seconds: int) -> Any:
    """The rules, with durations that a test can wait for.

    limits   new limits of single alerts: what follows the last comparison in their expressions
    seconds  what takes the place of each duration in an expression; `for` becomes a second
    """
    document = rules()
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = DURATION.sub(f"{seconds}s", rule["expr"])
            if "for" in rule:
                rule["for"] = "1s"
            if limit := limits.get(rule["alert"]):
                rule["expr"] = re.sub(r"[0-9.]+$", limit, rule["expr"])
    return document
