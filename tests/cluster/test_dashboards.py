"""Each panel of the Grafana dashboards shows figures in a real Prometheus, once what it is about has happened."""

import json
import math
import re
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml
from ddpjob_supervisor.page.document import document
from ddpjob_supervisor.page.metrics import Metrics

from tests.plant import Plant
from tests.plant.prometheus import Binaries, Monitoring, of_debian, of_modules, start_prometheus
from tests.support.dashboards import DASHBOARDS, Dashboard, Panel, Target, targets, variables
from tests.support.jobs import FOR_LONG, Team, a_job, on_whole_nodes, steered
from tests.support.operators import Operator
from tests.support.text_page import a_text_page
from tests.support.waiting import patience
from tests.training.forking import start_supervisor_cold
from tests.training.gang import Gang
from tests.unit.supervisor.page.gangs import GANG

SCRIPT = """
import os, time
from ddpjob import activity, report
from ddpjob_rank.reporting.report import report_parts

report(total=100_000, samples=64)
report_parts({"data": 0.01, "forward": 0.02, "backward": 0.05, "communication": 0.02, "optimizer": 0.01})
for step in range(1, 100_000):
    time.sleep(0.1)
    report(step=step, loss=1 / step, learning_rate=0.1)
    if step == 10:
        with activity("saving"):
            report(checkpoint=step)
    if os.environ["RANK"] == "1" and os.path.exists("fail"):
        os.remove("fail")
        raise RuntimeError("it fails once")
"""
STRAGGLER = "ddpjob_trainer_straggler_slowdown"
"""Found only after half a minute, so another page shows it."""
WINDOW = "3s"
"""Stands for Grafana's intervals."""
LOOK_BACK_SECONDS = 600

LABEL = re.compile(r"{{(\w+)}}")
LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")


def everything_happens(team: Team, gang: Gang, operator: Operator, monitoring: Monitoring, slow: str) -> None:
    assert operator.ports
    monitoring.scrape("operator", {f"127.0.0.1:{operator.ports[0]}": {"pod": "operator-0"}})
    monitoring.wait("the operator to be scraped", lambda: monitoring.query("ddpjob_leader"))
    trains = FOR_LONG | steered(address=gang.address(0))
    once = {"backoffSeconds": 0}
    team.apply(
        a_job("trains", annotations=trains, network={"statusPort": gang.ports[2]}, restart=once),
        on_whole_nodes(a_job("moves", 1, FOR_LONG, restart=once)),
        a_job("ends", 1),
        a_job("fails", 1, steered(runs_for="0s", exit_code="1"), restart={"maxRestarts": 0}),
    )
    gang.uid = (team.job("trains") or {})["metadata"]["uid"]
    script = gang.directory / "train.py"
    script.write_text(SCRIPT)
    gang.start("--start-method", "cold", str(script))
    addresses = [f"{gang.address(node)}:{gang.ports[2]}" for node in range(gang.nodes)]
    names = {"namespace": team.namespace, "job_name": "trains"}
    monitoring.scrape("supervisors", {one: {**names, "pod": f"pod-{one}"} for one in [*addresses, slow]})
    team.wait("Running", "moves")
    monitoring.wait("steps some time ago", lambda: monitoring.query(f"ddpjob_trainer_step offset {WINDOW}"))
    (gang.directory / "fail").touch()
    team.delete("pods", team.pod(0, "moves"))
    team.until("{.status.disruptions}=1", "moves")
    team.wait("Succeeded", "ends")
    team.wait("Failed", "fails")
    team.until("{.status.restarts}=1", "trains")


def series(monitoring: Monitoring, team: Team, query: str) -> list[dict[str, str]]:
    """The labels of each series that has had a figure."""
    if found := LABEL_VALUES.fullmatch(query):
        query = f"count by ({found[2]}) ({found[1]})"
    intervals = dict.fromkeys(("$__rate_interval", "$__interval", "$__range"), WINDOW)
    for name, value in {**intervals, "$namespace": team.namespace, "$job": "trains", "$operator": "operator"}.items():
        query = query.replace(name, value)
    assert "$" not in query
    now = time.time()
    asked = urlencode({"query": query, "start": now - LOOK_BACK_SECONDS, "end": now, "step": 1})
    with urllib.request.urlopen(f"{monitoring.url}/api/v1/query_range?{asked}") as answer:
        found_there = json.load(answer)["data"]["result"]
    return [one["metric"] for one in found_there if not all(math.isnan(float(value)) for _, value in one["values"])]


