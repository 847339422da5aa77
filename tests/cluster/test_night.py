"""One night with six jobs of two teams: whom the alerts wake and when, and what can still be read two days later.

With UPDATE_NIGHT=1 it writes docs/explanation/a-night.md, which has the output of such a run.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults import clock
from tests.plant import Plant, start_fake
from tests.plant.fake import remove_node
from tests.plant.needs import demand
from tests.plant.prometheus import Monitoring, of_debian, start_prometheus
from tests.support.alerts import rules
from tests.support.crd import install_crd
from tests.support.jobs import Team
from tests.support.kubelets import Kubelets, kubelets
from tests.support.operators import an_operator
from tests.support.waiting import patience

from . import night_page
from .night import NIGHT, PROGRAM, job_of
from .onlookers import Onlookers, Trouble

ROUTES = {"vision": "vision-on-call", "language": "language-on-call"}
PENDING_SECONDS = 30
TROUBLES = {
    "segment": Trouble("Stalled|Restarting|restarts 1", "read_batch"),
    "gpt": Trouble("[Nn]a[Nn]", "NaN since step 60|[Nn]a[Nn]"),
    "wide": Trouble("exceeded quota|quota", "quota"),
    "bert": Trouble("1/2|Restarting", "not ready|NodeLost|Kubernetes node|1/2"),
}
"""What a person who follows the jobs can see of each trouble."""
MOST_KEYS = 3
TWO_DAYS = 2 * 24 * 3600
DDPJOB = Path(sys.executable).with_name("ddpjob")

Alert = tuple[str, str]
"""Name and namespace."""


class Pager:
    """Whom Alertmanager tells of what, and when."""

    def __init__(self, monitoring: Monitoring, machines: Kubelets) -> None:
        self.fired: dict[Alert, float] = {}
        self.resolved: dict[Alert, float] = {}
        self.receivers: dict[Alert, str] = {}
        self.summaries: dict[Alert, str] = {}
        self._monitoring, self._machines = monitoring, machines
        self._over = threading.Event()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Looks twice a second; Prometheus hears of new supervisors, too."""
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _follow(self) -> None:
        while not self._over.wait(0.5):
            self._monitoring.scrape("supervisors", self._machines.targets())
            firing = {_key(alert): alert for alert in self._monitoring.details()}
            for key, alert in firing.items():
                self.fired.setdefault(key, time.time())
                self.receivers[key] = alert["receivers"][0]["name"]
                self.summaries.setdefault(key, alert["annotations"]["summary"])
            for key in self.fired.keys() - firing.keys():
                self.resolved.setdefault(key, time.time())


def _key(alert: dict[str, Any]) -> Alert:
    return alert["labels"]["alertname"], alert["labels"].get("namespace", "")


def real_rules() -> Any:
    """The chart's rules; only a wait of 15 minutes is shorter."""
    document = rules()
    for group in document["groups"]:
        for rule in group["rules"]:
            if rule["alert"] == "DDPJobPending":
                rule["expr"] = rule["expr"].replace("900", str(PENDING_SECONDS))
    return document


