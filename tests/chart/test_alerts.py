"""The alerts by Prometheus' own tool: each fires, is resolved, and does not fire just below its limit."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plant.prometheus import of_debian
from tests.support.alerts import ALERTS, RULES, rules
from tests.support.helm import RELEASE, ROOT, named, render

RUNBOOKS = (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
TEAM = {"namespace": "team"}
OPERATOR = {"namespace": "ddpjob-system", "job": "ddpjob-operator"}


@dataclass(frozen=True)
class Case:
    """An alert, and what Prometheus reads, minute by minute.

    alert   its name
    series  the values of each series, in promtool's notation
    fires   the minutes in which it fires
    quiet   the minutes in which it does not
    labels  its labels besides its severity
    """

    alert: str
    series: Mapping[str, str]
    fires: tuple[int, ...] = ()
    quiet: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: TEAM)

    def document(self) -> dict[str, Any]:
        """The case as a test of promtool's."""
        own = {"alertname": self.alert, "alertstate": "firing", "severity": ALERTS[self.alert]["labels"]["severity"]}
        firing = [{"labels": f"ALERTS{labelled(own | {**self.labels})}", "value": 1}]
        expression = f'ALERTS{{alertname="{self.alert}",alertstate="firing"}}'
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "promql_expr_test": [
                {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}
                for minutes, samples in ((self.fires, firing), (self.quiet, []))
                for minute in minutes
            ],
        }


