"""Each alert fires and is resolved in a real Alertmanager, by what the operator reports of real jobs.

The durations and limits of the rules are shortened; tests/chart/test_alerts.py has them as they are.
"""

import json
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from ddpjob_operator.engine import fingerprint
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.page.document import Gang, document
from ddpjob_supervisor.page.metrics import Metrics
from ddpjob_supervisor.page.stragglers import Straggler

from tests.plant import Plant
from tests.plant.prometheus import Binaries, Monitoring, of_debian, of_modules, start_prometheus
from tests.support.alerts import ALERTS, hastened
from tests.support.helm import ROOT
from tests.support.jobs import Team, a_job
from tests.support.operators import Operator, an_operator
from tests.support.text_page import a_text_page

from .pages import NOON, Page, a_page, supervised

RUNBOOKS = ROOT / "docs" / "how-to" / "alerts.md"
SECONDS = 8
LIMITS = {
    "DDPJobCheckpointOld": "15",  # A new checkpoint is in the status after ten seconds at the latest.
    "DDPJobPending": "3",
    "DDPJobOperatorErrors": "0.1",
    "DDPJobOperatorBehind": "2",
    "DDPJobSupervisorsUnreachable": "0.01",
}
NAMES = {"namespace": "ddpjob-system", "pod": "ddpjob-operator-0"}
FULL = pytest.mark.full("the other alerts are shown by promtool; two in `make test` show the way to Alertmanager")
NEWEST = pytest.mark.full("Prometheus and Alertmanager of another version, which take minutes to build")
ARRIVAL = 60.0
"""Seconds until an alert is expected at the latest."""

VERSIONS = [pytest.param(of_debian, id="debian"), pytest.param(of_modules, id="newest", marks=NEWEST)]


@pytest.fixture(scope="module", params=VERSIONS)
def monitoring(request: pytest.FixtureRequest) -> Iterator[Monitoring]:
    """Prometheus, with nothing to read yet."""
    programs: Binaries = request.param()
    with start_prometheus(programs, hastened(LIMITS, SECONDS)) as monitoring:
        yield monitoring


@pytest.fixture
def page() -> Iterator[Page]:
    with a_page() as page:
        yield page


def reads(monitoring: Monitoring, *operators: Operator) -> None:
    """Prometheus reads these operators from now on."""
    found = (operator.ports for operator in operators)
    monitoring.scrape("operator", {f"127.0.0.1:{ports[0]}": NAMES for ports in found if ports})


@contextmanager
def watched(team: Team, monitoring: Monitoring) -> Iterator[Operator]:
    """The team's operator, which Prometheus reads."""
    with team.operator() as operator:
        reads(monitoring, operator)
        yield operator


def fires(monitoring: Monitoring, name: str, **labels: str) -> None:
    """Waits until the alert fires with these labels among others, and says where and what to run."""

    def found() -> list[dict[str, Any]]:
        alerts = [alert for alert in monitoring.details() if alert["labels"]["alertname"] == name]
        return [alert for alert in alerts if labels.items() <= alert["labels"].items()]

    (alert,) = monitoring.wait(f"{name} to fire", found, ARRIVAL)
    said = alert["annotations"]
    assert said["runbook_url"] == ALERTS[name]["annotations"]["runbook_url"]
    assert "Run: " in said["description"]
    for text in said.values():
        assert not [wrong for wrong in ("<no value>", "<error", "{{") if wrong in text]
    if labels.get("namespace") != NAMES["namespace"]:
        assert all(value in said["summary"] + said["description"] for value in labels.values())


def resolved(monitoring: Monitoring, *names: str, **labels: str) -> None:
    """Waits until no alert of these names fires with these labels."""

    def left() -> list[str]:
        found = (alert for name in names for alert in monitoring.firing(name))
        return [alert["alertname"] for alert in found if labels.items() <= alert.items()]

    monitoring.wait(f"{', '.join(names)} to be resolved", lambda: not left(), ARRIVAL)


def start(team: Team, page: Page, **spec: Any) -> None:
    """A job runs, and its page knows whose it is."""
    team.apply(supervised(page, **spec))
    page.shows(job=fingerprint((team.job() or {})["metadata"]["uid"]))
    team.wait("Running")


def now() -> str:
    return datetime.now(UTC).isoformat()


@pytest.mark.timeout(300)
def test_the_first_stall_of_a_namespace_and_a_budget_that_is_half_spent(
    unattended: Plant, monitoring: Monitoring, page: Page
) -> None:
    team = Team(unattended)
    space = {"namespace": team.namespace}
    with watched(team, monitoring):
        page.says(progress={"attempt": 1, "firstStep": 1, "step": 50, "lastStepTime": now()})
        start(team, page, restart={"maxRestarts": 2, "windowSeconds": 12})
        stall = {"attempt": 1, "time": NOON, "node": 1, "rank": 1, "cause": "Stalled", "exitCode": 203}
        began = {"attempt": 2, "firstStep": 1, "step": 3}
        page.says(attempt=2, inPlaceRestarts=1, incidents=[stall], progress=began)
        fires(monitoring, "DDPJobStalled", **space)
        fires(monitoring, "DDPJobRestartBudgetHalfSpent", **space)
        page.says(progress=began | {"step": 4, "lastStepTime": now()})
        resolved(monitoring, "DDPJobStalled", "DDPJobRestartBudgetHalfSpent", **space)


