"""What Prometheus is told, as the alerts of the chart need it."""

import re

import pytest
from ddpjob_operator.cluster.serve.job_metrics import COUNTERS, GAUGES, OF_CAUSES
from ddpjob_operator.cluster.serve.metrics import REGISTRY
from prometheus_client import generate_latest

from tests.support.alerts import ALERTS

ABOUT_ITSELF = generate_latest(REGISTRY).decode()
OF_JOBS = {family.name for family in GAUGES} | {f"{family.name}_total" for family in COUNTERS}
BEGINNING_LATE = {f"{family.name}_total" for family in OF_CAUSES}
SERIES = re.compile(r'\bddpjob_\w+(?:\{\w+="\w+"\})?')


@pytest.mark.parametrize("name", ALERTS)
def test_each_series_of_an_alert_is_there_before_anything_has_happened_or_the_alert_copes(name: str) -> None:
    """Where a series begins with 1, Prometheus sees no increase."""
    expression = ALERTS[name]["expr"]
    series = SERIES.findall(expression)
    assert series
    for one in series:
        metric = one.partition("{")[0]
        if metric in BEGINNING_LATE:
            assert f"{one} > 0 unless {one} offset" in expression
        elif metric not in OF_JOBS and not metric.startswith("ddpjob_trainer_"):
            begun = f"\n{one} " if "{" in one or "[" in expression else f"\n# TYPE {one} gauge"
            assert begun in ABOUT_ITSELF