NEWEST = pytest.mark.full("the same in another version of Prometheus, which takes minutes to build")


@pytest.mark.parametrize(
    "programs", [pytest.param(of_debian, id="debian"), pytest.param(of_modules, id="newest", marks=NEWEST)]
)
def test_each_query_of_a_dashboard_gives_a_figure_and_each_legend_stands_for_one_series(
    programs: Callable[[], Binaries], unattended: Plant, tmp_path: Path
) -> None:
    team, gang = Team(unattended), Gang(tmp_path, 2, launch=start_supervisor_cold)
    with (
        start_prometheus(programs()) as monitoring,
        a_text_page() as (slow, tell),
        team.operator("--namespace=there-is-none") as operator,
    ):
        tell(
            "\n".join(
                line for line in Metrics().exposition(document(GANG)).decode().splitlines() if STRAGGLER in line
            )
        )
        try:
            everything_happens(team, gang, operator, monitoring, slow)
            assert_figures(team, monitoring)
        finally:
            for node in gang.supervisors:
                gang.kill_node(node)


def assert_figures(team: Team, monitoring: Monitoring) -> None:
    left = {
        query: (name, panel, target) for name, board in DASHBOARDS.items() for query, panel, target in queries(board)
    }

    def all_there() -> bool:
        for query, (_, panel, target) in [*left.items()]:
            if found := series(monitoring, team, query):
                del left[query]
                if "legendFormat" in target:
                    labels = LABEL.findall(target["legendFormat"])
                    shown = Counter(tuple(one[label] for label in labels) for one in found)
                    assert max(shown.values()) == 1, (query, shown)
                elif panel.get("type") == "stat":
                    assert len(found) == 1, (query, found)
        return not left

    deadline = time.monotonic() + patience(15)
    while not all_there() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left, "\n".join(f"{name}, {panel.get('title')}: {query}" for query, (name, panel, _) in left.items())


def queries(board: Dashboard) -> Iterator[tuple[str, Panel, Target]]:
    """All that a dashboard asks Prometheus for, with the panel and its target, or with nothing for a variable."""
    yield from ((target["expr"], panel, target) for panel, target in targets(board))
    yield from ((query, {}, {}) for query in variables(board).values())


OPERATOR = 'job="operator", instance="a"'
RESTARTS = f'ddpjob_restarts_total{{namespace="team", cause="PeerLost", {OPERATOR}}}'


@pytest.mark.parametrize(
    ("leads", "restarts", "shown"),
    [
        pytest.param("1x20", "_x9 1x10", 1, id="the first restart in a namespace"),
        pytest.param("1x20", "0x9 1x10", 1, id="a further one"),
        pytest.param("1x20", "3x20", None, id="an old one"),
        pytest.param("_x9 1x10", "_x9 3x10", None, id="a process that has counted before its first scrape"),
    ],
)
def test_the_first_restart_of_a_namespace_is_shown_in_its_interval_alone(
    leads: str, restarts: str, shown: int | None, tmp_path: Path
) -> None:
    (query,) = {
        target["expr"] for panel, target in targets(DASHBOARDS["fleet"]) if panel["title"] == "Restarts by cause"
    }
    query = query.replace("$__interval", "5m").replace("$namespace", ".*")
    series = {f"ddpjob_leader{{{OPERATOR}}}": leads, RESTARTS: restarts}
    found = [{"labels": '{cause="PeerLost"}', "value": shown}] if shown else []
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "12m", "exp_samples": found},
            {"expr": query, "eval_time": "17m", "exp_samples": []},
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    done = subprocess.run([of_debian().promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
