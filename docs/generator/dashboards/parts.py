"""The parts of a dashboard: panels with their queries, and what is the same on all dashboards."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.dashboard import Panel as BuiltPanel
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "ddpjob"
"""Every dashboard has this tag, by which the menu of each finds the others."""
WIDTH = 24
"""Columns of a dashboard."""

SECONDS, SHARE, BYTES, COUNT = "s", "percentunit", "bytes", "short"
"""Grafana's names of units."""

Panel = Builder[BuiltPanel]


@dataclass(frozen=True)
class Query:
    """An expression, and the legend of each of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table: an expression whose series have the label of the table's rows."""

    title: str
    expression: str
    unit: str = COUNT
    thresholds: tuple[tuple[float, str], ...] = ()


def figure(
    title: str,
    meaning: str,
    query: str | Query,
    *,
    unit: str = COUNT,
    thresholds: Iterable[tuple[float, str]] = (),
    base: str = "green",
    names: bool = False,
    width: int = 4,
) -> Panel:
    """The present value of a query, large. Its color is `base`, or that of the highest threshold that is reached.

    With `names`, the legends of the query's series are shown, not their values.
    """
    query = Query(query) if isinstance(query, str) else query
    panel = stat.Panel().title(title).description(meaning).datasource(SOURCE).span(width).height(4).unit(unit)
    panel = panel.with_target(_target(query, 0).instant()).thresholds(_thresholds(base, thresholds)).no_value("none")
    mode = BigValueTextMode.NAME if names else BigValueTextMode.VALUE
    panel = panel.color_mode(BigValueColorMode.VALUE).graph_mode(BigValueGraphMode.NONE)
    return panel.text_mode(mode).reduce_options(_last())


def graph(
    title: str,
    meaning: str,
    *queries: Query,
    unit: str = COUNT,
    stacked: bool = False,
    bars: bool = False,
    zero: bool = True,
    colors: Mapping[str, str] = MappingProxyType({}),
    thresholds: Iterable[tuple[float, str]] = (),
    width: int = 12,
) -> Panel:
    """Series over time. With `zero`, the axis begins at 0. `colors` are those of series, by their legend.

    `bars` are for what happened in each interval, which is five minutes at least.
    """
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
    panel = (
        timeseries.Panel()
        .title(title)
        .description(meaning)
        .datasource(SOURCE)
        .span(width)
        .height(8)
        .unit(unit)
        .fill_opacity(60 if bars else 20 if stacked else 0)
        .legend(legend.placement(LegendPlacement.BOTTOM))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    for number, query in enumerate(queries):
        panel = panel.with_target(_target(query, number))
    if zero:
        panel = panel.min(0)
    if bars:
        panel = panel.draw_style(GraphDrawStyle.BARS).interval("5m").decimals(0)
    if bars or stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if steps := tuple(thresholds):
        style = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(_thresholds("transparent", steps)).thresholds_style(style)
    for name, color in colors.items():
        panel = panel.override_by_name(name, [_property("color", {"mode": "fixed", "fixedColor": color})])
    return panel


def gauges(title: str, meaning: str, *queries: Query, unit: str = COUNT, width: int = 12) -> Panel:
    """The present value of each series, as a horizontal bar."""
    panel = bargauge.Panel().title(title).description(meaning).datasource(SOURCE).span(width).height(8).unit(unit)
    for number, query in enumerate(queries):
        panel = panel.with_target(_target(query, number).instant())
    panel = panel.min(0).orientation(VizOrientation.HORIZONTAL).display_mode(BarGaugeDisplayMode.BASIC)
    return panel.thresholds(_thresholds("blue", ())).reduce_options(_last())


def listing(title: str, meaning: str, label: str, columns: Iterable[Column], *, link: str = "") -> Panel:
    """A table with a row for each value of a label, which links to a dashboard."""
    columns = tuple(columns)
    panel = table.Panel().title(title).description(meaning).datasource(SOURCE).span(WIDTH).height(8).no_value("")
    for number, column in enumerate(columns):
        query = _target(Query(column.expression), number).instant().format(PromQueryFormat.TABLE)
        panel = panel.with_target(query)
    renamed = {f"Value #{ascii_uppercase[number]}": column.title for number, column in enumerate(columns)}
    panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    options = {"excludeByName": {"Time": True}, "renameByName": renamed}
    panel = panel.with_transformation(DataTransformerConfig(id_val="organize", options=options))
    for column in columns:
        properties = [_property("unit", column.unit)]
        if column.thresholds:
            steps: list[dict[str, object]] = [{"color": "text", "value": None}]
            steps += [{"color": color, "value": value} for value, color in column.thresholds]
            properties.append(_property("thresholds", {"mode": "absolute", "steps": steps}))
            properties.append(_property("custom.cellOptions", {"type": "color-text"}))
        panel = panel.override_by_name(column.title, properties)
    if link:
        properties = [_property("links", [{"title": f"Open this {label}", "url": link}])]
        panel = panel.override_by_name(label, properties)
    return panel


def source() -> dashboard.DatasourceVariable:
    """The variable by which a reader chooses the Prometheus."""
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def labels(name: str, query: str, *, several: bool = False) -> dashboard.QueryVariable:
    """A variable whose values are those of a label; with `several`, the reader may choose many of them, or all."""
    variable = dashboard.QueryVariable(name).datasource(SOURCE).sort(VariableSort.ALPHABETICAL_ASC)
    variable = variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).query({"query": query, "refId": name})
    if not several:
        return variable
    everything = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def page(uid: str, title: str, meaning: str, variables: Iterable[Any], rows: Mapping[str, Iterable[Panel]]) -> str:
    """Returns the JSON of a dashboard: rows of panels, each row with a heading."""
    others = dashboard.DashboardLink("DDPJob").type(DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(True)
    board = (
        dashboard.Dashboard(f"DDPJob / {title}")
        .uid(uid)
        .description(meaning)
        .tags([TAG])
        .link(others.keep_time(True).include_vars(True))
        .time("now-6h", "now")
        .timezone("browser")
        .refresh("1m")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    for variable in (source(), *variables):
        board = board.with_variable(variable)
    for heading, panels in rows.items():
        board = board.with_row(dashboard.Row(heading))
        for panel in panels:
            board = board.with_panel(panel)
    built = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    for number, panel in enumerate(built["panels"], 1):
        panel["id"] = number
    return json.dumps(built, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def rise(counter: str, window: str, process: str = "ddpjob_leader") -> str:
    """By how much a counter has risen, also if the series is new: Prometheus' `increase` misses its first value.

    `process` is a metric that the counter's process has from its start: if Prometheus did not scrape that process
    when the window began, the series is new for this reason alone.
    """
    new = f"{counter} unless {counter} offset {window} and on (job, instance) {process} offset {window}"
    return f"({new} or increase({counter}[{window}]))"


def _target(query: Query, number: int) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).ref_id(ascii_uppercase[number])
    return target.legend_format(query.legend) if query.legend else target


def _thresholds(base: str, steps: Iterable[tuple[float, str]]) -> dashboard.ThresholdsConfig:
    values = [Threshold(None, base), *(Threshold(value, color) for value, color in steps)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(values)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _property(name: str, value: object) -> DynamicConfigValue:
    return DynamicConfigValue(id_val=name, value=value)
