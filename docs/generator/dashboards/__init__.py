"""Generates the Grafana dashboards that the chart contains."""

from .job import job
from .namespaces import fleet, team
from .operator import operator

DASHBOARDS = {"fleet": fleet, "team": team, "job": job, "operator": operator}
"""What makes the JSON of each dashboard, by its file's name."""