@FULL
@pytest.mark.timeout(300)
def test_an_old_checkpoint_and_a_loss_that_is_not_finite(
    unattended: Plant, monitoring: Monitoring, page: Page
) -> None:
    team = Team(unattended)
    space = {"namespace": team.namespace}
    with watched(team, monitoring):
        step = {"attempt": 1, "firstStep": 1, "step": 50, "lastStepTime": now()}
        page.says(progress=step | {"loss": 0.5}, checkpoint={"step": 40, "time": NOON})
        start(team, page)
        fires(monitoring, "DDPJobCheckpointOld", **space)
        page.says(progress=step | {"step": 60, "loss": 0.5}, checkpoint={"step": 60, "time": now()})
        resolved(monitoring, "DDPJobCheckpointOld", **space)
        page.says(progress=step | {"step": 70, "loss": "NaN", "lossNotFiniteSinceStep": 70})
        fires(monitoring, "DDPJobDiverged", **space)
        page.says(progress=step | {"step": 80, "loss": 0.5})
        resolved(monitoring, "DDPJobDiverged", **space)


@FULL
def test_a_straggler_by_the_page_of_its_jobs_supervisor(monitoring: Monitoring) -> None:
    names = {"namespace": "team", "pod": "digits-0-abcde", "job_name": "digits"}
    with a_text_page() as (address, says):
        monitoring.scrape("supervisors", {address: names})
        says(supervisor_page(Straggler(1, 3, 1.5)))
        fires(monitoring, "DDPJobStraggler", namespace="team", job_name="digits", rank="3", node="1")
        says(supervisor_page())
        resolved(monitoring, "DDPJobStraggler")


def supervisor_page(*stragglers: Straggler) -> str:
    """What rank 0's supervisor tells Prometheus."""
    gang = Gang("uid", 2, 2, 1, Phase.RUNNING, 0.0, stragglers=stragglers)
    return Metrics().exposition(document(gang)).decode()


@FULL
@pytest.mark.timeout(300)
def test_a_job_that_waits_for_a_quota(unattended: Plant, monitoring: Monitoring) -> None:
    team = Team(unattended)
    with watched(team, monitoring):
        team.limit("pods", 1)
        team.apply(a_job(annotations={"plant.ddpjob.dev/runs-for": "2h"}))
        fires(monitoring, "DDPJobPending", namespace=team.namespace)
        team.limit("pods", 2)
        team.wait("Running")
        resolved(monitoring, "DDPJobPending", namespace=team.namespace)


@FULL
@pytest.mark.timeout(300)
def test_an_operator_that_is_gone_and_one_that_does_not_lead(unattended: Plant, monitoring: Monitoring) -> None:
    team = Team(unattended)
    with team.operator() as operator:
        reads(monitoring, operator)
        resolved(monitoring, "DDPJobNoLeader", "DDPJobOperatorNotScraped")
        operator.kill()
        fires(monitoring, "DDPJobOperatorNotScraped")
        fires(monitoring, "DDPJobNoLeader")
    lease = (f"--lease-namespace={team.namespace}", "--lease-name=operator")
    flags = (f"--namespace={team.namespace}", *lease)
    spec = {"holderIdentity": "nobody", "leaseDurationSeconds": 300, "renewTime": now(), "acquireTime": now()}
    meta = {"name": "operator"}
    team.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
    with an_operator(unattended, *flags, forked=True) as standby:
        reads(monitoring, standby)
        resolved(monitoring, "DDPJobOperatorNotScraped")
        fires(monitoring, "DDPJobNoLeader", namespace="ddpjob-system")
        team.delete("leases", "operator")
        resolved(monitoring, "DDPJobNoLeader")


@FULL
@pytest.mark.timeout(300)
def test_an_api_server_that_refuses(unattended: Plant, monitoring: Monitoring) -> None:
    team = Team(unattended)
    with (
        granted(unattended, "*") as robot,
        an_operator(
            unattended, f"--namespace={team.namespace}", "--no-leader-elect", kubeconfig=robot, forked=True
        ) as operator,
    ):
        reads(monitoring, operator)
        with granted(unattended, "get", "list", "watch"):
            team.apply(*(a_job(f"digits-{number}") for number in range(5)))
            fires(monitoring, "DDPJobOperatorErrors", namespace="ddpjob-system")
            fires(monitoring, "DDPJobOperatorBehind", namespace="ddpjob-system")
        resolved(monitoring, "DDPJobOperatorErrors", "DDPJobOperatorBehind")


