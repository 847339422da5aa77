"""Generates the table of alerts, from the chart's rules."""

import yaml

from .chart import CHART
from .markdown import code, table


def alerts() -> str:
    """Each alert, with its severity and when it fires."""
    document = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    return table(
        ("Alert", "Severity", "Fires when"),
        (
            (
                f"[{rule['alert']}](alerts.md#{rule['alert'].lower()})",
                rule["labels"]["severity"],
                " for ".join((code(" ".join(rule["expr"].split())), *filter(None, (rule.get("for"),)))),
            )
            for group in document["groups"]
            for rule in group["rules"]
        ),
    )