def called(directory: Path, *words: str, **environment: str) -> str:
    """What `ddpjob` prints in a directory."""
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    done = subprocess.run(
        [DDPJOB, *words],
        cwd=directory,
        env=env | {"COLUMNS": "110"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.full("each alert and each reader of the history has its own tests; this is all of them in one night")
@pytest.mark.timeout(900)
def test_one_night_and_two_days_later(tmp_path: Path) -> None:
    demand("fake")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "train.py").write_text(PROGRAM)
    with start_fake(nodes=12) as plant, start_prometheus(of_debian(), real_rules(), ROUTES) as monitoring:
        install_crd(plant)
        with kubelets(plant, tmp_path / "machines") as machines, an_operator(plant, "--no-leader-elect") as operator:
            assert operator.ports
            names = {"namespace": "ddpjob-system", "pod": "ddpjob-operator-0"}
            monitoring.scrape("operator", {f"127.0.0.1:{operator.ports[0]}": names})
            pager = Pager(monitoring, machines)
            with pager.following():
                onlookers = Onlookers(TROUBLES)
                seen = night(plant, machines, pager, shared, onlookers)
            assert machines.failure is None
    later = two_days_later(shared)
    assert pager.receivers == {
        ("DDPJobStalled", "vision"): "vision-on-call",
        ("DDPJobPending", "vision"): "vision-on-call",
        ("DDPJobDiverged", "language"): "language-on-call",
    }
    assert ("DDPJobPending", "vision") in pager.resolved
    delays = {name: pager.fired[name, space] - began for (name, space), began in seen.began.items()}
    assert all(0 < delay < patience(90) for delay in delays.values()), delays
    assert not onlookers.failures
    looks = {name: (noted, onlookers.page[name], seen.troubles[name]) for name, noted in onlookers.top.items()}
    assert looks.keys() == TROUBLES.keys()
    assert all(len(noted.keys) <= MOST_KEYS for noted, *_ in looks.values()), looks
    page = night_page.written(
        delays,
        {name: end - pager.fired[name, space] for (name, space), end in pager.resolved.items()},
        {name: text for (name, _), text in sorted(pager.summaries.items())},
        seen.back,
        seen.tables,
        pending=PENDING_SECONDS,
        looks=looks,
        read={words: text.replace(str(tmp_path), "") for words, text in later.items()},
    )
    if os.environ.get("UPDATE_NIGHT"):
        night_page.PAGE.write_text(page, encoding="utf-8")


@dataclass(frozen=True)
class Seen:
    """What a person sees in the night.

    began   when each job's trouble began
    back    how many seconds after the loss of a node its job trained again
    tables  `kubectl get ddp -A`: once all alerts have fired, and in the morning
    troubles  when each trouble began, by the job's name
    """

    began: dict[Alert, float]
    back: float
    tables: tuple[str, str]
    troubles: dict[str, float]


def night(plant: Plant, machines: Kubelets, pager: Pager, shared: Path, onlookers: Onlookers) -> Seen:
    """All that happens until the last job has ended, and has been deleted."""
    teams = {name: Team(plant, name) for name in ("vision", "language")}
    for name in teams:
        plant.kubectl("create", "namespace", name)
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        plant.wait("its service account", partial(plant.get, account))
    teams["vision"].limit("pods", 4)
    first = [key for key in NIGHT if key != ("vision", "wide")]
    for team, name in first:
        teams[team].apply(job_of(team, name, shared))
    for team, name in first:
        teams[team].wait("Running", name)
    with onlookers.following(plant.kubeconfig):
        teams["vision"].apply(job_of("vision", "wide", shared))
        waits_since = time.time()
        plant.wait(
            "all to train, and to have saved", lambda: all((shared / name / "saved").exists() for _, name in first)
        )
        language = teams["language"]
        pod = plant.get(language.path("pods", language.pod(1, "bert")))
        lost = time.time()
        machines.lose(pod["spec"]["nodeName"])
        alerts = {("DDPJobStalled", "vision"), ("DDPJobDiverged", "language"), ("DDPJobPending", "vision")}
        plant.wait("the alerts", lambda: pager.fired.keys() >= alerts, seconds=120)
        table = plant.kubectl("get", "ddp", "-A")
        language.until("{.status.attempt}=2", "bert", seconds=120)
        language.wait("Running", "bert")
        back = time.time() - lost
    for (team, name), (fault, _) in NIGHT.items():
        teams[team].wait("Failed" if fault == "diverge" else "Succeeded", name, seconds=240)
    morning = plant.kubectl("get", "ddp", "-A")
    assert pager.fired.keys() == alerts, "nobody is woken by what mends itself"
    remove_node(plant, pod["spec"]["nodeName"])
    for team in teams.values():
        team.delete_all("ddpjobs")
        plant.wait("everything to go", team.empty)
    began = {
        ("DDPJobStalled", "vision"): float((shared / "segment" / "began").read_text()),
        ("DDPJobDiverged", "language"): float((shared / "gpt" / "began").read_text()),
        ("DDPJobPending", "vision"): waits_since,
    }
    names = {"segment": "DDPJobStalled", "gpt": "DDPJobDiverged", "wide": "DDPJobPending"}
    troubles = {name: next(at for (alert, _), at in began.items() if alert == word) for name, word in names.items()}
    return Seen(began, back, (table, morning), troubles | {"bert": lost})


TOLD = {
    "status gpt": "the loss has been NaN since step 60",
    "logs gpt --tail 4": "[rank 0] ddpjob.DivergedError: the loss has been NaN since step 60",
    "status segment": "rank 1: it is in read_batch",
    "logs segment --previous --node 1 --tail 4": "in read_batch",
    "status bert": "Incidents:    attempt 1, rank 1 on node 1: NodeLost: Kubernetes node",
}
"""What matters of the answers."""


def two_days_later(shared: Path) -> dict[str, str]:
    """What `ddpjob` prints when pods, jobs and cluster are gone, by its arguments."""
    clock.install()
    file = shared / "clock"
    clock.set_clock(file, TWO_DAYS)
    environment = clock.environment(file)
    read = {words: called(shared, *words.split(), "--history", "history", **environment) for words in night_page.READ}
    for words, said in TOLD.items():
        assert said in read[words], read[words]
    assert all("Z, 2d ago\n" in text for words, text in read.items() if words.startswith("status"))
    assert "Stalled" in (shared / "segment.html").read_text(encoding="utf-8")
    return read