def labelled(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def of_team(name: str, pod: str = "a", **labels: str) -> str:
    return name + labelled({**TEAM, "pod": pod, **labels})


def of_operator(name: str, pod: str = "a", **labels: str) -> str:
    return name + labelled({**OPERATOR, "pod": pod, **labels})


STALLS = of_team("ddpjob_restarts_total", cause="Stalled")
SLOW = 'ddpjob_trainer_straggler_slowdown{namespace="team",job_name="digits",pod="digits-0",node="1",rank="3"}'
ONE_RANK = {"namespace": "team", "job_name": "digits", "node": "1", "rank": "3"}
BUGS, ERRORS = (of_operator("ddpjob_reconciles_total", result=result) for result in ("bug", "error"))
SILENT = of_operator("ddpjob_status_reads_total", result="silent")
LEADS, STANDS_BY = of_operator("ddpjob_leader"), of_operator("ddpjob_leader", "b")

CASES: dict[str, Case] = {
    "a job is stalled, or has failed for that": Case(
        "DDPJobStalled", {of_team("ddpjob_stalled_jobs"): "0 0 1 0 0"}, fires=(2,), quiet=(1, 3)
    ),
    "a stall is counted": Case("DDPJobStalled", {STALLS: "0x30 1x30"}, fires=(31, 44), quiet=(30, 47)),
    "the first stall of a namespace begins a series at 1": Case(
        "DDPJobStalled", {STALLS: "_x5 1x40"}, fires=(5, 19), quiet=(4, 21)
    ),
    "a first restart of another cause": Case(
        "DDPJobStalled",
        {of_team("ddpjob_restarts_total", cause="Application"): "_x5 1x40", STALLS: "_x5 0x40"},
        quiet=(5, 10),
    ),
    "a standby begins at 0 and leads then": Case(
        "DDPJobStalled",
        {STALLS: "4x40 stale", STALLS.replace('"a"', '"b"'): "_x30 0x11 1x30"},
        fires=(42, 55),
        quiet=(20, 32, 41, 59),
    ),
    "a checkpoint is old": Case(
        "DDPJobCheckpointOld",
        {of_team("ddpjob_checkpoint_age_seconds"): "7200 7201 0"},
        fires=(1,),
        quiet=(0, 2),
    ),
    "two replicas report while one was cut off": Case(
        "DDPJobCheckpointOld",
        {of_team("ddpjob_checkpoint_age_seconds", pod): "4000x9" for pod in "ab"},
        quiet=(1, 8),
    ),
    "a loss is not finite": Case(
        "DDPJobDiverged", {of_team("ddpjob_diverged_jobs"): "0 1 1 0"}, fires=(1, 2), quiet=(0, 3)
    ),
    "a rule restarts what has diverged": Case(
        "DDPJobDiverged",
        {of_team("ddpjob_restarts_total", cause="Diverged"): "_x5 1x40"},
        fires=(5, 19),
        quiet=(4, 21),
    ),
    "half of a budget is spent": Case(
        "DDPJobRestartBudgetHalfSpent",
        {of_team("ddpjob_restart_budget_used_ratio"): "0.49 0.5 1 0"},
        fires=(1, 2),
        quiet=(0, 3),
    ),
    "a rank is slow for ten minutes": Case(
        "DDPJobStraggler", {SLOW: "1.3x14 stale"}, fires=(10, 14), quiet=(9, 15), labels=ONE_RANK
    ),
    "a rank is slower by 20 %": Case("DDPJobStraggler", {SLOW: "1.2x30"}, quiet=(9, 25), labels=ONE_RANK),
    "a job waits": Case(
        "DDPJobPending", {of_team("ddpjob_pending_age_seconds"): "900 901 0"}, fires=(1,), quiet=(0, 2)
    ),
    "nothing is scraped": Case(
        "DDPJobOperatorNotScraped",
        {of_operator("ddpjob_build_info"): "1x4 stale _x9 1x9"},
        fires=(10, 13),
        quiet=(4, 9, 15),
        labels={},
    ),
    "nobody leads": Case(
        "DDPJobNoLeader",
        {LEADS: "1 0 0 0x5", STANDS_BY: "0 0 0 1x5"},
        fires=(2,),
        quiet=(1, 3, 6),
        labels=OPERATOR,
    ),
    "another replica takes the lead": Case(
        "DDPJobNoLeader", {LEADS: "1 0 0 0x5", STANDS_BY: "0 0 1 1x5"}, quiet=(0, 1, 2, 6), labels=OPERATOR
    ),
    "nobody is scraped, so nobody leads": Case(
        "DDPJobNoLeader", {LEADS: "1x4 stale _x5 1x5"}, fires=(6, 10), quiet=(4, 5, 11), labels={}
    ),
    "a bug": Case("DDPJobOperatorBug", {BUGS: "0x5 1x80"}, fires=(6, 64), quiet=(5, 67), labels=OPERATOR),
    "an error": Case("DDPJobOperatorBug", {ERRORS: "0x5 1x80"}, quiet=(6, 64), labels=OPERATOR),
    "more than one error each second": Case(
        "DDPJobOperatorErrors", {ERRORS: "0+61x20 1220x20"}, fires=(12, 20), quiet=(4, 28), labels=OPERATOR
    ),
    "one error each second": Case("DDPJobOperatorErrors", {ERRORS: "0+60x30"}, quiet=(7, 25), labels=OPERATOR),
    "somebody undoes a change": Case(
        "DDPJobActionsWithoutEffect",
        {of_operator("ddpjob_ineffective_actions_total"): "0x5 1x40"},
        fires=(6, 19),
        quiet=(5, 22),
        labels=OPERATOR,
    ),
    "too many jobs wait for a round": Case(
        "DDPJobOperatorBehind",
        {of_operator("ddpjob_workqueue_depth"): "101x9 100x9", LEADS: "1x20", STANDS_BY: "0x20"},
        fires=(5, 9),
        quiet=(4, 10),
        labels=OPERATOR,
    ),
    "a standby does no rounds": Case(
        "DDPJobOperatorBehind",
        {of_operator("ddpjob_workqueue_depth", "b"): "500x20", LEADS: "1x20", STANDS_BY: "0x20"},
        quiet=(6, 15),
        labels=OPERATOR,
    ),
    "a namespace is missing": Case(
        "DDPJobNamespaceNotWatched",
        {of_team("ddpjob_namespace_watched"): "0x8 1x9"},
        fires=(5, 8),
        quiet=(4, 9),
    ),
    "supervisors are silent": Case(
        "DDPJobSupervisorsUnreachable", {SILENT: "0+7x30 210x20"}, fires=(12, 30), quiet=(0, 42), labels=OPERATOR
    ),
    "supervisors are seldom silent": Case(
        "DDPJobSupervisorsUnreachable", {SILENT: "0+6x60"}, quiet=(5, 55), labels=OPERATOR
    ),
}


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([of_debian().promtool, *words], capture_output=True, text=True, check=False)


def test_promtool_finds_nothing_to_complain_of() -> None:
    checked = promtool("check", "rules", RULES)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"{len(ALERTS)} rules found" in checked.stdout


def complaints(folder: Path, *tests: dict[str, Any]) -> str:
    """What promtool finds wrong with these tests; empty if they pass."""
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [*tests]}
    (folder / "test.yaml").write_text(yaml.safe_dump(document))
    tested = promtool("test", "rules", folder / "test.yaml")
    return tested.stdout + tested.stderr if tested.returncode else ""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What promtool finds wrong with all cases together, which takes as long as a single one."""
    return complaints(tmp_path_factory.mktemp("all"), *(case.document() for case in CASES.values()))


@pytest.mark.parametrize("sentence", CASES)
def test_an_alert_fires_and_is_resolved_and_is_quiet_just_below(sentence: str, failing: str, tmp_path: Path) -> None:
    assert not (failing and complaints(tmp_path, CASES[sentence].document()))


def test_increase_alone_misses_the_first_stall_of_a_namespace(tmp_path: Path) -> None:
    blind = {"expr": f"increase({STALLS}[15m]) > 0", "eval_time": "10m", "exp_samples": []}
    one = {**CASES["the first stall of a namespace begins a series at 1"].document(), "promql_expr_test": [blind]}
    assert complaints(tmp_path, one) == ""


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    for found in ("fires", "quiet"):
        assert {case.alert for case in CASES.values() if getattr(case, found)} == {*ALERTS}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_where_and_what_to_run_and_has_a_runbook(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"DDPJob([A-Z][a-z]+)+", name)
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert [*alert["annotations"]] == ["summary", "description", "runbook_url"]
    summary, description, runbook = alert["annotations"].values()
    assert "Run: kubectl" in description or "Run: ddpjob" in description
    if "by (namespace)" in alert["expr"]:
        assert "{{ $labels.namespace }}" in summary
        assert "{{ $labels.namespace }}" in description
    assert runbook == f"docs/how-to/alerts.md#{name.lower()}"
    assert re.search(rf"^## {name}$", RUNBOOKS, re.MULTILINE)


def test_each_runbook_is_of_an_alert() -> None:
    assert re.findall(r"^## (DDPJob\w+)$", RUNBOOKS, re.MULTILINE) == [*ALERTS]


def test_the_chart_has_the_same_rules_with_its_own_limits_and_page() -> None:
    rendered = named(render("prometheusRule.enabled=true"))["PrometheusRule", RELEASE]
    assert rendered["spec"] == rules()
    changes = (
        "checkpointAgeSeconds=60",
        "pendingSeconds=86400",
        "runbookUrl=https://wiki/alerts",
        "disabled={DDPJobStraggler}",
    )
    values = (f"prometheusRule.{value}" for value in ("enabled=true", *changes))
    changed = named(render(*values))["PrometheusRule", RELEASE]["spec"]["groups"]
    found = {rule["alert"]: rule for group in changed for rule in group["rules"]}
    own, alerts = rules()["groups"], {"DDPJobCheckpointOld": "> 60", "DDPJobPending": "> 86400"}
    for rule in (rule for group in own for rule in group["rules"] if rule["alert"] in found):
        limit = alerts.get(rule["alert"])
        assert found[rule["alert"]]["expr"] == (re.sub(r"> \d+$", limit, rule["expr"]) if limit else rule["expr"])
        page = f"https://wiki/alerts#{rule['alert'].lower()}"
        assert found[rule["alert"]]["annotations"]["runbook_url"] == page
    assert ALERTS.keys() - found.keys() == {"DDPJobStraggler"}
