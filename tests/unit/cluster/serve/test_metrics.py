"""What Prometheus is told, as the alerts of docs/how-to/operate.md need it."""

import re
from pathlib import Path

from ddpjob_operator.cluster.serve.metrics import REGISTRY
from prometheus_client import generate_latest

PAGE = (Path(__file__).parents[4] / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
SERIES = re.compile(r'ddpjob_\w+\{\w+="\w+"\}')


def test_each_series_of_an_alert_is_there_before_anything_has_happened() -> None:
    """Where a series begins with 1, Prometheus sees no increase."""
    told = generate_latest(REGISTRY).decode()
    wanted = SERIES.findall(PAGE)
    assert len(wanted) >= 3
    assert [one for one in wanted if f"{one} " not in told] == []