@contextmanager
def granted(plant: Plant, *verbs: str) -> Iterator[Path]:
    """The kubeconfig of a user who may do this for now, and before and afterwards everything."""
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": "alerted"}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta}
    binding = role | {
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "alerted"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alerted"}],
    }

    def may(*verbs: str) -> None:
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": [*verbs]}]
        plant.kubectl("apply", "-f", "-", input=json.dumps(role | {"rules": rules}))

    plant.kubectl("apply", "-f", "-", input=json.dumps(binding))
    may(*verbs)
    yield plant.kubeconfig_for("alerted")
    may("*")


BROKEN = """
from pathlib import Path
from ddpjob_operator.cluster import reconciler
from ddpjob_operator.cluster.entry import main

decide = reconciler.decide

def broken(snapshot):
    if snapshot.job.metadata.name == "odd":
        raise KeyError("a mistake")
    return decide(snapshot)

reconciler.decide = broken
main()
"""


@FULL
@pytest.mark.timeout(300)
def test_a_bug_of_the_operator(unattended: Plant, monitoring: Monitoring, tmp_path: Path) -> None:
    team = Team(unattended)
    program = tmp_path / "ddpjob-operator"
    program.write_text(f"#!{sys.executable}\n{BROKEN}")
    program.chmod(0o755)
    with an_operator(unattended, f"--namespace={team.namespace}", "--no-leader-elect", program=program) as operator:
        reads(monitoring, operator)
        team.apply(a_job("odd"))
        fires(monitoring, "DDPJobOperatorBug", namespace="ddpjob-system")
        team.delete("ddpjobs", "odd")
        resolved(monitoring, "DDPJobOperatorBug")


@contextmanager
def undone(team: Team) -> Iterator[None]:
    """Somebody deletes each Service of the team at once."""
    over = threading.Event()

    def undo() -> None:
        while not over.wait(0.02):
            for service in team.all("services"):
                team.delete("services", service["metadata"]["name"])

    with ThreadPoolExecutor() as executor:
        undoing = executor.submit(undo)
        try:
            yield
        finally:
            over.set()
        undoing.result()


@FULL
@pytest.mark.timeout(300)
def test_somebody_who_undoes_what_the_operator_does(unattended: Plant, monitoring: Monitoring) -> None:
    team = Team(unattended)
    with watched(team, monitoring), undone(team):
        team.apply(a_job(annotations={"plant.ddpjob.dev/runs-for": "2h"}))
        fires(monitoring, "DDPJobActionsWithoutEffect", namespace="ddpjob-system")
    resolved(monitoring, "DDPJobActionsWithoutEffect")


@FULL
@pytest.mark.timeout(300)
def test_a_namespace_that_is_missing(unattended: Plant, monitoring: Monitoring) -> None:
    flags = ("--namespace=not-there-yet", "--no-leader-elect", "--resync-seconds=2")
    with an_operator(unattended, *flags, until_ready=False, forked=True) as operator:
        unattended.wait("its page", lambda: operator.get("/metrics")[0] == 200)
        reads(monitoring, operator)
        fires(monitoring, "DDPJobNamespaceNotWatched", namespace="not-there-yet")
        unattended.kubectl("create", "namespace", "not-there-yet")
        resolved(monitoring, "DDPJobNamespaceNotWatched")
        unattended.kubectl("delete", "namespace", "not-there-yet")


@FULL
@pytest.mark.timeout(300)
def test_supervisors_that_do_not_answer(unattended: Plant, monitoring: Monitoring, page: Page) -> None:
    team = Team(unattended)
    with watched(team, monitoring):
        start(team, page)
        page.close()
        with create_server(("127.0.0.1", page.port)):
            fires(monitoring, "DDPJobSupervisorsUnreachable", namespace="ddpjob-system")
        page.open()
        resolved(monitoring, "DDPJobSupervisorsUnreachable")


def commands(namespace: str) -> Iterator[list[str]]:
    """The commands in alerts and runbooks that show jobs."""
    for alert in ALERTS.values():
        run = alert["annotations"]["description"].partition("Run: ")[2]
        yield shlex.split(re.sub(r"\{\{.*?\}\}", namespace, run))
    for code in re.findall(r"`(kubectl get ddp[^`]*)`", RUNBOOKS.read_text(encoding="utf-8")):
        yield shlex.split(re.sub(r"\bNAME\b(?!:)", "digits", code.replace("TEAM", namespace)))


def test_the_commands_that_show_jobs_show_them(unattended: Plant) -> None:
    team = Team(unattended)
    team.apply(a_job())
    found = {tuple(takewhile(lambda word: word not in {"|", "and"}, words)) for words in commands(team.namespace)}
    shown = [[word.rstrip(",") for word in words] for words in found if words[:3] == ("kubectl", "get", "ddp")]
    assert len(shown) > 5
    for words in shown:
        assert "digits" in unattended.kubectl(*words[1:]), words


def test_each_alert_is_seen() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in ALERTS if f'fires(monitoring, "{name}"' not in text] == []
