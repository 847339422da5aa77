"""The dashboards ask for metrics that there are, by labels and values that these have."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from ddpjob_operator.api import Cause, State
from ddpjob_operator.cluster.serve.job_metrics import COUNTERS, GAUGES, OF_CAUSES, JobMetrics, StartTimes
from ddpjob_operator.cluster.serve.metrics import REGISTRY
from ddpjob_operator.engine import StartPart, TimeKind
from ddpjob_rank.reporting.heartbeat import PARTS
from ddpjob_supervisor.page.document import document
from ddpjob_supervisor.page.metrics import Metrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.dashboards import DASHBOARDS, panels, targets, variables
from tests.unit.supervisor.page.gangs import GANG

OF_PROMETHEUS = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds to what it reads in a cluster; the chart's PodMonitor adds job_name."""

VALUES = {
    "state": {*State},
    "kind": {*TimeKind},
    "cause": {*Cause, "Other"},
    "result": {"ok", "error", "fenced", "bug"},
    "part": {*StartPart, *PARTS},
}
"""All values of labels."""

SELECTOR = re.compile(r"\b((?:ddpjob|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on) \(([^)]+)\)")


@cache
def known() -> dict[str, set[str]]:
    """The labels of each metric by the name of its series."""
    starts = {part: StartTimes() for part in StartPart}
    namespaces = {("team", part): (1, 1.0) for part in StartPart}
    series = {family: {family.labels("team", value): 1.0 for value in family.values} for family in EVERY}
    jobs, metrics, gang = CollectorRegistry(), Metrics(), document(GANG)
    jobs.register(JobMetrics(series, starts, namespaces))
    metrics.note(gang)
    found = {name: {*getattr(one, "_labelnames", ())} for name, one in REGISTRY._names_to_collectors.items()}
    pages = [(generate_latest(jobs), set[str]()), (metrics.exposition(gang), {"job_name"})]
    for page, more in [*pages, (generate_latest(REGISTRY), set[str]())]:
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update({*sample.labels} | more)
    return found


EVERY = (*GAUGES, *COUNTERS, *OF_CAUSES)
QUERIES = [
    pytest.param(query, id=f"{name}: {where}")
    for name, board in DASHBOARDS.items()
    for where, query in [
        *((f"{panel['title']}, {target['refId']}", target["expr"]) for panel, target in targets(board)),
        *variables(board).items(),
    ]
]


def mistakes(query: str) -> Iterator[str]:
    """What a query asks for that there is not."""
    labels = set(OF_PROMETHEUS)
    for name, matchers in SELECTOR.findall(query):
        if name not in known():
            yield f"there is no metric {name}"
            continue
        labels |= known()[name]
        for label, _, values in MATCHER.findall(matchers):
            if label not in known()[name] | OF_PROMETHEUS:
                yield f"{name} has no label {label}"
            unknown = {*values.split("|")} - VALUES.get(label, {*values.split("|")})
            if unknown and not values.startswith("$"):
                yield f"{label} is never one of {unknown}"
    for group in GROUPING.findall(query):
        yield from (f"nothing has the label {one}" for one in group.split(", ") if one not in labels | {"le"})


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_what_there_is(query: str) -> None:
    assert [*mistakes(query)] == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sum(ddpjob_job)", "there is no metric ddpjob_job"),
        ('ddpjob_jobs{status="Running"}', "ddpjob_jobs has no label status"),
        ('ddpjob_jobs{state=~"Running|Stall"}', "state is never one of {'Stall'}"),
        ("sum by (name) (ddpjob_jobs)", "nothing has the label name"),
    ],
)
def test_a_mistake_is_found(query: str, said: str) -> None:
    assert [*mistakes(query)] == [said]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_panel_says_what_it_shows(name: str) -> None:
    shown = panels(DASHBOARDS[name])
    for panel in shown:
        assert (panel["description"] and panel["fieldConfig"]["defaults"].get("unit")) or panel["type"] == "table"
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    ids = Counter(panel["id"] for panel in DASHBOARDS[name]["panels"])
    assert max(ids.values()) == 1


@pytest.mark.parametrize("name", DASHBOARDS)
def test_series_of_a_panel_can_be_told_apart(name: str) -> None:
    for panel in panels(DASHBOARDS[name]):
        if panel["type"] in {"timeseries", "bargauge"}:
            legends = [target["legendFormat"] for target in panel["targets"]]
            assert len({*legends}) == len(legends), panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_lie_upon_each_other_and_rows_are_full(name: str) -> None:
    cells = Counter(
        (x, y)
        for panel in DASHBOARDS[name]["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    )
    assert max(cells.values()) == 1
    assert all(x < 24 for x, _ in cells)
    assert len(cells) == 24 * (1 + max(y for _, y in cells))


def test_links_lead_to_dashboards_that_there_are() -> None:
    uids = {board["uid"] for board in DASHBOARDS.values()}
    text = "".join(json.dumps(board) for board in DASHBOARDS.values())
    linked = {*re.findall(r"/d/([\w-]+)", text)}
    assert linked == {"ddpjob-team", "ddpjob-job"} <= uids
