"""A real Prometheus with its Alertmanager. They read metrics and evaluate rules every second or so."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlencode

import yaml

from tests.support.waiting import wait_for

from . import build, packages
from .binaries import For
from .directory import plant_directory
from .needs import leave_out
from .processes import Programs, reserve_port

PACKAGES = ("prometheus", "prometheus-alertmanager")
"""Debian's packages: Prometheus 2.42, promtool, and Alertmanager 0.25."""
# Debian's Alertmanager reads its templates from /usr/share, where nothing of a package is that is only unpacked.
WITH_FILES = (
    *("unshare", "--mount", "sh", "-c"),
    'mount -t overlay overlay -o "lowerdir=$0:/usr/share" /usr/share && exec "$@"',
)
INTERVAL = "1s"

T = TypeVar("T")


@dataclass(frozen=True)
class Binaries:
    """The programs of one version. Alertmanager's is the beginning of a command."""

    prometheus: Path
    promtool: Path
    alertmanager: tuple[str | Path, ...]


def of_debian() -> Binaries:
    """The programs of Debian's packages. Skips the test, or fails it, where they cannot be had."""
    if lack := packages.what_is_lacking():
        leave_out(f"left out: Prometheus cannot be had here ({lack}); run it on a Debian, as root")
    files = packages.unpacked(*PACKAGES) / "usr"
    programs = files / "bin"
    alertmanager = (*WITH_FILES, files / "share", programs / "prometheus-alertmanager")
    return Binaries(programs / "prometheus", programs / "promtool", alertmanager)


def of_modules() -> Binaries:
    """Prometheus 3.16, promtool and Alertmanager 0.35. Builds them first if necessary, in some minutes.

    Raises:
        PlantError: They could not be built.
    """
    build.build(For.ALERTS)
    return Binaries(build.path("prometheus"), build.path("promtool"), (build.path("alertmanager"),))


@dataclass
class Monitoring:
    """A running Prometheus with its Alertmanager.

    directory     all of their files, including logs/
    url           the URL of Prometheus
    alertmanager  the URL of Alertmanager
    """

    directory: Path
    url: str
    alertmanager: str
    programs: Programs = field(repr=False)

    def scrape(self, job: str, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Sets the targets of a job, `operator` or `supervisors`: each as `host:port`, with the labels it gets."""
        groups = [{"targets": [target], "labels": {**labels}} for target, labels in targets.items()]
        file = self._targets(job)
        file.with_suffix(".new").write_text(json.dumps(groups))
        file.with_suffix(".new").rename(file)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the values of an instant query's series."""
        found = _get(f"{self.url}/api/v1/query?{urlencode({'query': expression})}")["data"]["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def alerts(self) -> list[dict[str, str]]:
        """The labels of the alerts that Alertmanager holds to be firing."""
        return [alert["labels"] for alert in self.details()]

    def details(self) -> list[dict[str, Any]]:
        """The alerts that Alertmanager holds to be firing, as its API describes them."""
        found: list[dict[str, Any]] = _get(f"{self.alertmanager}/api/v2/alerts")
        return found

    def firing(self, name: str) -> list[dict[str, str]]:
        """The labels of the firing alerts of this name."""
        return [labels for labels in self.alerts() if labels["alertname"] == name]

    def wait(self, what: str, condition: Callable[[], T], seconds: float = 60.0) -> T:
        """Waits, as `wait_for` does, for the first true value of a condition, and returns it."""

        def checked() -> T:
            self.programs.check()
            return condition()

        return wait_for(what, checked, seconds, story=self._story)

    def ready(self) -> bool:
        """Whether both programs report that they are ready."""
        return all(map(_is_ready, (self.url, self.alertmanager)))

    def _targets(self, job: str) -> Path:
        return self.directory / f"{job}.json"

    def _story(self) -> str:
        rules = _get(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        said = "\n".join(program.last_words() for program in self.programs.running.values())
        return f"Prometheus' alerts: {json.dumps(rules, indent=1)}\n{said}"


@contextmanager
def start_prometheus(
    programs: Binaries, rules: Mapping[str, Any] | None = None, routes: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Monitoring]:
    """Starts Prometheus and Alertmanager, waits until they are ready, and stops them when the block ends.

    rules   the groups of rules, as the document of a file of rules
    routes  who receives the alerts of a namespace
    """
    with plant_directory() as directory, reserve_port() as one, reserve_port() as other:
        port, alerts = (held.getsockname()[1] for held in (one, other))
        running = Programs(directory / "logs")
        monitoring = Monitoring(directory, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{alerts}", running)
        (directory / "rules.yaml").write_text(yaml.safe_dump(rules or {"groups": []}, width=1000))
        (directory / "alertmanager.yaml").write_text(yaml.safe_dump(_routed(routes)))
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(_configuration(directory, alerts)))
        try:
            running.start(
                "alertmanager",
                *programs.alertmanager,
                f"--config.file={directory}/alertmanager.yaml",
                f"--storage.path={directory}/alerts",
                f"--web.listen-address=127.0.0.1:{alerts}",
                "--cluster.listen-address=",
            )
            running.start(
                "prometheus",
                programs.prometheus,
                f"--config.file={directory}/prometheus.yaml",
                f"--storage.tsdb.path={directory}/series",
                f"--web.listen-address=127.0.0.1:{port}",
                f"--scrape.discovery-reload-interval={INTERVAL}",
            )
            monitoring.wait("Prometheus and Alertmanager", monitoring.ready)
            yield monitoring
        finally:
            running.kill()


def _routed(routes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "route": {
            "receiver": "nobody",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "routes": [{"matchers": [f"namespace={space}"], "receiver": who} for space, who in routes.items()],
        },
        "receivers": [{"name": name} for name in ("nobody", *routes.values())],
    }


def _configuration(directory: Path, alertmanager: int) -> dict[str, Any]:
    def scraped(job: str, **how: object) -> dict[str, object]:
        files = {"files": [f"{directory}/{job}.json"], "refresh_interval": INTERVAL}
        return {"job_name": job, "file_sd_configs": [files], **how}

    return {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [f"{directory}/rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
        "scrape_configs": [scraped("operator", honor_labels=True), scraped("supervisors")],
    }


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
