"""The chart's Grafana dashboards: their panels, and what these ask Prometheus for."""

import json
from typing import Any

from tests.support.helm import CHART

Panel = dict[str, Any]
Dashboard = dict[str, Any]
Target = dict[str, Any]

DASHBOARDS: dict[str, Dashboard] = {
    file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(CHART.glob("files/dashboards/*.json"))
}


def panels(dashboard: Dashboard) -> list[Panel]:
    """All panels that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: Dashboard) -> list[tuple[Panel, Target]]:
    """Each panel, with each of its queries: `expr` is what it asks Prometheus for."""
    return [(panel, target) for panel in panels(dashboard) for target in panel["targets"]]


def variables(dashboard: Dashboard) -> dict[str, str]:
    """The query of each variable whose values come from Prometheus."""
    return {
        variable["name"]: variable["query"]["query"]
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    }
